"""The compiled engine and its NumPy twin play alike.

Arm, layer, communication, messages and bytes are equal at every pull. Regret and reward, which are
sums of rounded numbers, agree to a relative 1e-9. The twin (fedsuplin/reference) shares no
arithmetic with the engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.reference.twin import run_reference
from fedsuplin_ext import norms

VARIANTS = ("async", "sync", "variance", "robust")
DRAWN = {"variance": "bounded", "robust": "corrupted"}  # else Gaussian
LAW = {"variance": {"R": 0.5}, "robust": {"noise_scale": 0.1, "corruption": 20.0}}
COUNTED = (
    "arms",
    "layers",
    "clients",
    "communication",
    "messages_up",
    "messages_down",
    "bytes_up",
    "bytes_down",
)
SUMMED = ("regret", "reward")
# With the kernels of AVX-512 as AVX2 runs them.
SETS = [*norms.available(), *([norms.SPLIT] if "avx2" in norms.available() else [])]


def law_of(variant: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the noise that the problem draws and the algorithm assumes."""
    law = LAW.get(variant, {"noise_scale": 0.1})
    return {name: parameters.get(name, value) for name, value in law.items()}


def synthetic(
    variant: str,
    *,
    dim: int = 5,
    n_arms: int = 6,
    n_clients: int = 4,
    horizon: int = 600,
    arrival: str | None = None,
    contexts: str = "sphere",
    seed: int = 0,
    **parameters: Any,
) -> tuple[fsl.Algorithm, fsl.SyntheticProblem]:
    """Return an algorithm, and a problem with random contexts and the noise that it assumes."""
    law = law_of(variant, parameters)
    sizes = {"dim": dim, "n_arms": n_arms, "n_clients": n_clients, "horizon": horizon}
    algorithm = fsl.make(variant, **sizes, **(law | parameters))
    drawn = DRAWN.get(variant, "gaussian")
    return algorithm, fsl.SyntheticProblem(
        **sizes, arrival=arrival, contexts=contexts, noise=drawn, seed=seed, **law
    )


