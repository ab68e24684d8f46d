"""Runs: the same bits for every chunk size, recording, memory, Ctrl-C, and the paper's setting."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InterruptedRun
from fedsuplin.reference.twin import run_reference
from fedsuplin_ext.loop import COUNTS, SUMS

ARRAYS = (
    "pulls",
    *SUMS,
    *COUNTS,
    "arms",
    "layers",
    "clients",
    "client_regret",
    "client_pulls",
    "layer_pulls",
)
VARIANTS = ["async", "sync", "variance", "robust", "oful"]


def problem_for(variant, seed=0, **keywords):
    noise = {
        "variance": {"noise": "bounded", "R": 0.5},
        "robust": {"noise": "corrupted", "corruption": 20.0},
    }
    return fsl.SyntheticProblem(7, 9, 4, seed=seed, **(noise.get(variant, {}) | keywords))


def assert_same_bits(one, other):
    for name in ARRAYS:
        np.testing.assert_array_equal(
            getattr(one, name), getattr(other, name), err_msg=name, strict=True
        )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("contexts", ["sphere", "ball"])
def test_a_run_is_the_same_in_one_chunk_or_a_thousand(variant, contexts):
    problem = problem_for(variant, contexts=contexts)
    whole = fsl.run(variant, problem, horizon=3000, record="all", chunk=3000)
    assert_same_bits(whole, fsl.run(variant, problem, horizon=3000, record="all", chunk=3))
    assert_same_bits(whole, fsl.run(variant, problem, horizon=3000, record="all", chunk=1))
    assert_same_bits(whole, fsl.run(variant, problem, horizon=3000, record="all"))


def test_runs_on_many_threads_give_the_bits_of_one_thread():
    jobs = [(variant, seed) for variant in VARIANTS for seed in range(4)]

    def one(job):
        return fsl.run(job[0], problem_for(*job), horizon=4000, record="all")

    alone = [one(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(one, jobs))
    for first, second in zip(alone, together, strict=True):
        assert_same_bits(first, second)


def test_one_algorithm_serves_many_runs_at_once():
    algorithm = fsl.make("async", dim=7, n_arms=9, n_clients=4, horizon=4000)
    expected = [fsl.run(algorithm, problem_for("async", seed), record="all") for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(
                lambda seed: fsl.run(algorithm, problem_for("async", seed), record="all"), range(4)
            )
        )
    for first, second in zip(expected, found, strict=True):
        assert_same_bits(first, second)


def test_the_threads_of_blas_do_not_change_a_bit():
    """d = 256 is large enough for a threaded factorisation."""
    script = textwrap.dedent("""
        import fedsuplin as fsl, hashlib
        problem = fsl.SyntheticProblem(256, 5, 3, seed=0)
        constants = {"D": 0.5, "alpha_scale": 0.01}
        r = fsl.run("sync", problem, horizon=240, record="all", **constants)
        assert r.communication[-1] > 0
        found = r.regret.tobytes() + r.arms.tobytes() + r.layers.tobytes()
        print(hashlib.sha256(found).hexdigest())
    """)
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"OPENBLAS_NUM_THREADS": n},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in "12"
    ]
    assert found[0] == found[1]


def test_another_seed_gives_another_run():
    assert (
        fsl.run("async", problem_for("async", 0), horizon=500).regret[-1]
        != fsl.run("async", problem_for("async", 1), horizon=500).regret[-1]
    )


@pytest.mark.parametrize("record", ["log", 7, 1])
def test_thinned_recording_has_rows_of_the_full_one(record):
    full = fsl.run("async", problem_for("async"), horizon=1000, record="all")
    thin = fsl.run("async", problem_for("async"), horizon=1000, record=record)
    assert thin.pulls[-1] == 1000
    for name in (*SUMS, *COUNTS):
        np.testing.assert_array_equal(getattr(thin, name), getattr(full, name)[thin.pulls - 1])
    assert thin.arms is None and thin.layers is None and thin.clients is None


def test_every_nth_pull_and_the_last_are_recorded():
    result = fsl.run("async", problem_for("async"), horizon=10, record=4)
    assert result.pulls.tolist() == [4, 8, 10]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_totals_agree_with_each_other(variant):
    result = fsl.run(variant, problem_for(variant), horizon=2000, record="all")
    assert result.client_regret.sum() == pytest.approx(result.regret[-1])
    assert result.client_pulls.tolist() == np.bincount(result.clients, minlength=4).tolist()
    assert (
        result.layer_pulls.tolist()
        == np.bincount(result.layers, minlength=len(result.layer_pulls)).tolist()
    )
    assert (np.diff(result.regret) >= 0).all()
    assert (result.messages_up >= result.communication / max(1, len(result.layer_pulls))).all()


def test_uniform_regret_is_what_uniform_play_loses():
    rng = np.random.default_rng(0)
    rewards = rng.random((500, 6))
    contexts = rng.standard_normal((500, 6, 3)) / 10
    result = fsl.run(
        "async", fsl.ArrayProblem(contexts, rng.integers(0, 2, 500), rewards=rewards), record="all"
    )
    expected = np.cumsum(rewards.max(axis=1) - rewards.mean(axis=1))
    np.testing.assert_allclose(result.uniform_regret, expected)
    np.testing.assert_allclose(result.reward, np.cumsum(rewards[np.arange(500), result.arms]))
    np.testing.assert_allclose(
        result.regret, np.cumsum(rewards.max(axis=1) - rewards[np.arange(500), result.arms])
    )


def test_random_arrival_is_fair_and_ordered_by_the_seed():
    first, second = (
        fsl.run("async", problem_for("async", seed, arrival="random"), horizon=1001, record="all")
        for seed in (0, 1)
    )
    assert sorted(first.client_pulls.tolist()) == [250, 250, 250, 251]
    assert (first.clients != second.clients).any()
    assert (
        len(set(map(tuple, first.clients[:1000].reshape(-1, 4).tolist()))) > 50
    )  # no pattern repeats itself


def test_with_click_leave_each_client_plays_all_its_pulls_in_a_row():
    clients = fsl.run(
        "async", problem_for("async", arrival="click-leave"), horizon=1000, record="all"
    ).clients
    np.testing.assert_array_equal(clients, np.repeat(np.arange(4), 250))


def test_the_adversary_spends_its_budget_and_no_more():
    problem = problem_for("robust", noise_scale=0.0)
    result = fsl.run("robust", problem, horizon=2000, record="all")
    best = result.regret[-1] + result.reward[-1]  # Σ best − Σ chosen + Σ (chosen + corruption)
    clean = fsl.run(
        "robust", problem_for("robust", noise_scale=0.0, corruption=0.0), horizon=2000, record="all"
    )
    spent = (clean.regret[-1] + clean.reward[-1]) - best
    assert 0 < abs(spent) <= 20.0 + 1e-9
    stream = problem.stream(2000, None)
    chunk = stream.take(2000)
    chosen = np.einsum("td,d->t", chunk.contexts[np.arange(2000), :, result.arms], problem.theta)
    added = np.diff(result.reward, prepend=0) - chosen
    assert np.abs(added).sum() == pytest.approx(20.0)


def test_bounded_noise_keeps_its_bound_and_its_variance():
    from fedsuplin_plugins.noise import Bounded

    noise, sigma = Bounded(R=0.5, sigma_low=0.1, sigma_high=0.3).draw(
        np.random.default_rng(0), 400_000
    )
    assert np.abs(noise).max() <= 0.5 and sigma.min() >= 0.1 and sigma.max() <= 0.3
    for low in (0.1, 0.2):
        near = (sigma > low) & (sigma < low + 0.1)
        assert (noise[near] ** 2).mean() == pytest.approx((sigma[near] ** 2).mean(), rel=0.03)


def test_memory_does_not_grow_with_the_horizon():
    def peak(horizon):
        tracemalloc.start()
        fsl.run("async", fsl.SyntheticProblem(4, 4, 3, seed=0), horizon=horizon)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(200_000)  # plugins are loaded once
    assert abs(peak(2_000_000) - peak(200_000)) < 100_000  # bytes; one byte a pull would be 1.8 MB


@pytest.fixture
def ctrl_c():
    """Return a progress callback that sends Ctrl-C 0.3 s after the first chunk, and remembers when.

    A process started in the background ignores Ctrl-C; the handler set here does not.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    pressed = []

    def press():
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, press)

    def progress(done, total):
        if not timer.is_alive() and not pressed:
            timer.start()

    progress.pressed = pressed
    yield progress
    timer.cancel()
    signal.signal(signal.SIGINT, before)


