"""Time whole runs: what drawing adds, how memory and time grow, and what a second thread gives.

    pytest bench/test_throughput.py --benchmark-enable

Without --benchmark-enable only the answers are checked, on short runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fedsuplin as fsl

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20, "noise_scale": 0.1}
RUNS = 8


@pytest.fixture
def timed(request) -> bool:
    """Return whether timings are asserted."""
    return bool(request.config.getoption("benchmark_enable"))


@pytest.mark.parametrize("variant", ["async", "sync"])
def test_a_synthetic_run_costs_at_most_two_and_a_half_times_its_loop(variant, timed, tell):
    horizon = 1_000_000 if timed else 20_000
    problem = fsl.SyntheticProblem(**PAPER, seed=0)
    results = [fsl.run(variant, problem, horizon=horizon) for _ in range(3 if timed else 1)]
    assert all(
        result.regret[-1] == results[0].regret[-1] < 0.05 * result.uniform_regret[-1]
        for result in results
    )
    ratio = min(result.wall_time / result.loop_time for result in results)
    tell(
        f"{variant}, T = {horizon:,}: {results[0].microseconds:.2f} µs per pull in the loop, "
        f"run / loop = {ratio:.2f}"
    )
    if timed:
        assert ratio <= 2.5


# VmHWM of Linux: getrusage would count the memory of the process that started this one.
SCRIPT = """
import re, sys, time
import fedsuplin as fsl
before = time.perf_counter()
result = fsl.run("async", fsl.SyntheticProblem(8, 8, 20, seed=0), horizon=int(sys.argv[1]))
assert result.complete and result.regret[-1] < 0.05 * result.uniform_regret[-1]
seconds = time.perf_counter() - before
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(seconds, peak / 1024)
"""


def run_apart(horizon: int) -> tuple[float, float]:
    """Return seconds and peak megabytes of a run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(horizon)], capture_output=True, text=True, check=True
    )
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def test_a_long_run_is_fast_and_needs_no_more_memory_than_a_short_one(timed, tell):
    short, long = 10_000, 10_000_000 if timed else 200_000
    _, little = run_apart(short)
    seconds, much = run_apart(long)
    tell(
        f"d = K = 8, T = {long:,}: {seconds:.1f} s, {much:.0f} MB at most, "
        f"{little:.0f} MB at T = {short:,}"
    )
    assert much - little < 100
    if timed:
        assert seconds < 30


def play_run(seed: int) -> float:
    """Return the regret of a run."""
    return float(
        fsl.run("async", fsl.SyntheticProblem(**PAPER, seed=seed), horizon=100_000).regret[-1]
    )


def test_two_threads_do_close_to_twice_the_runs_of_one(timed, tell):
    with ThreadPoolExecutor(2) as pool:
        np.testing.assert_array_equal(
            list(pool.map(play_run, range(2))), [play_run(seed) for seed in range(2)]
        )
        if not timed:
            return
        best = 0.0
        for _ in range(4):  # other work on either core spoils a turn
            before = time.perf_counter()
            for seed in range(RUNS):
                play_run(seed)
            between = time.perf_counter()
            list(pool.map(play_run, range(RUNS)))
            best = max(best, (between - before) / (time.perf_counter() - between))
    tell(f"two threads: {best:.2f} times the runs of one thread")
    assert best >= 1.8