def from_arrays(
    variant: str, *, masked: bool, rewards: bool, seed: int = 0, **parameters: Any
) -> tuple[fsl.Algorithm, fsl.ArrayProblem]:
    """Return an algorithm and an ArrayProblem with everything; missing arms hold NaN."""
    rng = np.random.default_rng(seed)
    horizon, n_arms, dim, n_clients = 600, 7, 5, 4
    contexts = rng.standard_normal((horizon, n_arms, dim))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True) * rng.uniform(
        1, 1.5, (horizon, n_arms, 1)
    )
    mask = rng.random((horizon, n_arms)) < 0.5
    mask[np.arange(horizon), rng.integers(n_arms, size=horizon)] = True
    table = contexts @ rng.dirichlet(np.ones(dim)) + 0.1 * rng.standard_normal((horizon, n_arms))
    if masked:
        contexts[~mask] = np.nan
        table[~mask] = np.nan
    source: dict[str, Any] = {"rewards": table}
    if not rewards:
        source = {"theta": np.full(dim, dim**-0.5), "noise": rng.uniform(-0.1, 0.1, horizon)}
        source["corruption"] = (
            -0.5 * (rng.random((horizon, n_arms)) < 0.05) if variant == "robust" else None
        )
    problem = fsl.ArrayProblem(
        contexts,
        rng.permuted(np.tile(np.arange(n_clients), (horizon // n_clients, 1)), axis=1).ravel(),
        mask=mask if masked else None,
        sigma=rng.uniform(0.02, 0.3, horizon),
        **source,
    )
    sizes = {"dim": dim, "n_arms": n_arms, "n_clients": n_clients, "horizon": horizon}
    return fsl.make(variant, **sizes, **(law_of(variant, parameters) | parameters)), problem


def assert_twins(algorithm: fsl.Algorithm, problem: Any, **how: Any) -> fsl.RunResult:
    """Check that engine and twin agree at every pull; return what the engine did."""
    engine = fsl.run(algorithm, problem, record="all", **how)
    twin = run_reference(algorithm, problem)
    assert len(twin.arms) == len(engine.arms) == len(engine.regret)
    differs = [name for name in COUNTED if (getattr(engine, name) != getattr(twin, name)).any()]
    if differs:
        at = min(int((getattr(engine, name) != getattr(twin, name)).argmax()) for name in differs)
        pytest.fail(
            f"{', '.join(differs)} differ, first at pull {at}\n"
            f"{seen('engine', engine, at)}\n{seen('twin', twin, at)}"
        )
    for name in SUMMED:
        np.testing.assert_allclose(
            getattr(engine, name), getattr(twin, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    return engine


def seen(side: str, result: Any, at: int) -> str:
    """Describe one side at a pull: the arm, the layer and all counts."""
    return f"{side:>8}: " + ", ".join(f"{name} {getattr(result, name)[at]}" for name in COUNTED)


# --- long runs: every variant, every arrival pattern that it can take, five seeds ---

ARRIVALS = {variant: ("random", "round-robin", "click-leave") for variant in VARIANTS} | {
    "sync": ("round-robin",)
}
LAWS = (("sphere", "theory"), ("ball", "practical"), ("sphere", "practical"), ("ball", "theory"))
LONG = [
    (
        variant,
        {"arrival": arrival, "contexts": contexts, "preset": preset, "seed": seed, "horizon": 3000}
        | sizes,
    )
    for variant in VARIANTS
    for shift, arrival in enumerate(ARRIVALS[variant])
    for seed in range(5)
    for contexts, preset in [LAWS[(seed + shift) % 4]]
    for sizes in [{"dim": 5 + seed % 4, "n_arms": 6 + seed}]
]

# --- one size or parameter at a time, from small to large ---

ROUGH = {variant: [{"noise_scale": 0.1}, {"noise_scale": 3.0}] for variant in VARIANTS}
ROUGH["variance"] = [{"R": 0.1}, {"R": 3.0}]
CAUTION = {variant: [{"C": C} for C in (1 / 16, 0.3, 1.0, 10.0)] for variant in VARIANTS}
CAUTION["sync"] = [{"D": D} for D in (1e-9, 0.3, 10.0, 1e9)]
BASE = {variant: {"alpha_scale": 0.5, "ridge": 0.01} for variant in VARIANTS}
BASE["robust"]["alpha_scale"] = (
    0.15  # its radius has √d more: at 0.5 the first 600 pulls end in layer 1
)
GRID = [
    (variant, BASE[variant] | change)
    for variant in VARIANTS
    for change in [
        *({"dim": dim, "horizon": 400 if dim == 64 else 600} for dim in (1, 2, 3, 7, 25, 64)),
        *({"n_arms": n_arms} for n_arms in (1, 2, 20, 33)),
        *({"n_clients": n_clients} for n_clients in (1, 3, 20)),
        *({"ridge": ridge, "preset": "theory"} for ridge in (0.01, 5.0)),
        *ROUGH[variant],
        *CAUTION[variant],
        *(
            {"dim": dim, "n_arms": 9, "contexts": "ball", "preset": "theory", "alpha_scale": 0.02}
            for dim in (1, 16)
        ),
        {"dim": 25, "n_arms": 20, "n_clients": 20, "horizon": 2000, "alpha_scale": 0.1},
    ]
]

# --- compositions: other triggers, who syncs, lazy or eager, other policies ---

TIMED = ({"trigger": "never"}, {"trigger": "always"}, {"trigger": "periodic", "every": 7})
MIXED = [
    *(
        (variant, trigger | {"syncs": syncs})
        for variant in ("async", "sync")
        for trigger in TIMED
        for syncs in ("one", "all")
    ),
    ("async", {"lazy": False}),
    ("async", {"lazy": False, "preset": "theory", "alpha_scale": 0.05, "horizon": 2000}),
    ("sync", {"lazy": True}),
    ("sync", {"lazy": True, "D": 0.3, "horizon": 2000}),
    ("async", {"syncs": "all", "trigger": "timed-determinant", "D": 1.0}),
    ("sync", {"syncs": "one", "trigger": "determinant", "C": 0.5}),
    ("sync", {"syncs": "one", "D": 0.5}),
    ("variance", {"syncs": "all", "lazy": False, "trigger": "timed-determinant"}),
    ("robust", {"syncs": "all", "lazy": False, "trigger": "timed-determinant"}),
    ("variance", {"lazy": False}),
    ("robust", {"lazy": False}),
    ("robust", {"corruption": 0.0}),
    ("async", {"noise": "self-normalised"}),
    ("async", {"noise": "self-normalised", "policy": "optimism"}),
    ("sync", {"noise": "self-normalised", "policy": "optimism"}),
    (
        "async",
        {
            "policy": "optimism",
            "noise": "self-normalised",
            "weighting": "corruption",
            "corruption": 5.0,
        },
    ),
]
OFUL = [
    ("oful", {"arrival": arrival, "preset": preset, "horizon": 1500, "seed": seed} | more)
    for seed, arrival in enumerate(("random", "round-robin", "click-leave"))
    for preset, more in (
        ("theory", {}),
        ("practical", {"contexts": "ball", "ridge": 0.01}),
        ("theory", {"alpha_scale": 0.0}),
    )
]


def named(case: Any) -> str | None:
    """Return a test's id: the variant, or what is special about its setting."""
    if isinstance(case, dict):
        return " ".join(f"{key}={value}" for key, value in case.items())
    return None


@pytest.mark.parametrize(("variant", "setting"), LONG, ids=named)
def test_the_twins_agree_at_every_pull_of_a_long_run(variant: str, setting: dict[str, Any]) -> None:
    result = assert_twins(*synthetic(variant, **setting))
    assert result.communication[-1] >= 20


@pytest.mark.parametrize(("variant", "setting"), GRID, ids=named)
def test_the_twins_agree_for_every_size_and_parameter(
    variant: str, setting: dict[str, Any]
) -> None:
    assert_twins(*synthetic(variant, **setting))


@pytest.mark.parametrize(("variant", "setting"), MIXED, ids=named)
def test_the_twins_agree_on_compositions_that_the_paper_does_not_have(
    variant: str, setting: dict[str, Any]
) -> None:
    assert_twins(*synthetic(variant, **setting))


@pytest.mark.parametrize(("variant", "setting"), OFUL, ids=named)
def test_the_twins_agree_on_oful_which_never_communicates(
    variant: str, setting: dict[str, Any]
) -> None:
    result = assert_twins(*synthetic(variant, **setting))
    assert result.communication[-1] == result.messages_up[-1] == result.bytes_down[-1] == 0


@pytest.mark.parametrize("rewards", [False, True], ids=["theta", "rewards"])
@pytest.mark.parametrize("masked", [False, True], ids=["all arms", "masked"])
@pytest.mark.parametrize("variant", [*VARIANTS, "oful"])
def test_the_twins_agree_on_arrays_with_rewards_and_with_rounds_of_fewer_arms(
    variant: str, masked: bool, rewards: bool
) -> None:
    algorithm, problem = from_arrays(variant, masked=masked, rewards=rewards)
    assert_twins(algorithm, problem)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("n_arms", [1, 5, 11, 24])
@pytest.mark.parametrize("variant", [*VARIANTS, "oful"])
def test_the_twins_agree_whichever_kernels_the_cpu_has(
    variant: str, n_arms: int, kernels: str
) -> None:
    assert_twins(
        *synthetic(variant, n_arms=n_arms, dim=9, horizon=400, contexts="ball"), kernels=kernels
    )


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 9, 2), (8, 1, 1), (17, 13, 1)], ids=str)
@pytest.mark.parametrize("variant", [*VARIANTS, "oful"])
def test_the_twins_agree_at_awkward_sizes_whichever_kernels_the_cpu_has(
    variant: str, sizes: tuple[int, int, int], kernels: str
) -> None:
    dim, n_arms, n_clients = sizes
    assert_twins(
        *synthetic(
            variant,
            dim=dim,
            n_arms=n_arms,
            n_clients=n_clients,
            horizon=500,
            alpha_scale=0.2,
            ridge=0.1,
        ),
        kernels=kernels,
    )


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "eager"])
@pytest.mark.parametrize("variant", ["async", "sync"])
def test_the_twins_agree_where_shortcuts_spare_most_widths(
    variant: str, lazy: bool, kernels: str
) -> None:
    """tests/ext/test_shortcuts.py counts how many: here it is three of four."""
    assert_twins(
        *synthetic(variant, dim=25, n_arms=20, horizon=2000, alpha_scale=0.1, lazy=lazy),
        kernels=kernels,
    )


