"""Compare the plugins of examples/fedsuplin-demo with equal built-ins: the same arms, and the time.

    pytest bench/test_plugins.py --benchmark-enable

The parameters are such that both rules agree at every pull. What is timed is the loop of a whole
run at the paper's setting, in CPU time and in turns, so that a busy machine does not decide.
"""

from __future__ import annotations

import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.microbench.settings import HORIZON, NOISE, PAPER
from fedsuplin.microbench.timing import take_best
from fedsuplin.plugin import Setting
from fedsuplin.simulation.loop import choose_chunk_size
from fedsuplin_ext.loop import Engine

DEMO = Path(__file__).parents[1] / "examples/fedsuplin-demo/src/fedsuplin_demo/__init__.py"
TURNS = 12
NEVER_REACHED = 10**9
FEW, MANY = 1.0, PAPER["n_clients"] ** -2  # C: as the practical preset has it, and the theorem's
CORRUPTED = fsl.SyntheticProblem(**PAPER, **NOISE["robust"], seed=0)
PLAIN = fsl.SyntheticProblem(**PAPER, seed=0)


@pytest.fixture(scope="module")
def demo():
    """Import the demo, which need not be installed."""
    spec = spec_from_file_location("fedsuplin_demo", DEMO)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def weightings(demo):
    """Return the built-in and numba weighting, with parameters that make all weights exactly 1."""
    others = {"gamma": 1e9}, {"weighting": demo.SmoothCorruption(slope=1e-9)}
    return [make_for("robust", CORRUPTED, HORIZON, other) for other in others]


@pytest.fixture(params=[FEW, MANY], ids=["few syncs", "many syncs"])
def triggers(demo, request):
    """Return the built-in and a Python trigger, with a limit that no client reaches."""
    others = {"C": request.param}, {"trigger": demo.Budgeted(C=request.param, limit=NEVER_REACHED)}
    return [make_for("async", PLAIN, HORIZON, other) for other in others]


def test_a_numba_weighting_plays_the_pulls_of_the_built_in(weightings):
    assert_same_pulls(weightings, CORRUPTED)


def test_a_python_trigger_plays_the_pulls_of_the_built_in(triggers):
    assert_same_pulls(triggers, PLAIN)


def test_weights_that_matter_are_the_same_in_numba_and_in_python(demo):
    weighting = demo.SmoothCorruption(corruption=NOISE["robust"]["corruption"]).bind(
        Setting(**PAPER, horizon=HORIZON, ridge=0.1)
    )
    forms = weighting, weighting.weight
    assert_same_pulls(
        [make_for("robust", CORRUPTED, HORIZON, {"weighting": form}) for form in forms], CORRUPTED
    )


def assert_same_pulls(algorithms, problem):
    one, other = (fsl.run(algorithm, problem, record="all") for algorithm in algorithms)
    for name in ("arms", "layers", "communication"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# --- what must hold ---


@pytest.mark.timing
def test_a_numba_weighting_takes_at_most_1_3_times_the_built_in(weightings, tell):
    assert measure_ratio("numba weighting", weightings, CORRUPTED, tell) <= 1.3


@pytest.mark.timing
def test_numba_weights_that_matter_take_at_most_1_3_times_the_built_ins(demo, tell):
    """Smooth weights are not capped ones, so the two runs differ in some pulls."""
    weighting = demo.SmoothCorruption(corruption=NOISE["robust"]["corruption"])
    algorithms = [
        make_for("robust", CORRUPTED, HORIZON, other) for other in ({}, {"weighting": weighting})
    ]
    assert measure_ratio("numba weighting, weights below 1", algorithms, CORRUPTED, tell) <= 1.3


@pytest.mark.timing
def test_a_python_trigger_takes_at_most_1_5_times_the_built_in(triggers, tell):
    built_in, _ = triggers
    assert measure_ratio(f"Python trigger, C={built_in.trigger.C:g}", triggers, PLAIN, tell) <= 1.5


def measure_ratio(what, algorithms, problem, tell):
    built_in, other = take_best(
        TURNS, *(make_cpu_timing(algorithm, problem) for algorithm in algorithms)
    )
    tell(
        f"{what}: {1e6 * other / HORIZON:.2f} µs per round, "
        f"built-in: {1e6 * built_in / HORIZON:.2f} µs, {other / built_in:.2f} times"
    )
    return other / built_in


def make_cpu_timing(algorithm, problem):
    """Return a function that times the loop of a run; drawing the chunks does not count."""

    def timing():
        stream, size, seconds = (
            problem.stream(HORIZON, problem.arrival),
            choose_chunk_size(algorithm),
            0.0,
        )
        engine = Engine(algorithm, budget=stream.budget)
        for start in range(0, HORIZON, size):
            chunk = stream.take(min(size, HORIZON - start))
            before = time.thread_time()
            status, _ = engine.play(chunk)
            seconds += time.thread_time() - before
            assert status == "done"
        return seconds

    return timing