@pytest.mark.posix
@pytest.mark.measures("a second is short for checked code")
@pytest.mark.parametrize(("sizes", "horizon"), [((4, 4, 2), 10**8), ((200, 300, 2), 10**6)])
def test_ctrl_c_ends_a_run_within_a_second_with_what_was_recorded(sizes, horizon, ctrl_c):
    problem = fsl.SyntheticProblem(*sizes, seed=0)
    with pytest.warns(InterruptedRun):
        result = fsl.run("async", problem, horizon=horizon, progress=ctrl_c)
    assert time.perf_counter() - ctrl_c.pressed[0] < 1
    assert not result.complete and 0 < result.n_pulls < horizon
    assert len(result.regret) == len(result.pulls) > 0 and result.pulls[-1] == result.n_pulls
    assert result.regret[-1] == pytest.approx(result.client_regret.sum())


@pytest.mark.posix
def test_the_result_of_an_interrupted_run_is_the_beginning_of_the_whole(ctrl_c):
    problem = fsl.SyntheticProblem(4, 4, 3, seed=0)
    with pytest.warns(InterruptedRun):
        part = fsl.run("async", problem, horizon=10**7, record="all", progress=ctrl_c)
    n = part.n_pulls
    assert len(part.arms) == len(part.clients) == len(part.regret) == n
    algorithm = fsl.make("async", dim=4, n_arms=4, n_clients=3, horizon=10**7, noise_scale=0.1)
    whole = run_reference(algorithm, Prefix(problem, 10**7), horizon=300)
    for name in ("arms", "layers", "clients", "communication"):
        np.testing.assert_array_equal(getattr(part, name)[:300], getattr(whole, name))
    assert np.bincount(part.clients, minlength=3).tolist() == part.client_pulls.tolist()


