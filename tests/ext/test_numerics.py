"""Nothing drifts or overflows silently: results are right, or there is an error.

The reference is rational arithmetic (bench/checks/drift.py), which does not round.
"""

from __future__ import annotations

import runpy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, NumericalError
from fedsuplin.plugin import Setting
from fedsuplin_ext.loop import Engine
from fedsuplin_ext.state import restore, state_of

DRIFT = runpy.run_path(str(Path(__file__).parents[2] / "bench/checks/drift.py"))
EPSILON = np.finfo(float).eps
NEVER = {"trigger": "never"}
WAYS = {
    "lazy": NEVER,
    "merged": {"trigger": "always"},
    "eager": NEVER | {"lazy": False},
    "async": {},
}


# --- drift ---


@pytest.mark.parametrize("policy", DRIFT["POLICIES"])
def test_after_many_pulls_all_that_the_engine_keeps_agrees_with_exact_arithmetic(policy):
    worst = DRIFT["measure"](policy, 100_000)
    assert {"inverse", "theta_hat", "log_det", "noticed"} <= set(worst)
    assert max(worst.values()) <= DRIFT["BOUND"] == 1e-9


def test_the_drift_command_prints_what_it_measured(capsys):
    assert DRIFT["main"](pulls=3000, policies=["async", "variance"]) == 0
    assert "2 of 2 within 1e-09" in capsys.readouterr().out


def played(algorithm, problem, n, start=0, engine=None):
    """Return the engine after pulls `start` to n, and the status with which it ended."""
    stream = problem.stream(problem.horizon, None)
    if start:
        stream.take(start)
    engine = Engine(algorithm) if engine is None else engine
    return engine, engine.play(stream.take(n - start))[0]


def inverses_of(state):
    """Return views of the inverses of eager clients in dimension 3."""
    numbers, at, found = state["pending_numbers"], 0, []
    for n, dense, _, _ in state["pending_marks"]:
        at += 3 * (3 if dense else n)  # ΔA or its vectors come before the inverse
        found.append(numbers[at : at + 9].reshape(3, 3))
        at += 9 + 3 + 3  # Δb and θ̂ after it
    assert at == len(numbers)
    return found


def unsettled(share, lazy):
    """Return an engine whose inverses were changed by this share of their largest entry."""
    sizes = {"dim": 3, "n_arms": 4, "n_clients": 1}
    problem = fsl.SyntheticProblem(**sizes, seed=0, horizon=2000)
    algorithm = fsl.make(
        "async", **sizes, horizon=2000, lazy=lazy, trigger="always" if lazy else "never"
    )
    state = state_of(played(algorithm, problem, 300)[0])
    for inverse in list(state["snapshot_numbers"][:, :3]) if lazy else inverses_of(state):
        inverse += share * np.abs(inverse).max() * np.eye(3)
    engine = Engine(algorithm)
    restore(engine, state)
    return played(algorithm, problem, 2000, 300, engine)


@pytest.mark.parametrize("lazy", [True, False])
def test_an_inverse_that_has_drifted_is_detected(lazy):
    engine, status = unsettled(0.0, lazy)
    assert status == "done" and 0 < engine.drift < 1e-13
    engine, status = unsettled(1e-6, lazy)
    assert status == "done" and 1e-8 < engine.drift < 1e-5
    engine, status = unsettled(0.1, lazy)
    assert status == "not positive definite" and engine.drift > 1e-4


def test_a_result_has_the_drift_and_a_resumed_run_keeps_it(tmp_path):
    problem = fsl.SyntheticProblem(4, 4, 2, seed=0)
    whole = fsl.run("oful", problem, horizon=2000)
    assert 0 < whole.drift < 1e-13
    assert fsl.RunResult.load(whole.save(tmp_path / "run.npz")).drift == whole.drift
    file = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1900}
    kept = fsl.run("oful", problem, horizon=2000, **file)
    again = fsl.run(
        "oful", problem, horizon=2000, checkpoint=tmp_path / "run.ckpt"
    )  # plays nothing: all of it is remembered
    assert kept.drift == again.drift == whole.drift


