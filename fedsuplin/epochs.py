"""A run of unknown horizon: the epochs of a Doubling one after the other on one stream of the problem, told as one run."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from fedsuplin_ext.loop import Engine
from fedsuplin_ext.state import state_of

from .arrays import AnyArray, Counts
from .doubling import Doubling
from .errors import FedsuplinError, InterruptedRun, InvalidInput
from .result import BY_PULL, COUNTS, SUMS, RunResult
from .run import Phases, Progress, Recorder, arrival_for, check_together, chunk_size, decision_key, play_all, recorded_pulls


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
    stream = problem.stream(length, arrival_for(algorithm, problem, length))
    began, budget = time.perf_counter(), stream.budget
    ended: list[RunResult] = []

    def told(recorder: Recorder, complete: bool) -> RunResult:
        spec = {"algorithm": spec_of(doubling, recorder.algorithm), "problem": problem.spec, "horizon": length}
        whole = joined([*ended, recorder.result(problem, complete)], recorded_pulls(record, length))
        return replace(whole, spec=spec, wall_time=time.perf_counter() - began)

    for epoch in doubling.epochs(length):
        algorithm = doubling.algorithm(epoch.number)
        engine = Engine(algorithm, budget=budget, kernels=kernels, key=decision_key(problem, epoch.number))
        phases = Phases(algorithm, problem, engine) if algorithm.kernel == "phased" else None
        recorder = Recorder(engine, algorithm, record, epoch.n_pulls, first=epoch.begins, total=length)
        try:
            play_all(recorder, stream, chunk_size(algorithm, chunk), progress, phases, None)
        except KeyboardInterrupt:
            warnings.warn("interrupted: the result holds what was recorded until now", InterruptedRun, stacklevel=3)
            return told(recorder, complete=False)
        except FedsuplinError as error:
            error.result = told(recorder, complete=False)
            raise
        if recorder.pull < length:
            ended.append(recorder.result(problem, complete=True))
            budget = float(state_of(engine)["sums"][len(SUMS)])  # what the adversary has left
    return told(recorder, complete=True)


def spec_of(doubling: Doubling, last: Any) -> dict[str, Any]:
    """That of the last epoch, whose horizon was not the run's, and how all of them are made."""
    try:
        how = doubling.spec["doubling"]
    except InvalidInput:  # of objects: the result says so when it is to be made again
        how = None
    return {**last.spec, "horizon": None, "doubling": how}


def joined(parts: list[RunResult], at: Counts) -> RunResult:
    """Curves that go on where the last epoch ended, with a row after each of the pulls in `at`, and at the end."""
    pulls = np.concatenate([part.pulls + before for part, before in zip(parts, offsets([p.n_pulls for p in parts]), strict=True)])
    rows = np.isin(pulls, at)
    rows[-1:] = True
    curves: dict[str, Any] = {name: continued([getattr(part, name) for part in parts])[rows] for name in (*SUMS, *COUNTS)}
    by_pull: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in BY_PULL if parts[0].arms is not None
    }
    n_layers = max(len(part.layer_pulls) for part in parts)
    return replace(
        parts[-1],  # versions, seed and departures; and of plugins that keep state, what they ended with
        pulls=pulls[rows],
        **curves,
        **by_pull,
        client_regret=np.sum([part.client_regret for part in parts], axis=0),
        client_pulls=np.sum([part.client_pulls for part in parts], axis=0),
        layer_pulls=np.sum([padded(part.layer_pulls, n_layers) for part in parts], axis=0),
        drift=max(part.drift for part in parts),
        loop_time=sum(part.loop_time for part in parts),
    )


def continued(curves: list[AnyArray]) -> AnyArray:
    """Each raised by where those before it ended."""
    ends = [curve[-1] if len(curve) else 0 for curve in curves]
    return np.concatenate([curve + before for curve, before in zip(curves, offsets(ends), strict=True)])


def offsets(ends: list[Any]) -> list[Any]:
    return [sum(ends[:i]) for i in range(len(ends))]


def padded(values: Counts, length: int) -> Counts:
    return np.pad(values, (0, length - len(values)))
