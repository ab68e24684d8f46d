"""Compare one-layer LinUCB of other libraries with our engine and reference, at d = 25, K = 20.

    pip install ".[peers]" && pytest bench/test_peers.py --benchmark-enable

What each of them does is in fedsuplin/microbench/peers.py. `fedsuplin bench` times them too.

A peer that is not installed is left out (conftest.py); the extra `peers` installs them all.
"""

from __future__ import annotations

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.microbench.numpy_linucb import NumpyLinUCB, play_rows, take_first_rows
from fedsuplin.microbench.peers import (
    PEER_ROUNDS,
    PEERS,
    RADIUS,
    RIDGE,
    check_peer,
    make_same_job,
)
from fedsuplin.microbench.settings import HORIZON, PAPER
from fedsuplin.microbench.timing import make_loop_timing, make_timing, take_best
from fedsuplin.reference.twin import run_reference

D, K = PAPER["dim"], PAPER["n_arms"]

ALL = [pytest.param(name, marks=pytest.mark.peer(name)) for name in PEERS]
SAME_JOB = ALL[:2]


def make_linucb() -> NumpyLinUCB:
    return NumpyLinUCB(D, K, RIDGE, RADIUS)


# --- the rounds that all of them play ---


@pytest.fixture(scope="module")
def paper():
    return fsl.SyntheticProblem(**PAPER, noise_scale=0.1, seed=0)


@pytest.fixture(scope="module")
def alone():
    """Return one client's rounds in the unit ball, where no two arms tie, and their arrays."""
    problem = fsl.SyntheticProblem(**PAPER, noise_scale=0.1, contexts="ball", seed=0)
    rows, noise = take_first_rows(problem, 2000)
    return (
        fsl.ArrayProblem(rows, np.zeros(len(rows), int), theta=problem.theta, noise=noise),
        rows,
        problem.theta,
        noise,
    )


# --- arms ---


@pytest.mark.parametrize("name", ["numpy", *SAME_JOB])
def test_the_same_arms_are_chosen(alone, name):
    problem, rows, theta, noise = alone
    n = PEER_ROUNDS if name == "coba" else len(rows)
    ours = fsl.run(make_same_job(problem, problem.horizon), problem, record="all").arms[:n]
    player = make_linucb() if name == "numpy" else PEERS[name](D, K)
    assert play_rows(player, rows[:n], theta, noise[:n]) == ours.tolist()


@pytest.mark.peer("mabwiser")
def test_mabwiser_is_a_linucb_for_each_arm():
    check_peer("mabwiser", D, K, 60)


# --- times ---


@pytest.mark.parametrize("name", ["numpy", *ALL])
def test_a_round_of_a_peer(benchmark, alone, name):
    _, rows, theta, noise = alone
    benchmark.group = "one-layer LinUCB, d=25 K=20"
    benchmark.extra_info["rounds"] = PEER_ROUNDS
    arms = benchmark.pedantic(
        lambda player: play_rows(player, rows[:PEER_ROUNDS], theta, noise[:PEER_ROUNDS]),
        setup=lambda: ((make_linucb() if name == "numpy" else PEERS[name](D, K),), {}),
        rounds=3,
    )
    assert len(arms) == PEER_ROUNDS


@pytest.mark.timing
def test_async_is_10_times_faster_than_a_numpy_linucb_although_it_does_more(paper, tell):
    """With the practical preset: six layers and 20 clients against one layer and one player."""
    algorithm = make_for("async", paper, HORIZON, {})
    rows, noise = take_first_rows(paper, 4000)
    ours, theirs = take_best(
        8,
        make_loop_timing(algorithm, paper, HORIZON),
        make_timing(lambda: play_rows(make_linucb(), rows, paper.theta, noise)),
    )
    compare(tell, "async", ours / HORIZON, "NumPy LinUCB", theirs / len(rows), at_least=10)


@pytest.mark.timing
def test_async_is_150_times_faster_than_the_reference(paper, tell):
    """The reference's time includes drawing, which is negligible there."""
    algorithm = make_for("async", paper, HORIZON, {})
    (ours,) = take_best(4, make_loop_timing(algorithm, paper, HORIZON))
    (theirs,) = take_best(1, make_timing(lambda: run_reference(algorithm, paper, horizon=HORIZON)))
    ours = min(ours, *take_best(4, make_loop_timing(algorithm, paper, HORIZON)))
    compare(tell, "async", ours / HORIZON, "reference", theirs / HORIZON, at_least=150)


@pytest.mark.timing
@pytest.mark.parametrize("name", ALL)
def test_our_oful_round_is_25_times_faster_than_a_peers(alone, name, tell):
    problem, rows, theta, noise = alone
    rows, noise = rows[:PEER_ROUNDS], noise[:PEER_ROUNDS]
    algorithm = make_same_job(problem, problem.horizon)
    ours, theirs = take_best(
        8,
        make_loop_timing(algorithm, problem, problem.horizon),
        make_timing(lambda: play_rows(PEERS[name](D, K), rows, theta, noise)),
    )
    compare(tell, "oful", ours / problem.horizon, name, theirs / len(rows), at_least=25)


def compare(tell, us, ours, them, theirs, *, at_least):
    """Print the seconds per round of both, and check their ratio."""
    tell(
        f"{us}: {1e6 * ours:.2f} µs per round, {them}: {1e6 * theirs:.1f} µs, "
        f"{theirs / ours:.1f} times"
    )
    assert theirs >= at_least * ours
