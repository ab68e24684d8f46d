"""What this machine does, in a minute: the numbers and tables of `fedsuplin bench`.

Whatever is compared is measured side by side, the timings taking turns, and the best of each counts: a noisy neighbour slows a
core down for seconds, nothing speeds it up. The NumPy LinUCB that everything is compared with is here too; `bench/` uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fedsuplin_ext import measure

from ..algorithm.algorithm import Algorithm
from ..simulation.runner import run

Timing = Callable[[], float]
Kernel = Callable[[measure.Data, int, str | None], float]
"""Does its work and returns the seconds that count."""


def take_best(turns: int, *timings: Timing) -> list[float]:
    """The best time of each, the timings taking turns, so that a noisy moment hits them alike."""
    taken = [[timing() for timing in timings] for _ in range(turns)]
    return [min(of_one) for of_one in zip(*taken, strict=True)]


def make_timing(call: Callable[[], Any]) -> Timing:
    def timing() -> float:
        before = time.perf_counter()
        call()
        return time.perf_counter() - before

    return timing


def make_loop_timing(algorithm: Algorithm, problem: Any, pulls: int) -> Timing:
    """The compiled loop of a run, drawing and start-up excluded."""
    return lambda: run(algorithm, problem, horizon=pulls).loop_time


def make_kernel_timing(
    kernel: Kernel, data: measure.Data, flops: float, kernels: str | None = None
) -> Timing:
    """A kernel from measure.py, repeated inside for about a tenth of a millisecond at the speed of a good core."""
    repeats = max(1, int(4e6 / flops))
    return lambda: kernel(data, repeats, kernels)


def make_peak_timing(kernels: str | None = None) -> Timing:
    """Seconds for one flop at the FMA peak."""
    return lambda: 1 / measure.fma_peak(5e-4, kernels)


def count_width_flops(dim: int, n_arms: int) -> int:
    """What a symmetric matrix needs: d(d+1)/2 multiply-adds for each arm."""
    return dim * (dim + 1) * n_arms
