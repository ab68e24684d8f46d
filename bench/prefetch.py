"""Measure what drawing ahead saves: a run against its loop and its drawing, each alone.

python bench/prefetch.py                 at the paper's setting, some seconds
python bench/prefetch.py --pulls 20000   fewer, to see that it works

Needs an idle core. The parts are timed in CPU time, the runs by the clock. Fails if a run takes
more than 1.3 times as long as the longer of its two parts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import fedsuplin as fsl
from fedsuplin._shared.cores import count_cores
from fedsuplin.microbench.settings import PAPER
from fedsuplin.microbench.timing import Timing, make_loop_timing, make_timing, take_best
from fedsuplin.simulation.loop import choose_chunk_size
from fedsuplin.simulation.preparing import choose_arrival

BOUND = 1.3
TURNS = 7


def make_wall_timing(call: Callable[[], object]) -> Timing:
    """Return a timing of a call by the clock: two threads at once take less time, not less CPU."""

    def timing() -> float:
        before = time.perf_counter()
        call()
        return time.perf_counter() - before

    return timing


def main(pulls: int, variant: str) -> int:
    """Print the times of both parts and of the whole, and return 1 if the whole takes too long."""
    problem = fsl.SyntheticProblem(**PAPER, noise_scale=0.1, seed=0)
    algorithm = fsl.make(variant, **PAPER, horizon=pulls, noise_scale=0.1)
    size = choose_chunk_size(algorithm)

    def draw() -> None:
        stream = problem.stream(pulls, choose_arrival(algorithm, problem, pulls))
        for start in range(0, pulls, size):
            stream.take(min(size, pulls - start))

    def play(prefetch: bool) -> None:
        fsl.run(algorithm, problem, horizon=pulls, prefetch=prefetch)

    loop, drawing, ahead, one_thread = take_best(
        TURNS,
        make_loop_timing(algorithm, problem, pulls),
        make_timing(draw),
        make_wall_timing(lambda: play(True)),
        make_wall_timing(lambda: play(False)),
    )
    ratio = ahead / max(loop, drawing)
    print(f"{variant}, {pulls} pulls, chunks of {size}, {count_cores()} cores; µs per pull:")
    for what, seconds in (
        ("the loop alone", loop),
        ("drawing alone", drawing),
        ("a run in one thread", one_thread),
        ("a run that draws ahead", ahead),
    ):
        print(f"  {what:24}{1e6 * seconds / pulls:7.2f}")
    print(f"{ratio:.2f} times the longer part; at most {BOUND} {'' if ratio <= BOUND else 'FAILS'}")
    return int(ratio > BOUND)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pulls", type=lambda text: int(float(text)), default=200_000)
    parser.add_argument("--variant", default="async")
    sys.exit(main(**vars(parser.parse_args())))
