"""Time rounds of `async` and of the NumPy that does the same job, after their answers are compared.

    pytest bench/test_layered.py --benchmark-enable

The bounds on ratios hold for the whole run, with BLAS of one thread, in CPU time: they are those of
bench/ratios.py, which prints them as a table.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.microbench.numpy_layered import (
    NumpyLayered,
    check_layered_arms,
    play_layered,
    take_layered_rows,
)
from fedsuplin.microbench.opponents import Opponents
from fedsuplin.microbench.settings import HORIZON
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine

ROUNDS = 400
spec = importlib.util.spec_from_file_location("ratios", Path(__file__).with_name("ratios.py"))
ratios = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = ratios  # where its dataclass looks for it
spec.loader.exec_module(ratios)


@pytest.mark.parametrize("player", ["async", "numpy-layered"])
@pytest.mark.parametrize("sizes", [(5, 5, 10), (25, 20, 20), (64, 20, 20)], ids=str)
def test_rounds_of_async_and_of_numpy_that_does_the_same_job(benchmark, sizes, player):
    problem = fsl.SyntheticProblem(*sizes, seed=0)
    algorithm = make_for("async", problem, HORIZON, {})
    check_layered_arms(algorithm, problem, ROUNDS)
    benchmark.group = "{} rounds of async, d={} K={} M={}".format(ROUNDS, *sizes)
    if player == "async":
        chunk = problem.stream(ROUNDS, choose_arrival(algorithm, problem, ROUNDS)).take(ROUNDS)
        played = benchmark.pedantic(
            lambda engine: engine.play(chunk),
            setup=lambda: ((Engine(algorithm),), {}),
            rounds=20,
        )
        assert played == ("done", ROUNDS)
    else:
        clients, rows, noise = take_layered_rows(problem, ROUNDS)
        arms, _ = benchmark.pedantic(
            lambda numpy: play_layered(numpy, clients, rows, problem.theta, noise),
            setup=lambda: ((NumpyLayered(algorithm),), {}),
            rounds=3,
        )
        assert len(arms) == ROUNDS


@pytest.mark.timing
@pytest.mark.parametrize("case", ratios.SIZES, ids=lambda case: str(case[0]))
def test_numpy_takes_as_many_times_as_long_as_promised(case, tell):
    with Opponents() as numpy:
        found = ratios.measure_ratios(case, ratios.TURNS, numpy)
    tell(ratios.format_ratios(case, found))
    assert found.linucb >= found.linucb_bound and found.layered >= found.layered_bound