@pytest.mark.parametrize("how", ["lazy", "eager"])
def test_a_gain_of_a_billionth_keeps_its_digits(how):
    """Contexts of length 1e-8 gain 1e-16 per pull, far below the rounding of two ln det."""
    rng = np.random.default_rng(0)
    contexts = 1e-8 * unit_vectors(rng, 1500, 1, 3)
    problem = fsl.ArrayProblem(contexts, np.zeros(1500, int), theta=[0.3, -0.5, 0.2])
    algorithm = fsl.make(
        "async", dim=3, n_arms=1, n_clients=1, horizon=1500, ridge=1e-3, **WAYS[how]
    )
    engine, status = played(algorithm, problem, 1500)
    xs = [[Fraction(float(value)) for value in x] for x in contexts[:, 0]]
    gram = [
        [
            sum(x[i] * x[j] for x in xs) + (i == j) * Fraction(algorithm.setting.ridge)
            for j in range(3)
        ]
        for i in range(3)
    ]
    (a, b, c), (_, d, e), (_, _, f) = gram
    determinant = a * (d * f - e * e) - b * (b * f - c * e) + c * (b * e - c * d)
    expected = DRIFT["compute_exact_log"](determinant / Fraction(algorithm.setting.ridge) ** 3)
    assert status == "done"
    assert engine.client_layer(0, algorithm.n_layers - 1)["gain"] == pytest.approx(
        expected, rel=1e-9, abs=0
    )


# --- ill-conditioned streams ---

HORIZON = 600
ENDS = (1, 2, 5, 40, 300, HORIZON)


def unit_vectors(rng, *shape):
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def one_direction(rng):
    return np.broadcast_to(unit_vectors(rng, 3), (HORIZON, 3, 3))


STREAMS = {
    "random": lambda rng: unit_vectors(rng, HORIZON, 3, 3),
    "all equal": one_direction,
    "nearly collinear": lambda rng: (
        (one_direction(rng) + 1e-8 * unit_vectors(rng, HORIZON, 3, 3)) / (1 + 1e-8)
    ),
    "of length 1e-8": lambda rng: 1e-8 * unit_vectors(rng, HORIZON, 3, 3),
    "along the axes": lambda rng: np.eye(3)[rng.permuted(np.tile(range(3), (HORIZON, 1)), axis=1)],
    "zero": lambda rng: np.zeros((HORIZON, 3, 3)),
}
WEIGHTS = {
    "1": [1.0],
    "1e-12": [1e-12],
    "1e12": [1e12],
    "1e-12 to 1e12": 10.0 ** np.random.default_rng(3).uniform(-12, 12, HORIZON),
    "growing": np.geomspace(1e-12, 1e12, HORIZON),
    "0": [0.0],
}
RIDGES = (1.0, 1e-6, 1e-100, 1e100)


class Listed:
    """A weighting that returns the weights of a list in turn."""

    def __init__(self, weights):
        self.weights, self.n = weights, 0

    def __repr__(self):
        return f"Listed({len(self.weights)})"  # the same in every process: it names a test

    def weight(self, norm, sigma):
        self.n += 1
        return float(self.weights[(self.n - 1) % len(self.weights)])


def assert_exact(layer, ridge):
    """Check that P, θ̂, ln det and gain are as exact as doubles allow.

    The tolerance is a share of √(P_ii P_jj): the rounding of d terms, times the 1000 that a step
    may cancel, plus A_ii P_ii, by which a Gram matrix magnifies it, times √256 for the steps
    between two factorisations.
    """
    gram, moment = layer["gram"] + layer["delta_gram"], layer["moment"] + layer["delta_moment"]
    for name, a, b in (
        ("inverse", layer["gram"], layer["moment"]),
        ("inverse_with_delta", gram, moment),
    ):
        inverse, theta_hat, determinant = DRIFT["solve_exactly"](
            DRIFT["convert_to_fractions"](a), DRIFT["convert_to_fractions"](b)
        )
        scale = np.sqrt(np.diag(inverse))
        share = len(a) * EPSILON * (1000 + 16 * (np.diag(a) * np.diag(inverse)).max())
        assert share < 0.1  # else this says nothing
        if name in layer:
            assert (np.abs(layer[name] - inverse) <= share * np.outer(scale, scale)).all()
        estimate = {"inverse": "theta_hat", "inverse_with_delta": "theta_hat_with_delta"}[name]
        if estimate in layer:
            assert (
                np.abs(layer[estimate] - theta_hat) <= share * scale * (scale @ np.abs(b))
            ).all()
        whole = DRIFT["compute_exact_log"](determinant / Fraction(ridge) ** len(a))
        known = layer["log_det"] + (layer["gain"] if name == "inverse_with_delta" else 0.0)
        assert abs(known - whole) <= 3 * share + 1e-12 * abs(whole)