@pytest.mark.parametrize("chunk", [1, 7, 250])
@pytest.mark.parametrize("variant", ["async", "sync"])
def test_the_twins_agree_however_the_engine_cuts_the_stream(variant: str, chunk: int) -> None:
    assert_twins(*synthetic(variant), chunk=chunk)


@pytest.mark.parametrize("variant", VARIANTS)
def test_equal_widths_and_estimates_go_to_the_lowest_arm_in_both_twins(variant: str) -> None:
    """With the same orthonormal arms in every round and no noise, exact arithmetic has ties."""
    dim, n_clients, horizon = 6, 2, 600
    algorithm = fsl.make(
        variant, dim=dim, n_arms=dim, n_clients=n_clients, horizon=horizon, alpha_scale=0.3
    )
    contexts = np.repeat(np.eye(dim)[None], horizon, axis=0)
    problem = fsl.ArrayProblem(
        contexts, np.arange(horizon) % n_clients, theta=np.full(dim, 0.3), sigma=0.1
    )
    assert assert_twins(algorithm, problem).arms[0] == 0


@pytest.mark.parametrize(
    ("variant", "setting"), [("async", {}), ("robust", {"corruption": 0.0})], ids=named
)
def test_a_trigger_that_is_met_exactly_fires_in_neither_twin(
    variant: str, setting: dict[str, Any]
) -> None:
    """A unit context on A = I makes the ratio of determinants exactly 2 = 1 + C at first."""
    result = assert_twins(*synthetic(variant, ridge=1.0, C=1.0, **setting))
    firsts = np.unique(result.clients, return_index=True)[1]
    assert not np.diff(result.communication, prepend=0)[firsts].any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_any_radius_the_best_estimate_stays_in_both_twins(variant: str) -> None:
    """With widths of 0 the best arm meets every inequality of the screening with equality."""
    result = assert_twins(*synthetic(variant, alpha_scale=0.0))
    assert result.layer_pulls[-1] == 600


