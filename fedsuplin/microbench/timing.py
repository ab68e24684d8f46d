"""Time several things in turns, and keep the best time of each.

What is compared is measured side by side, in turns: a busy neighbour slows a core down for seconds,
and nothing speeds it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fedsuplin_ext import measure

from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..simulation.runner import run

Timing = Callable[[], float]
"""Does its work and returns the seconds that count."""
Kernel = Callable[[measure.Data, int, str | None], float]
"""Repeats its work on the data, with the named code path, and returns the seconds of one."""


def take_best(turns: int, *timings: Timing) -> list[float]:
    """Return the best time of each timing. They take turns, so that noise hits them alike."""
    taken = [[timing() for timing in timings] for _ in range(turns)]
    return [min(of_one) for of_one in zip(*taken, strict=True)]


def make_timing(call: Callable[[], Any]) -> Timing:
    """Return a timing of a call."""

    def timing() -> float:
        before = time.perf_counter()
        call()
        return time.perf_counter() - before

    return timing


def make_loop_timing(algorithm: Algorithm, problem: Problem, pulls: int) -> Timing:
    """Return a timing of the compiled loop of a run, without drawing and start-up."""
    return lambda: run(algorithm, problem, horizon=pulls).loop_time


def make_kernel_timing(
    kernel: Kernel, data: measure.Data, flops: float, kernels: str | None = None
) -> Timing:
    """Return a timing of a kernel, repeated inside for about a tenth of a millisecond."""
    repeats = max(1, int(4e6 / flops))
    return lambda: kernel(data, repeats, kernels)


def make_peak_timing(kernels: str | None = None) -> Timing:
    """Return a timing of one floating-point operation at the FMA peak."""
    return lambda: 1 / measure.fma_peak(5e-4, kernels)


def count_width_flops(dim: int, n_arms: int) -> int:
    """Return the operations in a timing of all widths: d(d+1)/2 multiply-adds for each arm."""
    return dim * (dim + 1) * n_arms