def assert_sound(engine):
    assert all(np.isfinite(value) for value in engine.totals_now.values())
    assert np.isfinite(engine.drift) and np.isfinite(engine.client_regret).all()


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("stream", STREAMS)
def test_an_ill_conditioned_stream_gives_right_answers_or_an_error(stream, weights, ridge):
    contexts = STREAMS[stream](np.random.default_rng(0))
    noise = 0.1 * np.random.default_rng(1).standard_normal(HORIZON)
    problem = fsl.ArrayProblem(
        contexts, np.zeros(HORIZON, int), theta=[0.3, -0.5, 0.2], noise=noise
    )
    for how in WAYS.values():
        weighting = Listed(WEIGHTS[weights])
        algorithm = fsl.make(
            "async",
            dim=3,
            n_arms=3,
            n_clients=1,
            horizon=HORIZON,
            ridge=ridge,
            weighting=weighting,
            **how,
        )
        engine, start = None, 0
        for end in ENDS:
            engine, status = played(algorithm, problem, end, start, engine)
            assert_sound(engine)
            assert status in ("done", "not positive definite")
            if status != "done":
                break
            for s in np.flatnonzero(engine.layer_pulls):
                assert_exact(engine.client_layer(0, s), ridge)
            start = end


EASY = [(stream, "1", 1.0) for stream in STREAMS]
EASY += [
    ("random", weights, ridge) for weights in ("1", "1e-12", "0") for ridge in (1.0, 1e-6, 1e100)
]
EASY += [("along the axes", weights, ridge) for weights in WEIGHTS for ridge in RIDGES]
EASY += [
    (stream, weights, 1e-6)
    for stream in ("all equal", "nearly collinear", "zero")
    for weights in ("1", "0")
]


@pytest.mark.parametrize(("stream", "weights", "ridge"), EASY)
def test_hard_streams_that_are_solvable_give_no_error(stream, weights, ridge):
    problem = fsl.ArrayProblem(
        STREAMS[stream](np.random.default_rng(0)), np.zeros(HORIZON, int), theta=[0.3, -0.5, 0.2]
    )
    for how in WAYS.values():
        result = fsl.run("async", problem, ridge=ridge, weighting=Listed(WEIGHTS[weights]), **how)
        assert result.n_pulls == HORIZON


def test_too_little_precision_ends_the_run_with_an_error():
    contexts = STREAMS["all equal"](np.random.default_rng(0))
    problem = fsl.ArrayProblem(contexts, np.zeros(HORIZON, int), theta=[0.3, -0.5, 0.2])
    for how in WAYS.values():
        with pytest.raises(
            NumericalError, match="definite, or hardly, .* at pull 0 .*larger ridge or weights"
        ) as caught:
            fsl.run("async", problem, ridge=1e-6, weighting=Listed([1e12]), **how)
        assert caught.value.result.n_pulls == 0


# --- numbers at the ends of what a double can hold ---

EVERYONE = (
    "async",
    "sync",
    "variance",
    "robust",
    "oful",
    "fedlinucb",
    "dislinucb",
    "async-linucb",
    "greedy",
    "uniform",
)


def arrays(scale=1.0, **source):
    rng = np.random.default_rng(0)
    contexts = scale * unit_vectors(rng, 400, 4, 3)
    if "rewards" in source:
        source["rewards"] = source["rewards"] * rng.random((400, 4))
    else:
        source["theta"] = source.get("theta", 1.0) * np.array([0.3, -0.4, 0.5])
    return fsl.ArrayProblem(contexts, np.arange(400) % 2, **source)


