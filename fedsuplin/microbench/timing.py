"""Time several things in turns, and keep the best time of each.

What is compared is measured side by side, in turns: a busy neighbour slows a core down for seconds,
and nothing speeds it up.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedsuplin_ext import measure, norms
from fedsuplin_ext.loop import Engine
from fedsuplin_ext.stages import StageEngine

from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..simulation.loop import choose_chunk_size, play_stream
from ..simulation.phases import begin_phases
from ..simulation.preparing import choose_arrival, derive_decision_key
from ..simulation.recorder import Recorder

Timing = Callable[[], float]
"""Does its work and returns the seconds that count."""
Kernel = Callable[[measure.Data, int, str | None], float]
"""Repeats its work on the data, with the named code path, and returns the seconds of one."""


def take_best(turns: int, *timings: Timing) -> list[float]:
    """Return the best time of each timing. They take turns, so that noise hits them alike."""
    taken = [[timing() for timing in timings] for _ in range(turns)]
    return [min(of_one) for of_one in zip(*taken, strict=True)]


def make_timing(call: Callable[[], Any]) -> Timing:
    """Return a timing of a call, in CPU seconds of all threads of this process."""

    def timing() -> float:
        before = time.process_time()
        call()
        return time.process_time() - before

    return timing


@dataclass(slots=True)
class Played:
    """What a timed run took, in CPU seconds, and the ticks and intervals of its stages."""

    loop: float = 0.0
    drawing: float = 0.0
    stages: dict[str, tuple[int, int]] = field(default_factory=dict)


class StageRecorder(Recorder):
    """A recorder that starts the stop watch of a StageEngine with each chunk, and stops it."""

    engine: StageEngine

    def start_loop(self) -> None:
        """Start the stop watch, and the clocks of the loop."""
        super().start_loop()
        self.engine.start()

    def stop_loop(self) -> None:
        """Stop the stop watch and the clocks, and add what they show to the sums."""
        for name, (ticks, intervals) in self.engine.stop().items():
            before = self.stages.get(name, (0, 0))
            self.stages[name] = before[0] + ticks, before[1] + intervals
        super().stop_loop()

    @functools.cached_property
    def stages(self) -> dict[str, tuple[int, int]]:
        """Ticks and numbers of intervals by stage, over all chunks so far."""
        return {}


def play_timed(
    algorithm: Algorithm, problem: Problem, pulls: int, *, by_stage: bool = False
) -> Played:
    """Play a run without a second thread, and time its loop and its drawing; if asked, stages."""
    stream = problem.stream(pulls, choose_arrival(algorithm, problem, pulls))
    engine_class, recorder_class = (StageEngine, StageRecorder) if by_stage else (Engine, Recorder)
    key = derive_decision_key(problem)
    engine = engine_class(algorithm, budget=stream.budget, key=key)
    phases = begin_phases(algorithm, problem, engine)
    recorder = recorder_class(engine, algorithm, "log", pulls)
    play_stream(recorder, stream, choose_chunk_size(algorithm), None, phases, None, prefetch=False)
    stages = recorder.stages if isinstance(recorder, StageRecorder) else {}
    return Played(recorder.loop_cpu, recorder.drawing_cpu, stages)


def make_loop_timing(algorithm: Algorithm, problem: Problem, pulls: int) -> Timing:
    """Return a timing of the compiled loop of a run, without drawing and start-up."""
    return lambda: play_timed(algorithm, problem, pulls).loop


def make_kernel_timing(
    kernel: Kernel, data: measure.Data, flops: float, kernels: str | None = None
) -> Timing:
    """Return a timing of a kernel, repeated inside for about a tenth of a millisecond."""
    repeats = max(1, int(4e6 / flops))
    return lambda: kernel(data, repeats, kernels)


def measure_peak(seconds: float) -> float:
    """Return the flops per second that a core can do, with the widest vectors that it has.

    They are those of the best set of kernels, whatever set is in use.
    """
    return measure.fma_peak(seconds, norms.available()[0])


def make_peak_timing() -> Timing:
    """Return a timing of one floating-point operation at the FMA peak."""
    return lambda: 1 / measure_peak(5e-4)


def count_width_flops(dim: int, n_arms: int) -> int:
    """Return the operations in a timing of all widths: d(d+1)/2 multiply-adds for each arm."""
    return dim * (dim + 1) * n_arms
