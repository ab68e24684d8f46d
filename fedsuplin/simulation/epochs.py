"""Runs of a Doubling, epoch by epoch, as one result."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from fedsuplin_ext.loop import Engine
from fedsuplin_ext.state import state_of

from .._shared.arrays import AnyArray, Counts
from ..algorithm.doubling import Doubling
from ..errors import FedsuplinError, InterruptedRun, InvalidInput
from .loop import Progress, choose_chunk_size, play_stream
from .phases import PhaseRunner
from .preparing import check_together, choose_arrival, derive_decision_key
from .recorder import Recorder, list_recorded_pulls
from .result import BY_PULL, COUNTS, SUMS, RunResult


def run_epochs(
    doubling: Doubling,
    problem: Any,
    length: int,
    *,
    record: str | int,
    progress: Progress | None,
    chunk: int | None,
    kernels: str | None,
) -> RunResult:
    """Each epoch with an engine of its own. Contexts, noise and clients are those of a run that knows the horizon."""
    algorithm = doubling.algorithm(0)
    check_together(algorithm, problem)
    stream = problem.stream(length, choose_arrival(algorithm, problem, length))
    began, budget = time.perf_counter(), stream.budget
    ended: list[RunResult] = []

    def told(recorder: Recorder, complete: bool) -> RunResult:
        spec = {
            "algorithm": build_epochs_spec(doubling, recorder.algorithm),
            "problem": problem.spec,
            "horizon": length,
        }
        whole = join_results(
            [*ended, recorder.result(problem, complete)], list_recorded_pulls(record, length)
        )
        return replace(whole, spec=spec, wall_time=time.perf_counter() - began)

    for epoch in doubling.epochs(length):
        algorithm = doubling.algorithm(epoch.number)
        engine = Engine(
            algorithm,
            budget=budget,
            kernels=kernels,
            key=derive_decision_key(problem, epoch.number),
        )
        phases = PhaseRunner(algorithm, problem, engine) if algorithm.kernel == "phased" else None
        recorder = Recorder(
            engine, algorithm, record, epoch.n_pulls, first=epoch.begins, total=length
        )
        try:
            play_stream(
                recorder, stream, choose_chunk_size(algorithm, chunk), progress, phases, None
            )
        except KeyboardInterrupt:
            warnings.warn(
                "interrupted: the result holds what was recorded until now",
                InterruptedRun,
                stacklevel=3,
            )
            return told(recorder, complete=False)
        except FedsuplinError as error:
            error.result = told(recorder, complete=False)
            raise
        if recorder.pull < length:
            ended.append(recorder.result(problem, complete=True))
            budget = float(state_of(engine)["sums"][len(SUMS)])  # what the adversary has left
    return told(recorder, complete=True)


def build_epochs_spec(doubling: Doubling, last: Any) -> dict[str, Any]:
    """That of the last epoch, whose horizon was not the run's, and how all of them are made."""
    try:
        how = doubling.spec["doubling"]
    except InvalidInput:  # of objects: the result says so when it is to be made again
        how = None
    return {**last.spec, "horizon": None, "doubling": how}


def join_results(parts: list[RunResult], at: Counts) -> RunResult:
    """Curves that go on where the last epoch ended, with a row after each of the pulls in `at`, and at the end."""
    pulls = np.concatenate(
        [
            part.pulls + before
            for part, before in zip(parts, sum_before_each([p.n_pulls for p in parts]), strict=True)
        ]
    )
    rows = np.isin(pulls, at)
    rows[-1:] = True
    curves: dict[str, Any] = {
        name: join_curves([getattr(part, name) for part in parts])[rows]
        for name in (*SUMS, *COUNTS)
    }
    by_pull: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in BY_PULL
        if parts[0].arms is not None
    }
    n_layers = max(len(part.layer_pulls) for part in parts)
    return replace(
        parts[
            -1
        ],  # versions, seed and departures; and of plugins that keep state, what they ended with
        pulls=pulls[rows],
        **curves,
        **by_pull,
        client_regret=np.sum([part.client_regret for part in parts], axis=0),
        client_pulls=np.sum([part.client_pulls for part in parts], axis=0),
        layer_pulls=np.sum([pad_to_length(part.layer_pulls, n_layers) for part in parts], axis=0),
        drift=max(part.drift for part in parts),
        loop_time=sum(part.loop_time for part in parts),
    )


def join_curves(curves: list[AnyArray]) -> AnyArray:
    """Each raised by where those before it ended."""
    ends = [curve[-1] if len(curve) else 0 for curve in curves]
    return np.concatenate(
        [curve + before for curve, before in zip(curves, sum_before_each(ends), strict=True)]
    )


def sum_before_each(ends: list[Any]) -> list[Any]:
    return [sum(ends[:i]) for i in range(len(ends))]


def pad_to_length(values: Counts, length: int) -> Counts:
    return np.pad(values, (0, length - len(values)))
