"""Runs of a Doubling: one engine per epoch, joined into one result."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from fedsuplin_ext.loop import BY_PULL, COUNTS, SUMS
from fedsuplin_ext.state import state_of

from .._shared.array_types import AnyArray, Counts
from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..contracts.problem import Problem
from ..errors import FedsuplinError, InvalidInput
from .interruptions import warn_of_interruption
from .loop import Progress, choose_chunk_size, play_stream
from .phases import begin_phases
from .preparing import check_together, choose_arrival, make_engine
from .recorder import Recorder, list_recorded_pulls
from .result import RunResult


def run_epochs(
    doubling: Doubling,
    problem: Problem,
    length: int,
    *,
    record: str | int,
    progress: Progress | None,
    chunk: int | None,
    kernels: str | None,
    prefetch: bool | None,
) -> RunResult:
    """Play a Doubling, each epoch with an engine of its own.

    Contexts, noise and clients are those of a run with a known horizon of the same length.
    """
    algorithm = doubling.algorithm(0)
    check_together(algorithm, problem)
    stream = problem.stream(length, choose_arrival(algorithm, problem, length))
    began, began_cpu, budget = time.perf_counter(), time.thread_time(), stream.budget
    ended: list[RunResult] = []
    recorders: list[Recorder] = []

    def build_whole_result(recorder: Recorder, complete: bool) -> RunResult:
        spec = {
            "algorithm": build_epochs_spec(doubling, recorder.algorithm),
            "problem": problem.spec,
            "horizon": length,
        }
        parts = [*ended, recorder.build_result(problem, complete)]
        whole = join_results(parts, list_recorded_pulls(record, length))
        return replace(
            whole,
            spec=spec,
            wall_time=time.perf_counter() - began,
            cpu_time=time.thread_time() - began_cpu + sum(r.ahead_cpu for r in recorders),
        )

    for epoch in doubling.epochs(length):
        algorithm = doubling.algorithm(epoch.number)
        engine = make_engine(algorithm, problem, budget, kernels, epoch.number)
        phases = begin_phases(algorithm, problem, engine)
        recorder = Recorder(
            engine, algorithm, record, epoch.n_pulls, first=epoch.begins, total=length
        )
        recorders.append(recorder)
        size = choose_chunk_size(algorithm, chunk)
        try:
            play_stream(recorder, stream, size, progress, phases, None, prefetch)
        except KeyboardInterrupt:
            warn_of_interruption(stacklevel=3)
            return build_whole_result(recorder, complete=False)
        except FedsuplinError as error:
            error.result = build_whole_result(recorder, complete=False)
            raise
        if recorder.pull < length:
            ended.append(recorder.build_result(problem, complete=True))
            budget = float(state_of(engine)["sums"][len(SUMS)])  # what the adversary has left
    return build_whole_result(recorder, complete=True)


def build_epochs_spec(doubling: Doubling, last: Algorithm) -> dict[str, Any]:
    """Build the spec of a run in epochs: that of its last, without horizon, plus the doubling."""
    try:
        how = doubling.spec["doubling"]
    except InvalidInput:  # made of objects; the error is raised when the run is rebuilt
        how = None
    return {**last.spec, "horizon": None, "doubling": how}


def join_results(parts: list[RunResult], at: Counts) -> RunResult:
    """Join the results of epochs: each curve continues where the epoch before it ended.

    Rows are kept after each of the pulls in `at`, and at the end.
    """
    pulls = join_curves([part.pulls for part in parts], [part.n_pulls for part in parts])
    rows = np.isin(pulls, at)
    rows[-1:] = True
    curves: dict[str, Any] = {}
    for name in (*SUMS, *COUNTS):
        of_epochs = [getattr(part, name) for part in parts]
        ends = [curve[-1] if len(curve) else 0 for curve in of_epochs]
        curves[name] = join_curves(of_epochs, ends)[rows]
    by_pull: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in BY_PULL
        if parts[0].arms is not None
    }
    n_layers = max(len(part.layer_pulls) for part in parts)
    return replace(
        parts[-1],  # has versions, seed, departures, and the final state of plugins
        pulls=pulls[rows],
        **curves,
        **by_pull,
        client_regret=np.sum([part.client_regret for part in parts], axis=0),
        client_pulls=np.sum([part.client_pulls for part in parts], axis=0),
        layer_pulls=np.sum([pad_to_length(part.layer_pulls, n_layers) for part in parts], axis=0),
        drift=max(part.drift for part in parts),
        loop_time=sum(part.loop_time for part in parts),
    )


def join_curves(curves: list[AnyArray], ends: list[Any]) -> AnyArray:
    """Concatenate the curves of epochs, each raised by the sum of the `ends` before it."""
    before = [sum(ends[:i]) for i in range(len(ends))]
    return np.concatenate([curve + start for curve, start in zip(curves, before, strict=True)])


def pad_to_length(values: Counts, length: int) -> Counts:
    """Append zeros to the counts of an epoch that has fewer layers than another."""
    return np.pad(values, (0, length - len(values)))
