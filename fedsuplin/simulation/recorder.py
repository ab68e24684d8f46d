"""The arrays that the engine writes into, and the RunResult made of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fedsuplin_ext.loop import BY_PULL, COUNTS, SUMS, Engine

from .._shared.array_types import AnyArray, Counts, Floats
from .._shared.checks import check_positive_integer
from .._shared.version import list_software_versions
from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..errors import InvalidInput
from .result import RunResult

LOG_POINTS = 400  # rows of record="log", before those that round to the same pull are merged


class Recorder:
    """Hold the arrays that the engine writes into, and build the RunResult from them."""

    def __init__(
        self,
        engine: Engine,
        algorithm: Algorithm,
        record: str | int,
        length: int,
        *,
        first: int = 0,
        total: int | None = None,
    ) -> None:
        """Record `length` pulls, those from `first` on of a run that has `total` in all."""
        self.engine, self.algorithm, self.length, self.played = engine, algorithm, length, 0
        self.first, self.total = first, total or length
        self.loop_time, self.loop_cpu, self.earlier, self.earlier_cpu = 0.0, 0.0, 0.0, 0.0
        self.drawing_cpu, self.ahead_cpu = 0.0, 0.0  # drawing, and what another thread did of it
        self.start_clocks()
        at = list_recorded_pulls(record, self.total)
        self.at = at[(at > first) & (at <= first + length)] - first
        self.sums = np.zeros((len(self.at), len(SUMS)))
        self.counts = np.zeros((len(self.at), len(COUNTS)), np.int64)
        self.by_pull = np.zeros((length, len(BY_PULL)), np.int32) if record == "all" else None
        engine.record_into(self.at, self.sums, self.counts, self.by_pull)

    @property
    def pull(self) -> int:
        """The number of pulls played in the whole run."""
        return self.first + self.played

    def start_clocks(self) -> None:
        """Begin to count the seconds of the run: those of a clock, and those of the CPU."""
        self.began, self.began_cpu = time.perf_counter(), time.thread_time()

    @property
    def wall_time(self) -> float:
        """Seconds since the run began, with those before it was resumed."""
        return self.earlier + time.perf_counter() - self.began

    @property
    def cpu_time(self) -> float:
        """CPU seconds since the run began, with those before it was resumed.

        They are those of this thread and of the one that draws chunks ahead.
        """
        return self.earlier_cpu + time.thread_time() - self.began_cpu + self.ahead_cpu

    def start_loop(self) -> None:
        """Start the clocks of the loop, for one chunk."""
        self._loop_began = time.perf_counter(), time.thread_time()

    def stop_loop(self) -> None:
        """Stop the clocks of the loop, and add what they show to its times."""
        wall, cpu = self._loop_began
        self.loop_cpu += time.thread_time() - cpu
        self.loop_time += time.perf_counter() - wall

    def add_drawing(self, seconds: float, *, is_ahead: bool) -> None:
        """Add the CPU seconds of a chunk that was drawn; is_ahead: by another thread."""
        self.drawing_cpu += seconds
        if is_ahead:
            self.ahead_cpu += seconds

    def build_result(self, problem: Problem, complete: bool) -> RunResult:
        """Build the RunResult of what was played so far."""
        engine, algorithm = self.engine, self.algorithm
        pulls, sums, counts = self._finish_rows()
        n = int(engine.client_pulls.sum())
        by_pull: dict[str, Any] = (
            {}
            if self.by_pull is None
            else {name: self.by_pull[:n, i].copy() for i, name in enumerate(BY_PULL)}
        )
        curves: dict[str, Any] = {name: sums[:, i].copy() for i, name in enumerate(SUMS)}
        curves |= {name: counts[:, i].copy() for i, name in enumerate(COUNTS)}
        states: dict[str, Any] = {
            f"{axis}_state": rule.state for axis, rule in engine.rules.items()
        }
        return RunResult(
            pulls=pulls,
            **curves,
            **by_pull,
            **states,
            client_regret=engine.client_regret,
            client_pulls=engine.client_pulls,
            layer_pulls=engine.layer_pulls,
            drift=engine.drift,
            loop_time=self.loop_time,
            wall_time=self.wall_time,
            cpu_time=self.cpu_time,
            complete=complete,
            departures=tuple(algorithm.departures(problem)),
            seed=problem.seed,
            spec={"algorithm": algorithm.spec, "problem": problem.spec, "horizon": self.length}
            | collect_notices(algorithm, problem),
            versions=list_software_versions(engine.kernels),
        )

    def collect_rows(self) -> dict[str, AnyArray]:
        """Collect the rows recorded so far, for a checkpoint."""
        rows = self.engine.recorded
        by_pull = {} if self.by_pull is None else {"recorded_by_pull": self.by_pull[: self.played]}
        return {"recorded_sums": self.sums[:rows], "recorded_counts": self.counts[:rows], **by_pull}

    def resume(self, arrays: dict[str, AnyArray]) -> None:
        """Take over the rows of a checkpoint; the engine must have its state already."""
        rows = self.engine.recorded
        self.played = int(arrays["totals"][0])
        if not 0 <= self.played <= self.length or rows > len(self.at):
            raise ValueError(
                f"it is at pull {self.played} of {self.length}, with {rows} rows of {len(self.at)}"
            )
        self.sums[:rows], self.counts[:rows] = arrays["recorded_sums"], arrays["recorded_counts"]
        if not np.isfinite(self.sums).all():
            raise ValueError("its recorded_sums must be finite")
        if self.by_pull is not None:
            self.by_pull[: self.played] = arrays["recorded_by_pull"]

    def _finish_rows(self) -> tuple[Counts, Floats, Counts]:
        """Return the rows so far, with one more if the run was stopped between two of them."""
        rows, now = self.engine.recorded, self.engine.totals_now
        pulls, sums, counts = self.at[:rows], self.sums[:rows], self.counts[:rows]
        if now["pulls"] > (pulls[-1] if rows else 0):
            pulls = np.append(pulls, now["pulls"])
            sums = np.vstack([sums, [now[name] for name in SUMS]])
            counts = np.vstack([counts, [now[name] for name in COUNTS]])
        return pulls, sums, counts


def list_recorded_pulls(record: str | int, length: int) -> Counts:
    """Return the pulls after which the recorder has a row; the last is always one of them."""
    if record == "all":
        return np.arange(1, length + 1)
    if record == "log":
        return drop_repeats(np.geomspace(1, length, LOG_POINTS).round().astype(np.int64))
    if isinstance(record, str):
        raise InvalidInput(
            f'record must be "log", "all" or a whole number n for every n-th pull, not {record!r}'
        )
    every = check_positive_integer("record", record)
    return drop_repeats(np.append(np.arange(every, length + 1, every), length))


def drop_repeats(pulls: Counts) -> Counts:
    """Return the recorded pulls, which are sorted, each once; np.unique imports numpy.ma first."""
    once: Counts = pulls[np.append(pulls[:-1] != pulls[1:], True)]
    return once


def collect_notices(algorithm: Algorithm, problem: Problem) -> dict[str, Any]:
    """Return the notices that the recorder puts into a result's spec; empty if there are none."""
    overstated = algorithm.describe_overstated_noise(problem)
    return {} if overstated is None else {"notices": [overstated]}
