"""Time a round of the engine at the paper's setting against a good hand-written NumPy LinUCB.

    pytest bench --benchmark-enable

The margin is wide enough to be asserted in every test run; test_peers.py has the sharper one.
"""

from __future__ import annotations

import pytest

import fedsuplin as fsl
from fedsuplin.microbench.numpy_linucb import NumpyLinUCB, play_rows, take_first_rows
from fedsuplin.microbench.settings import HORIZON, PAPER
from fedsuplin.microbench.timing import make_timing, take_best
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine

ROUNDS = 2000


@pytest.mark.measures("two sides of which one alone is checked code")
@pytest.mark.parametrize("variant", ["async", "sync"])
def test_a_round_of_the_engine_costs_less_than_a_fifth_of_a_numpy_linucb_round(variant, tell):
    """With the default preset; contexts are drawn beforehand for both."""
    problem = fsl.SyntheticProblem(**PAPER, noise_scale=0.1, seed=0)
    algorithm = fsl.make(variant, **PAPER, horizon=HORIZON, noise_scale=0.1)
    chunk = problem.stream(HORIZON, choose_arrival(algorithm, problem, HORIZON)).take(ROUNDS)
    rows, noise = take_first_rows(problem, ROUNDS)
    engine_time, numpy_time = take_best(
        7,
        make_timing(lambda: Engine(algorithm).play(chunk)),
        make_timing(
            lambda: play_rows(
                NumpyLinUCB(PAPER["dim"], PAPER["n_arms"], 1.0, 0.5), rows, problem.theta, noise
            )
        ),
    )
    tell(
        f"{variant}: {1e6 * engine_time / ROUNDS:.2f} µs per round (six layers, "
        f"{PAPER['n_clients']} clients), NumPy LinUCB {1e6 * numpy_time / ROUNDS:.2f} µs: "
        f"{numpy_time / engine_time:.1f} times faster"
    )
    assert engine_time < numpy_time / 5
