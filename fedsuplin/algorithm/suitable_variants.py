"""Which variants can play a problem."""

from __future__ import annotations

from ..contracts.problem import Problem
from ..contracts.variant import Variant
from ..registry import plugins


def list_suitable_variants(problem: Problem) -> list[str]:
    """Return the variants that are suitable for a problem. Some need fixed arms."""
    fixed = getattr(problem, "fixed_arms", None) is not None
    names = plugins.names("variants")
    return [
        name
        for name in names
        if fixed or not needs_fixed_arms(plugins.create("variants", name, {}))
    ]


def needs_fixed_arms(recipe: Variant) -> bool:
    """Return whether a variant is suitable for fixed arms only: its policy plans phases."""
    policy = (
        plugins.factory("policies", recipe.policy)
        if isinstance(recipe.policy, str)
        else recipe.policy
    )
    return getattr(policy, "kernel", None) == "phased"


def find_natural_noise(recipe: Variant) -> str:
    """Return the noise of a problem that is suitable for a variant: the one that it assumes."""
    if not isinstance(recipe.noise, str):
        return "gaussian"
    return getattr(plugins.factory("noise_models", recipe.noise), "drawn_as", recipe.noise)
