"""Chunks drawn by a second thread: the same results, errors and checkpoints as without it."""

from __future__ import annotations

import dataclasses
import runpy
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, PluginError
from fedsuplin.plugin import Chunk, Problem, Stream
from fedsuplin.simulation import drawing
from fedsuplin.study import comparison, sweeps

ROOT = Path(__file__).parents[2]
TIMES = ("loop_time", "wall_time", "cpu_time")
SIZES = {"dim": 3, "n_arms": 4, "n_clients": 2}


def make_arrays():
    """Return a problem from arrays with everything that a chunk can have."""
    rng = np.random.default_rng(0)
    return fsl.ArrayProblem(
        rng.random((600, 4, 3)) / 2,
        rng.integers(0, 2, 600),
        rewards=rng.random((600, 4)),
        corruption=rng.random((600, 4)) / 100,
        mask=np.arange(2400).reshape(600, 4) % 5 > 0,
    )


PROBLEMS = {
    "sphere": lambda: fsl.SyntheticProblem(**SIZES, seed=1),
    "ball": lambda: fsl.SyntheticProblem(**SIZES, contexts="ball", seed=1),
    "corrupted": lambda: fsl.SyntheticProblem(**SIZES, noise="corrupted", corruption=5.0, seed=1),
    "fixed arms": lambda: fsl.FixedArmsProblem(**SIZES, own_thetas=True, seed=1),
    "arrays": make_arrays,
    "digits": lambda: fsl.DigitsProblem(n_clients=2, seed=1),
}


def assert_same(one, other):
    """Assert that two results are equal in all columns, but for the times."""
    for field in dataclasses.fields(one):
        if field.name not in TIMES:
            found, expected = getattr(one, field.name), getattr(other, field.name)
            np.testing.assert_equal(found, expected, err_msg=field.name)


def list_drawing_threads():
    """Return the threads that draw chunks."""
    return [each for each in threading.enumerate() if each.name.startswith("fedsuplin-drawing")]


class Coins(Stream):
    """A plugin's stream, which notes the thread of each call, and may raise at one."""

    def __init__(self, problem):
        self.problem, self.rng = problem, np.random.default_rng(3)
        self.may_prefetch = problem.may_prefetch

    def take(self, n):
        names, fails_at = self.problem.names, self.problem.fails_at
        names.append(threading.current_thread().name)
        self.problem.errstates.append(np.geterr()["under"])
        if len(names) == fails_at:
            raise OSError("the disk is gone")
        return Chunk.of(self.rng.random((n, 3, 2)) / 2, np.zeros(n), theta=[0.5, -0.5])


class CoinProblem(Problem):
    dim, n_arms, n_clients = 2, 3, 1

    def __init__(self, may_prefetch, fails_at=None):
        self.may_prefetch, self.fails_at = may_prefetch, fails_at
        self.names, self.errstates = [], []

    def stream(self, horizon, arrival):
        return Coins(self)


# --- the same results ---


@pytest.mark.parametrize("policy", ["async", "sync"])
@pytest.mark.parametrize("kind", PROBLEMS)
def test_all_columns_are_the_same_with_and_without(kind, policy):
    if (kind, policy) == ("arrays", "sync"):
        policy = "oful"  # these clients do not come in rounds
    one, other = (
        fsl.run(policy, PROBLEMS[kind](), horizon=600, record="all", chunk=37, prefetch=prefetch)
        for prefetch in (True, False)
    )
    assert_same(one, other)


def test_the_epochs_of_an_unknown_horizon_are_the_same():
    problem = fsl.SyntheticProblem(**SIZES, seed=1)
    doubling = fsl.Doubling("async", SIZES, first=100)
    one, other = (
        fsl.run(doubling, problem, horizon=900, record="all", chunk=17, prefetch=prefetch)
        for prefetch in (True, False)
    )
    assert_same(one, other)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_chunk_is_left_alone_while_the_next_is_drawn(kind):
    stream = PROBLEMS[kind]().stream(600, None)
    assert stream.may_prefetch
    chunk = stream.take(40)
    before = {
        name: None if values is None else values.copy() for name, values in vars(chunk).items()
    }
    stream.take(40)
    np.testing.assert_equal(vars(chunk), before)


# --- who draws ---


@pytest.mark.parametrize("prefetch", [True, False])
def test_a_plugins_stream_is_called_by_another_thread_only_if_it_allows_it(prefetch):
    here = threading.current_thread().name
    for may_prefetch in (True, False):
        problem = CoinProblem(may_prefetch)
        fsl.run("async", problem, horizon=50, chunk=10, prefetch=prefetch)
        elsewhere = [name != here for name in problem.names]
        assert elsewhere == [False, *[prefetch and may_prefetch] * 4]
    assert not list_drawing_threads()


def test_a_plugins_arrival_or_noise_is_not_called_by_another_thread():
    class Mine:
        in_rounds = False

        def clients(self, start, stop, *, n_clients, horizon, seed):
            return np.arange(start, stop) % n_clients

    problem = fsl.SyntheticProblem(**SIZES, arrival=Mine(), seed=1)
    assert not problem.stream(100, None).may_prefetch


def test_numpys_errors_are_those_of_the_caller():
    problem = CoinProblem(may_prefetch=True)
    with np.errstate(under="call"):
        fsl.run("async", problem, horizon=50, chunk=10, prefetch=True)
    assert problem.errstates == ["call"] * 5


