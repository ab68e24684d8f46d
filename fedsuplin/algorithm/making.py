"""The public way to make an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from ..contracts.problem import Problem
from ..contracts.variant import PARTS, Variant
from ..registry import plugins
from .algorithm import Algorithm
from .assembling import assemble_algorithm, assemble_from_spec, check_preset
from .composing import compose_recipe, list_keywords
from .doubling import Doubling


@overload
def make(
    variant: str | Variant,
    *,
    dim: int,
    n_arms: int,
    n_clients: int,
    horizon: int,
    preset: str = ...,
    policy: Any = None,
    trigger: Any = None,
    noise: Any = None,
    weighting: Any = None,
    syncs: str | None = None,
    lazy: bool | None = None,
    **parameters: Any,
) -> Algorithm: ...
@overload
def make(
    variant: str | Variant,
    *,
    dim: int,
    n_arms: int,
    n_clients: int,
    horizon: None,
    preset: str = ...,
    policy: Any = None,
    trigger: Any = None,
    noise: Any = None,
    weighting: Any = None,
    syncs: str | None = None,
    lazy: bool | None = None,
    **parameters: Any,
) -> Doubling: ...
def make(
    variant: str | Variant,
    *,
    dim: int,
    n_arms: int,
    n_clients: int,
    horizon: int | None,
    preset: str = "practical",
    policy: Any = None,
    trigger: Any = None,
    noise: Any = None,
    weighting: Any = None,
    syncs: str | None = None,
    lazy: bool | None = None,
    **parameters: Any,
) -> Algorithm | Doubling:
    """An algorithm by name. Parts may be replaced by names or objects; other keywords are parameters of the parts.

    Names joined by + compose: "sync+robust" is sync with what robust changes. A trigger, a weighting or a policy may also be
    a bare function: Python, numba's `@cfunc` or a scipy.LowLevelCallable. Parameters are ridge, delta, alpha_scale,
    noise_scale (σ), theta_bound (B), C, D, every, R, corruption (C_p) and whatever
    else the chosen parts take. One that no part has a use for is an error.

    Here no problem is there to ask: noise_scale and R are 1 unless given, and corruption 0. `run` by name takes the problem's own
    with the practical preset, so give noise_scale=problem.noise_scale for the algorithm that it would play.

    horizon=None says that nobody knows how many pulls there will be. What comes back is then a Doubling: an algorithm for 1024
    pulls, after them one for 2048, and so on, each from nothing. `run` and `fedsuplin serve` take it; docs/federation.md has what
    it costs.

    >>> make("async", dim=4, n_arms=5, n_clients=2, horizon=1000, trigger="periodic", every=50).trigger
    Periodic(every=50)
    >>> make("sync+robust", dim=4, n_arms=5, n_clients=2, horizon=1000, corruption=3).departures()[0]
    'no theorem of the paper covers this composition'
    """
    check_preset(preset)
    parts = {
        "policy": policy,
        "trigger": trigger,
        "noise": noise,
        "weighting": weighting,
        "syncs": syncs,
        "lazy": lazy,
    }
    if horizon is None:
        sizes = {"dim": dim, "n_arms": n_arms, "n_clients": n_clients, "preset": preset}
        replaced = {part: value for part, value in parts.items() if value is not None}
        return Doubling(variant, sizes | replaced | parameters)
    name, recipe = compose_recipe(variant, parts)
    return assemble_algorithm(
        name,
        recipe,
        dim=dim,
        n_arms=n_arms,
        n_clients=n_clients,
        horizon=horizon,
        preset=preset,
        **parameters,
    )


def make_algorithm_from_spec(spec: Mapping[str, Any]) -> Algorithm | Doubling:
    """The algorithm that a specification describes; its parts must be registered by name."""
    if "doubling" in spec:
        return Doubling.from_spec(spec)
    return assemble_from_spec(spec)


def make_for(
    variant: str | Variant, problem: Problem, horizon: int, parameters: dict[str, Any]
) -> Algorithm:
    """Make the algorithm for a problem, from the keywords of `make`."""
    parts = {part: parameters.get(part) for part in PARTS}
    name, recipe = compose_recipe(variant, parts)
    others = {key: value for key, value in parameters.items() if key not in parts}
    return assemble_for(name, recipe, problem, horizon, others)


def assemble_for(
    name: str, recipe: Variant, problem: Problem, horizon: int, parameters: dict[str, Any]
) -> Algorithm:
    """Make the algorithm for a problem from a recipe that is already composed.

    With the practical preset it knows the problem's noise_scale, R and corruption; with theory
    it does not.
    """
    keywords = {"dim": problem.dim, "n_arms": problem.n_arms, "n_clients": problem.n_clients}
    if parameters.get("preset", "practical") == "practical":
        takes = list_keywords(recipe)
        stated = {
            key: getattr(problem, key, None)
            for key in ("noise_scale", "R", "corruption")
            if key in takes
        }
        keywords |= {key: value for key, value in stated.items() if value is not None}
    return assemble_algorithm(name, recipe, **(keywords | parameters), horizon=horizon)


def list_suitable_variants(problem: Problem) -> list[str]:
    """The variants that can play a problem: those for fixed arms only where it has them."""
    fixed = getattr(problem, "fixed_arms", None) is not None
    names = plugins.names("variants")
    return [
        name
        for name in names
        if fixed or not needs_fixed_arms(plugins.create("variants", name, {}))
    ]


def needs_fixed_arms(recipe: Variant) -> bool:
    policy = (
        plugins.factory("policies", recipe.policy)
        if isinstance(recipe.policy, str)
        else recipe.policy
    )
    return getattr(policy, "kernel", None) == "phased"
