"""make: build an algorithm from a name, for a problem, or from a specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from ..contracts.problem import Problem
from ..contracts.variant import PARTS, Variant, check_preset
from .algorithm import Algorithm
from .assembling import assemble_algorithm, assemble_from_spec
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
    """Make an algorithm by name.

    There is no problem to ask here, so noise_scale and R are 1 unless given, and corruption is 0.
    `run` by name takes the problem's own with the practical preset. For the algorithm that it
    would play, pass ``noise_scale=problem.noise_scale``.

    Parameters
    ----------
    variant : str or Variant
        A registered name, or names joined by +: "sync+robust" is sync with what robust changes.
    dim : int
        The length of a context, d.
    n_arms : int
        The number of arms per round, K.
    n_clients : int
        The number of clients, M.
    horizon : int or None
        The number of pulls of all clients together, T. None if it is unknown: then the result is
        a `Doubling`, an algorithm for 1024 pulls, then one for 2048, and so on, each from the
        start. docs/federation.md says what that costs.
    preset : {"practical", "theory"}
        Which defaults the variant's keywords have.
    policy, trigger, noise, weighting : str, plugin or callable, optional
        A part that replaces the variant's own, by name or as an object. A trigger, a weighting or
        a policy may be a function: Python, numba's ``@cfunc`` or a scipy.LowLevelCallable.
    syncs : {"one", "all", "push"}, optional
        Who syncs, as in `Variant`.
    lazy : bool, optional
        Whether decisions use the last download alone.
    **parameters : float
        Parameters of the parts: ridge, delta, alpha_scale, noise_scale (σ), theta_bound (B), C,
        D, every, R, corruption (C_p) and what else the chosen parts take. A keyword that no part
        takes is an error.

    Returns
    -------
    Algorithm or Doubling
        A `Doubling` if the horizon is None.

    Raises
    ------
    UnknownName
        For a name or a keyword that does not exist; the message lists the choices.
    InvalidInput
        For a value that can't be used.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> sizes = {"dim": 4, "n_arms": 5, "n_clients": 2, "horizon": 1000}
    >>> fsl.make("async", **sizes, trigger="periodic", every=50).trigger
    Periodic(every=50)
    >>> fsl.make("sync+robust", **sizes, corruption=3).departures()[0]
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
    """Make the algorithm that a specification describes. Its parts must be registered by name."""
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
    return make_from_recipe(name, recipe, problem, horizon, others)


def make_from_recipe(
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