def test_a_run_of_one_chunk_starts_no_thread(monkeypatch):
    monkeypatch.setattr(drawing, "ThreadPoolExecutor", None)
    problem = fsl.SyntheticProblem(**SIZES, seed=1)
    assert fsl.run("async", problem, horizon=50, chunk=50, prefetch=True).complete


@pytest.mark.parametrize(("cores", "chunk", "starts"), [(2, 2000, 1), (1, 2000, 0), (2, 20, 0)])
def test_by_default_it_takes_a_free_core_and_chunks_that_are_not_tiny(
    monkeypatch, cores, chunk, starts
):
    made = []
    make = drawing.ThreadPoolExecutor
    monkeypatch.setattr(drawing, "count_cores", lambda: cores)
    monkeypatch.setattr(
        drawing, "ThreadPoolExecutor", lambda *args, **kw: made.append(make(*args, **kw)) or made[0]
    )
    fsl.run("async", fsl.SyntheticProblem(**SIZES, seed=1), horizon=4001, chunk=chunk)
    assert len(made) == starts


@pytest.mark.parametrize(("at_a_time", "expected"), [(1, True), (2, True), (3, False)])
def test_compare_and_sweep_draw_ahead_only_if_they_leave_a_core(monkeypatch, at_a_time, expected):
    given = []

    def run(*args, prefetch, **keywords):
        given.append(prefetch)
        return fsl.run(*args, prefetch=prefetch, **keywords)

    monkeypatch.setattr("fedsuplin.study.backends.count_cores", lambda: 3)
    monkeypatch.setattr(comparison, "run", run)
    monkeypatch.setattr(sweeps, "run", run)
    problem = fsl.SyntheticProblem(**SIZES, seed=1)
    fsl.compare(["async"], problem, seeds=4, horizon=50, threads=at_a_time)
    fsl.sweep("async", {**SIZES, "horizon": 50}, seeds=4, workers=at_a_time)
    assert given == [expected] * 8


def test_prefetch_is_checked():
    with pytest.raises(InvalidInput, match="prefetch must be True, False or None, not 'yes'"):
        fsl.run("async", fsl.SyntheticProblem(**SIZES), horizon=5, prefetch="yes")


# --- errors and checkpoints ---


@pytest.mark.parametrize("prefetch", [True, False])
def test_an_error_of_the_stream_is_raised_when_its_chunk_is_due(prefetch):
    problem = CoinProblem(may_prefetch=True, fails_at=4)
    done = []
    with pytest.raises(
        PluginError, match="Coins raised OSError: the disk is gone, for pulls 30 to 39"
    ) as caught:
        fsl.run(
            "async",
            problem,
            horizon=90,
            chunk=10,
            prefetch=prefetch,
            progress=lambda pulls, total: done.append(pulls),
        )
    assert caught.value.result.n_pulls == 30 and done == [10, 20, 30]
    assert isinstance(caught.value.__cause__, OSError)
    assert not list_drawing_threads()


def test_no_thread_is_left_when_something_else_raises():
    class Enough(Exception):
        pass

    def stop(done, total):
        assert list_drawing_threads()
        if done >= 30:
            raise Enough

    problem = fsl.SyntheticProblem(**SIZES, seed=1)
    with pytest.raises(Enough):
        fsl.run("async", problem, horizon=90, chunk=10, prefetch=True, progress=stop)
    assert not list_drawing_threads()


@pytest.mark.parametrize("kind", ["ball", "corrupted", "arrays", "digits"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_a_run_stopped_in_the_middle_resumes_with_the_same_result(tmp_path, kind, prefetch):
    """Stopped with a chunk drawn that was not played, and resumed the other way."""
    keep = {
        "horizon": 600,
        "record": "all",
        "chunk": 37,
        "checkpoint": tmp_path / "run.ckpt",
        "checkpoint_every": 100,
    }

    def stop(done, total):
        if done >= 250:
            raise KeyboardInterrupt

    problem = PROBLEMS[kind]()
    with pytest.warns(fsl.errors.InterruptedRun):
        stopped = fsl.run("async", problem, progress=stop, prefetch=prefetch, **keep)
    assert not stopped.complete and 250 <= stopped.n_pulls < 300
    resumed = fsl.run("async", problem, prefetch=not prefetch, **keep)
    plain = fsl.run("async", problem, horizon=600, record="all", chunk=600, prefetch=False)
    assert_same(resumed, plain)


# --- memory ---


@pytest.mark.linux
def test_the_memory_of_a_run_does_not_grow_with_its_length(capsys):
    """`python bench/checks/long_run.py` plays 10⁸ pulls."""
    main = runpy.run_path(str(ROOT / "bench/checks/long_run.py"))["main"]
    assert main(pulls=2_000_000) == 0
    assert "does not grow" in capsys.readouterr().out


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("horizon", [400, None])
def test_the_cpu_time_of_a_run_has_that_of_the_thread_that_draws(monkeypatch, prefetch, horizon):
    """Drawing a chunk takes 10 ms of CPU here, and there are at least eight."""
    take, threads = drawing.take_chunk, set()

    def take_slowly(*arguments):
        threads.add(threading.get_ident())
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        return take(*arguments)

    monkeypatch.setattr(drawing, "take_chunk", take_slowly)
    algorithm = fsl.make("async", dim=4, n_arms=5, n_clients=3, horizon=horizon)
    problem = fsl.SyntheticProblem(4, 5, 3, seed=2)
    result = fsl.run(algorithm, problem, horizon=400, chunk=50, prefetch=prefetch)
    assert result.cpu_time >= 8 * 0.01
    assert (len(threads - {threading.get_ident()}) > 0) == prefetch