def assert_finite(result):
    for name in ("regret", "uniform_regret", "reward", "client_regret", "drift"):
        assert np.isfinite(getattr(result, name)).all(), name
    assert (np.diff(result.regret) >= 0).all() and (np.diff(result.communication) >= 0).all()


@pytest.mark.parametrize(
    "source",
    [
        {"rewards": 1e300},
        {"rewards": 1e-300},
        {"theta": 1e300},
        {"theta": 0.0},
        {"noise": np.full(400, 1e-300), "sigma": 1e-300},
        {"noise": np.full(400, 1e300), "sigma": 1e300},
        {"sigma": 0.0},
        {"scale": 0.0},
        {"scale": 1e-8},
        {"scale": 1e-160},
        {"scale": 1e-310},
        {"corruption": np.full(400, 1e300)},
    ],
    ids=lambda source: " ".join(source),
)
@pytest.mark.parametrize("variant", EVERYONE)
def test_extreme_data_give_finite_results(variant, source):
    for preset in ("practical", "theory"):
        assert_finite(fsl.run(variant, arrays(**source), preset=preset, record="all"))


@pytest.mark.parametrize(
    ("variant", "parameters"),
    [
        *((variant, {"ridge": ridge}) for variant in EVERYONE[:-1] for ridge in (1e-6, 1e100)),
        *(
            (variant, {"alpha_scale": scale})
            for variant in EVERYONE[:-2]
            for scale in (0.0, 1e-300, 1e300)
        ),
        *((variant, {"theta_bound": bound}) for variant in EVERYONE[:-2] for bound in (0.0, 1e300)),
        *(
            (variant, {"delta": delta})
            for variant in EVERYONE[:-2]
            for delta in (1e-300, 1 - 1e-16)
        ),
        *(
            (variant, {"noise_scale": scale})
            for variant in ("async", "sync", "robust", "oful")
            for scale in (0.0, 1e300)
        ),
        *(("robust", {"corruption": corruption}) for corruption in (1e-300, 1e300)),
        *(("variance", {"R": R}) for R in (1e-300, 1e100)),
        *(("async", {"C": C}) for C in (0.0, 1e300)),
        *(("sync", {"D": D}) for D in (1e-300, 1e300)),
        ("async-linucb", {"gamma_u": 1e300}),
        ("async", {"weighting": Listed([0.0])}),
    ],
    ids=str,
)
def test_extreme_parameters_give_finite_results(variant, parameters):
    assert_finite(fsl.run(variant, arrays(), record="all", **parameters))
    assert_finite(fsl.run(variant, arrays(scale=1e-8), record="all", **parameters))


OVERFLOWING = [
    {"rewards": 1e307},
    {"rewards": 1.7e308},
    {"theta": 1.7e308},
    {"noise": np.full(400, 1e307)},
]


@pytest.mark.parametrize("source", OVERFLOWING, ids=lambda source: " ".join(source))
@pytest.mark.parametrize("variant", EVERYONE)
def test_sums_that_overflow_end_the_run_and_keep_the_rows_before(variant, source):
    with pytest.raises(NumericalError, match="no longer finite, at pull") as caught:
        fsl.run(variant, arrays(**source), record="all")
    assert_finite(caught.value.result)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Setting(3, 2, 1, 10, ridge=1e-300), "ridge must be from 1e-100 to 1e.100"),
        (
            lambda: fsl.make("async", dim=3, n_arms=2, n_clients=1, horizon=10, ridge=1e300),
            "ridge must be from 1e-100",
        ),
        (
            lambda: arrays(corruption=np.full(400, 1e308)),
            "corruption adds up to more than double precision can hold",
        ),
    ],
)
def test_unusable_numbers_are_refused_before_a_run_begins(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_live_client_reports_that_its_sums_overflow():
    client = fsl.Client(fsl.make("sync", dim=2, n_arms=2, n_clients=1, horizon=100))
    with pytest.raises(NumericalError, match="no longer finite"):
        for _ in range(100):
            client.observe(client.select(np.eye(2)), 1e308)
