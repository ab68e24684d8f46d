"""Short runs with a plugin, compared between the engine and the NumPy reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..algorithm.algorithm import Algorithm
from ..algorithm.composing import list_keywords
from ..algorithm.making import make
from ..contracts.setting import Setting
from ..contracts.variant import PRESETS
from ..problems.arrays import ArrayProblem
from ..problems.fixed_arms import FixedArmsProblem
from ..problems.synthetic import SyntheticProblem
from ..reference.twin import run_reference
from ..registry import SINGULAR
from ..simulation.runner import run
from .checks import AXIS, applies_to
from .problems import choose_length
from .subject import Subject, call_plugin, fail

SIZES = ("dim", "n_arms", "n_clients")
QUIET: dict[str, Any] = {
    "noise_scale": 0.1
}  # so that a short game gets to the layers in which estimates matter
DECISIONS = ("arms", "layers", "clients", "communication")


@applies_to(*AXIS, "variants", "problems")
def check_plays_like_the_reference(subject: Subject) -> None:
    """In a run, the engine chooses the arms and layers, and communicates at the pulls, of the NumPy twin."""
    for title, algorithm, problem in make_games(subject):
        engine = call_plugin(
            title, run, algorithm, problem, horizon=algorithm.horizon, record="all"
        )
        twin = call_plugin(
            f"{title}, by fedsuplin.reference,",
            run_reference,
            algorithm,
            problem,
            horizon=algorithm.horizon,
        )
        compare_decisions(
            engine,
            twin,
            title,
            "in the engine and in fedsuplin.reference, which calls the Python forms,",
        )


def compare_decisions(one: Any, other: Any, title: str, where: str) -> None:
    """Fails where two runs differ first."""
    differs = {
        name: np.flatnonzero(getattr(one, name) != getattr(other, name)) for name in DECISIONS
    }
    first = {name: int(at[0]) for name, at in differs.items() if len(at)}
    if first:
        name = min(first, key=first.__getitem__)
        values = f"{getattr(one, name)[first[name]]} and {getattr(other, name)[first[name]]}"
        fail(f"{title} {where} has other {name} from pull {first[name]} on: {values}")


def make_games(subject: Subject) -> Iterator[tuple[str, Algorithm, Any]]:
    """Runs in which a plugin of this kind has something to do: in words, the algorithm, the problem."""
    if subject.kind == "problems":
        problem = subject.make()
        sizes = {name: getattr(problem, name) for name in SIZES}
        yield (
            "'async' on this problem",
            make("async", **sizes, horizon=choose_length(problem), **QUIET),
            problem,
        )
        return
    sizes = {name: getattr(subject.game, name) for name in (*SIZES, "horizon")}
    for title, variant, more in list_openings(subject):
        algorithm = call_plugin(title, make, variant, **sizes, **more)
        noise = (
            algorithm.noise if subject.kind in ("variants", "noise_models") else "bounded"
        )  # with σ_t that varies
        phased = algorithm.kernel == "phased"
        yield (
            title,
            algorithm,
            (FixedArmsProblem if phased else SyntheticProblem)(**sizes, noise=noise),
        )
    if subject.kind == "policies" and not phased:
        yield (
            f"{title}, some arms missing,",
            algorithm,
            make_problem_with_missing_arms(subject.game),
        )


def list_openings(subject: Subject) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What to make for a game with this plugin: in words, the variant, the keywords."""
    ridge = {"ridge": subject.game.ridge} if "ridge" in subject.where else {}  # else the preset's
    plugin, kind = subject.make(), SINGULAR[subject.kind]
    if subject.kind == "variants":
        quiet = {name: value for name, value in QUIET.items() if name in list_keywords(plugin)}
        for preset in PRESETS:
            yield f"with preset {preset!r} it", plugin, {"preset": preset, **quiet, **ridge}
    elif subject.kind == "noise_models":
        for policy in (
            "layered",
            "optimism",
        ):  # the second looks at estimates from the first pull on
            yield (
                f"'async' with this {kind} and policy {policy!r}",
                "async",
                {"noise": plugin, "policy": policy, **ridge},
            )
    else:
        for variant in ("async", "sync") if subject.kind == "triggers" else ("async",):
            yield (
                f"{variant!r} with this {kind}",
                variant,
                {AXIS[subject.kind]: plugin, **QUIET, **ridge},
            )


def make_problem_with_missing_arms(setting: Setting) -> ArrayProblem:
    rng, n = np.random.default_rng(5), setting.horizon
    contexts = rng.normal(size=(n, setting.n_arms, setting.dim))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
    mask = rng.random((n, setting.n_arms)) < 0.6
    mask[:, -1] |= ~mask.any(axis=1)
    theta = np.full(setting.dim, setting.dim**-0.5)
    clients = np.arange(n) % setting.n_clients
    noise = 0.1 * rng.normal(size=n)
    return ArrayProblem(
        contexts,
        clients,
        theta=theta,
        noise=noise,
        sigma=0.1,
        mask=mask,
        n_clients=setting.n_clients,
    )