class Prefix:
    """A problem played as if the run were `horizon` long, since arrivals depend on the length."""

    def __init__(self, problem, horizon):
        self._problem, self._horizon = problem, horizon

    def __getattr__(self, name):
        return getattr(self._problem, name)

    def stream(self, horizon, arrival):
        return self._problem.stream(self._horizon, arrival)


def test_progress_is_called_between_chunks():
    seen = []
    fsl.run(
        "async",
        problem_for("async"),
        horizon=1000,
        chunk=400,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(400, 1000), (800, 1000), (1000, 1000)]


# --- the paper's setting ---

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20, "noise_scale": 0.1}


def test_theory_plays_every_pull_in_the_first_two_layers():
    result = fsl.run(
        "async", fsl.SyntheticProblem(**PAPER, seed=0), horizon=40_000, preset="theory"
    )
    assert result.layer_pulls[2:].sum() == 0
    assert result.layer_pulls[:2] == pytest.approx([35_470, 4_530], rel=0.02)
    assert result.communication[-1] == pytest.approx(24_250, rel=0.02)
    assert result.regret[-1] == pytest.approx(
        result.uniform_regret[-1], rel=0.05
    )  # it learns nothing at this horizon
    assert result.departures == ()


@pytest.mark.parametrize("variant", ["async", "sync", "variance", "robust"])
def test_the_practical_preset_has_less_than_a_twentieth_of_uniform_regret(variant):
    noise = {
        "variance": {"noise": "bounded", "R": 0.1},
        "robust": {"noise": "corrupted", "corruption": 10.0, "noise_scale": 0.1},
    }
    sizes = {key: PAPER[key] for key in ("dim", "n_arms", "n_clients")}
    for seed in range(3):
        problem = fsl.SyntheticProblem(
            **sizes, **noise.get(variant, {"noise_scale": 0.1}), seed=seed
        )
        result = fsl.run(variant, problem, horizon=40_000)
        assert result.regret[-1] < 0.05 * result.uniform_regret[-1]
        assert result.departures  # practice leaves the theorem, and says so


def test_the_theory_beats_uniform_play_at_the_horizon_it_asks_for():
    sizes = {"dim": 4, "n_arms": 4, "n_clients": 2}
    problem = fsl.SyntheticProblem(**sizes, noise_scale=0.1, seed=0)
    short = fsl.run("async", problem, horizon=2000, preset="theory", noise_scale=0.1)
    loss = short.uniform_regret[-1] / 2000
    needed = fsl.make(
        "async", **sizes, horizon=2000, preset="theory", noise_scale=0.1
    ).needed_horizon(loss)
    long = fsl.run("async", problem, horizon=needed, preset="theory", noise_scale=0.1)
    assert long.regret[-1] < 0.8 * long.uniform_regret[-1]


def test_uniform_play_chooses_among_the_arms_that_are_there():
    rng = np.random.default_rng(0)
    mask, rewards = rng.random((60, 5)) < 0.6, rng.random((60, 5))
    mask[:, 3] |= ~mask.any(axis=1)
    result = fsl.run(
        "async",
        fsl.ArrayProblem(rng.random((60, 5, 2)) / 2, np.zeros(60, int), rewards=rewards, mask=mask),
        record="all",
    )
    lost = [row[there].max() - row[there].mean() for row, there in zip(rewards, mask, strict=True)]
    np.testing.assert_allclose(result.uniform_regret, np.cumsum(lost), rtol=1e-12)