def as_wide_as_its_target(dim: int) -> fsl.Algorithm | None:
    """Return an algorithm with α_0 = w̄_0 bit for bit, or None if rounding prevents it."""
    parameters = {
        "dim": dim,
        "n_arms": 1,
        "n_clients": 1,
        "horizon": 2,
        "ridge": 1.0,
        "trigger": "never",
    }
    plain = fsl.make("async", **parameters, alpha_scale=1.0)
    scale = plain.target_widths[0] / plain.radii[0]
    made = [
        fsl.make("async", **parameters, alpha_scale=each)
        for each in (scale, np.nextafter(scale, 0), np.nextafter(scale, 99))
    ]
    return next((each for each in made if each.radii[0] == each.target_widths[0]), None)


def test_an_arm_just_as_wide_as_its_target_is_not_wide_in_either_twin() -> None:
    """A unit context on A = I has the width α: the first pull passes layer 0."""
    algorithm = next(filter(None, map(as_wide_as_its_target, range(3, 30))))
    dim = algorithm.dim
    problem = fsl.ArrayProblem(np.eye(dim)[None, :1].repeat(2, axis=0), [0, 0], theta=np.zeros(dim))
    assert assert_twins(algorithm, problem).layers[0] > 0


class Heard:
    """A weighting and a trigger that remember their arguments."""

    def __init__(self) -> None:
        self.norms: list[tuple[float, float]] = []
        self.gains: list[tuple[float, float]] = []

    def weight(self, norm: float, sigma: float) -> float:
        self.norms.append((norm, sigma))
        return min(1.0, 0.4 / norm)

    def fires(self, gain: float, elapsed: float) -> bool:
        self.gains.append((gain, elapsed))
        return elapsed >= 5


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "eager"])
@pytest.mark.parametrize("variant", ["async", "sync"])
def test_rules_get_the_same_arguments_from_both_twins(variant: str, lazy: bool) -> None:
    """Weights, triggers and arms could hide a small error, so the arguments are compared."""
    outcomes = []
    for play in (fsl.run, run_reference):
        heard = Heard()
        algorithm, problem = synthetic(
            variant, weighting=heard, trigger=heard, lazy=lazy, horizon=400
        )
        play(algorithm, problem)
        outcomes.append(heard)
    engine, twin = outcomes
    assert len(engine.norms) == len(engine.gains) == 400
    np.testing.assert_allclose(engine.norms, twin.norms, rtol=1e-11)
    np.testing.assert_allclose(engine.gains, twin.gains, rtol=1e-9, atol=1e-13)


def test_the_adversary_spends_its_whole_budget_and_no_more_in_both_twins() -> None:
    algorithm, problem = synthetic("robust", horizon=3000)
    result = assert_twins(algorithm, problem)
    chunk = problem.stream(3000, None).take(3000)
    honest = (
        norms.mean_rewards(chunk.contexts, chunk.theta)[np.arange(3000), result.arms] + chunk.noise
    )
    changed = np.abs(np.diff(result.reward, prepend=0.0) - honest)
    assert changed.sum() == pytest.approx(20.0)
    assert np.flatnonzero(changed > 1e-9)[-1] < 300


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_runs_compared_play_three_layers_or_more_and_communicate(variant: str) -> None:
    settings = [setting for name, setting in LONG + GRID if name == variant]
    results = [fsl.run(*synthetic(variant, **setting)) for setting in settings]
    deep = [
        result
        for result in results
        if np.count_nonzero(result.layer_pulls) >= 3 and result.communication[-1] >= 10
    ]
    assert len(deep) >= 10
