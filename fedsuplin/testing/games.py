"""Short runs with a plugin, compared between the engine and the NumPy reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..algorithm.algorithm import Algorithm
from ..algorithm.composing import list_keywords
from ..algorithm.making import make
from ..contracts.problem import Problem
from ..contracts.setting import Setting
from ..contracts.variant import PRESETS
from ..problems.arrays import ArrayProblem
from ..problems.fixed_arms import FixedArmsProblem
from ..problems.synthetic import SyntheticProblem
from ..reference.twin import run_reference
from ..registry import SINGULAR
from ..simulation.runner import run
from .applying import AXIS, applies_to
from .problems import choose_length
from .subject import Subject, call_plugin, fail

SIZES = ("dim", "n_arms", "n_clients")
# Little noise, so that a short game reaches the layers in which estimates matter.
QUIET: dict[str, Any] = {"noise_scale": 0.1}
DECISIONS = ("arms", "layers", "clients", "communication")
BOTH_SIDES = "in the engine and in fedsuplin.reference, which calls the Python forms,"


@applies_to(*AXIS, "variants", "problems")
def check_plays_like_the_reference(subject: Subject) -> None:
    """Check that a short game in the engine is decided as in the NumPy reference.

    Decisions are arms, layers, and the pulls at which clients communicate.
    """
    for title, algorithm, problem in make_games(subject):
        horizon, twin_title = algorithm.horizon, f"{title}, by fedsuplin.reference,"
        engine = call_plugin(title, run, algorithm, problem, horizon=horizon, record="all")
        twin = call_plugin(twin_title, run_reference, algorithm, problem, horizon=horizon)
        compare_decisions(engine, twin, title, BOTH_SIDES)


def compare_decisions(one: Any, other: Any, title: str, where: str) -> None:
    """Fail at the first pull where two games with a plugin are decided differently."""
    differs = {
        name: np.flatnonzero(getattr(one, name) != getattr(other, name)) for name in DECISIONS
    }
    first = {name: int(at[0]) for name, at in differs.items() if len(at)}
    if first:
        name = min(first, key=first.__getitem__)
        values = f"{getattr(one, name)[first[name]]} and {getattr(other, name)[first[name]]}"
        fail(f"{title} {where} has other {name} from pull {first[name]} on: {values}")


def make_games(subject: Subject) -> Iterator[tuple[str, Algorithm, Problem]]:
    """Yield games in which a plugin of this kind matters: a title, the algorithm, the problem."""
    if subject.kind == "problems":
        problem = subject.make()
        sizes = {name: getattr(problem, name) for name in SIZES}
        algorithm = make("async", **sizes, horizon=choose_length(problem), **QUIET)
        yield "'async' on this problem", algorithm, problem
        return
    sizes = {name: getattr(subject.game, name) for name in (*SIZES, "horizon")}
    for title, variant, more in list_openings(subject):
        algorithm = call_plugin(title, make, variant, **sizes, **more)
        own_noise = subject.kind in ("variants", "noise_models")
        noise = algorithm.noise if own_noise else "bounded"  # whose σ_t varies
        phased = algorithm.kernel == "phased"
        problem_class = FixedArmsProblem if phased else SyntheticProblem
        yield title, algorithm, problem_class(**sizes, noise=noise)
    if subject.kind == "policies" and not phased:
        with_missing = make_problem_with_missing_arms(subject.game)
        yield f"{title}, some arms missing,", algorithm, with_missing


def list_openings(subject: Subject) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield algorithms for games with a plugin: a title, the variant, the keywords of `make`."""
    # Where the author does not fix the ridge, it is the preset's.
    ridge = {"ridge": subject.game.ridge} if "ridge" in subject.where else {}
    plugin, kind = subject.make(), SINGULAR[subject.kind]
    if subject.kind == "variants":
        quiet = {name: value for name, value in QUIET.items() if name in list_keywords(plugin)}
        for preset in PRESETS:
            yield f"with preset {preset!r} it", plugin, {"preset": preset, **quiet, **ridge}
    elif subject.kind == "noise_models":
        for policy in ("layered", "optimism"):  # the second uses estimates from the first pull on
            title = f"'async' with this {kind} and policy {policy!r}"
            yield title, "async", {"noise": plugin, "policy": policy, **ridge}
    else:
        for variant in ("async", "sync") if subject.kind == "triggers" else ("async",):
            keywords = {AXIS[subject.kind]: plugin, **QUIET, **ridge}
            yield f"{variant!r} with this {kind}", variant, keywords


def make_problem_with_missing_arms(setting: Setting) -> ArrayProblem:
    """Make a game's problem, in which a random 40 % of the arms are missing in each round."""
    rng, n = np.random.default_rng(5), setting.horizon
    contexts = rng.normal(size=(n, setting.n_arms, setting.dim))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
    mask = rng.random((n, setting.n_arms)) < 0.6
    mask[:, -1] |= ~mask.any(axis=1)
    return ArrayProblem(
        contexts,
        np.arange(n) % setting.n_clients,
        theta=np.full(setting.dim, setting.dim**-0.5),
        noise=0.1 * rng.normal(size=n),
        sigma=0.1,
        mask=mask,
        n_clients=setting.n_clients,
    )
