"""Many runs: grids of policies and of problems × seeds, in threads, processes or on a cluster, to one tidy table.

A grid is a dict whose lists are axes: {"name": ["async", "sync"], "alpha_scale": [0.1, 0.3]} is four policies. What was run is
kept in a journal, so a sweep that was stopped or killed goes on where it was, and one with more seeds runs only those.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.checks import check_positive_integer
from .._shared.extras import import_extra
from .._shared.files import write_csv_rows
from .._shared.statistics import compute_standard_error
from ..simulation.result import COUNTS, SUMS, RunResult
from ..simulation.runner import run
from .backends import Died, RunStopped, check_backend, raise_if_stopped, run_jobs
from .grid import Grid, Point, list_points, make_problem, name_for_key
from .sweep_checks import check_names
from .sweep_journal import SweepJournal

if TYPE_CHECKING:
    import os

    import pandas


MEASURED = (*SUMS, *COUNTS)
RUN_COLUMNS = (
    "seed",
    "pulls",
    *MEASURED,
    "percent_of_uniform",
    "guarantee",
    "error",
)  # columns beside those of the grids


@dataclass(frozen=True)
class SweepProgress:
    """What `progress` is called with after each run."""

    done: int
    total: int
    failed: int
    share: float
    """Of the work, which is not that of the runs where some are longer."""


@dataclass(frozen=True, eq=False)
class SweepResult:
    """A row a run, in the order of the grids, however the runs were shared out.

    >>> found = sweep(["oful", "uniform"], {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": [50, 100]}, seeds=2)
    >>> len(found.rows), len(found.summary()), found.rows[0]["policy"], found.complete
    (8, 4, 'oful', True)
    """

    points: list[Point]
    """All that were planned."""
    rows: list[dict[str, Any]]
    curves: list[dict[str, np.ndarray] | None]
    """For each row, where `record` asked for them, the cumulative arrays and their `pulls`."""
    axes: tuple[str, ...]
    """The columns that say which run it is, without the seed."""
    complete: bool = True
    """False when it was stopped: then rows of runs that were not reached are missing."""

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["error"]]

    @property
    def varied(self) -> tuple[str, ...]:
        """The columns with more than one value."""
        return tuple(
            axis
            for axis in self.axes
            if len({json.dumps(row[axis], default=name_for_key) for row in self.rows}) > 1
        )

    def summary(self) -> list[dict[str, Any]]:
        """A row a point of the grids: mean and standard error (None of one seed) over the seeds that did not fail."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(
                json.dumps([row[axis] for axis in self.axes], default=name_for_key), []
            ).append(row)
        return [self._means(rows) for rows in groups.values()]

    def _means(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        told = {axis: rows[0][axis] for axis in self.axes}
        good = [row for row in rows if not row["error"]]
        told |= {"seeds": len(good), "failed": len(rows) - len(good)}
        for what in (*MEASURED, "percent_of_uniform"):
            values = np.array([row[what] for row in good if row[what] is not None], float)
            told[what] = float(values.mean()) if len(values) else None
            told[f"{what}_error"] = compute_standard_error(values) if len(values) > 1 else None
        return told

    def to_frame(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        pandas = import_extra("pandas", "frame", "to_frame()")
        return pandas.DataFrame(self.rows)

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """The table. No times are in it: the same sweep gives the same file."""
        return write_csv_rows(path, self.rows)

    def write_curves(self, path: str | os.PathLike[str]) -> Path:
        """A row a run and recorded pull, where `record` asked for them."""
        return write_csv_rows(path, list_curve_rows(self.rows, self.curves, (*self.axes, "seed")))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Regret and communication against the axis with the most values, a line for each combination of the others."""
        from ..view.sweep_figure import draw_sweep

        return draw_sweep(self, path)

    def __repr__(self) -> str:
        ended = (
            ""
            if self.complete
            else f", stopped early with {len(self.points) - len(self.rows)} to go"
        )
        over = " × ".join(self.varied) or "one point"
        return f"SweepResult({len(self.rows)} runs over {over}, {len(self.failed)} failed{ended})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from ..view.notebook import render_sweep

        return render_sweep(self)


def sweep(
    policies: str | Grid | Sequence[str | Grid],
    problems: Grid | Sequence[Grid],
    *,
    seeds: int | Iterable[int] = 10,
    record: str | int | None = None,
    folder: str | os.PathLike[str] | None = None,
    backend: str = "threads",
    workers: int | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> SweepResult:
    """Run every policy on every problem with every seed.

    `policies` is a grid, several of them, or names: `name` is the policy, the other keys are keywords of `make`. In a grid of
    problems `name` is the kind ("synthetic" unless given; or a function that makes one), `horizon` the number of pulls, and
    the other keys are its keywords. A list is an axis. With a `folder`, runs are kept in its runs.jsonl as they end, and
    those already there are not run again. `backend` is "threads", "processes" or "dask://HOST:PORT"; `workers` how many at a
    time. A run that fails has its `error` in the table and does not stop the rest. `record` ("log" or every n-th pull) keeps
    the curves. Ctrl-C ends it with what there is (`complete` is False).

    >>> found = sweep({"name": "async", "C": [0.1, 1]}, {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 200}, seeds=3)
    >>> [(row["C"], row["seeds"]) for row in found.summary()]
    [(0.1, 3), (1, 3)]
    """
    points = list_points(policies, problems, seeds, record)
    return sweep_points(points, folder=folder, backend=backend, workers=workers, progress=progress)


def sweep_points(
    points: Sequence[Point],
    *,
    folder: str | os.PathLike[str] | None = None,
    backend: str = "threads",
    workers: int | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> SweepResult:
    """The same for runs that are no product of grids: those of several `planned` one after another."""
    check_backend(backend)
    workers = None if workers is None else check_positive_integer("workers", workers)
    check_names(points)
    stop = threading.Event()
    one = functools.partial(run_point, stop=stop) if backend == "threads" else run_point
    with SweepJournal(None if folder is None else Path(folder) / "runs.jsonl") as journal:
        done = {
            point.key
            for point in points
            if "error" not in journal.lines.get(point.key, {"error": "not run"})
        }
        told = ProgressCounter(points, done, progress)
        todo = sort_longest_first(point for point in points if point.key not in done)
        complete = True
        try:
            with contextlib.closing(run_jobs(backend, workers, one, todo)) as ended:
                for outcome in ended if todo else ():
                    line = make_failed_line(outcome) if isinstance(outcome, Died) else outcome
                    if line is not None:
                        journal.append(line)
                        told(line)
        except KeyboardInterrupt:
            complete = False
        finally:
            stop.set()
        return collect_result(points, journal.lines, complete)


class ProgressCounter:
    """Counts the runs for whoever watches."""

    def __init__(
        self,
        points: Sequence[Point],
        done: set[str],
        progress: Callable[[SweepProgress], None] | None,
    ) -> None:
        self._work = {point.key: point.work for point in points}
        self._all, self._left = (
            sum(self._work.values()),
            sum(work for key, work in self._work.items() if key not in done),
        )
        self._progress, self._failed, self._done = progress, 0, len(done)
        self._tell()

    def __call__(self, line: Mapping[str, Any]) -> None:
        self._done += 1
        self._left -= self._work[line["key"]]
        self._failed += "error" in line
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            total = len(self._work)
            share = 1.0 if self._done == total else 1 - self._left / self._all
            self._progress(SweepProgress(self._done, total, self._failed, share))


def sort_longest_first(points: Iterable[Point]) -> list[Point]:
    """So that no worker is left with a long run at the end, when the others have nothing more to do."""
    return sorted(points, key=lambda point: -point.work)


def run_point(point: Point, stop: threading.Event | None = None) -> dict[str, Any] | None:
    """One run as a line of the journal; None if it was stopped. Whatever is wrong with it is told there, and goes no further."""
    began = time.perf_counter()
    try:
        result = play_point(point, stop)
    except RunStopped:
        return None
    except (Exception, SystemExit) as error:  # a plugin does not end the program of its user
        return {"key": point.key, "error": f"{type(error).__name__}: {error}"}
    last = {name: getattr(result, name)[-1].item() for name in ("pulls", *MEASURED)}
    line = {
        "key": point.key,
        "seconds": time.perf_counter() - began,
        "microseconds": result.microseconds,
        "result": last,
    }
    if point.record is not None:
        line["curve"] = {name: getattr(result, name).tolist() for name in ("pulls", *MEASURED)}
    return line | {"versions": result.versions, "guarantee": not result.departures}


def play_point(point: Point, stop: threading.Event | None) -> RunResult:
    keywords = dict(point.policy)
    name, horizon = keywords.pop("name"), point.problem.get("horizon")
    watch = None if stop is None else lambda *_: raise_if_stopped(stop)
    record = "log" if point.record is None else point.record
    return run(
        name, make_problem(point), horizon=horizon, record=record, progress=watch, **keywords
    )


def make_failed_line(outcome: Died) -> dict[str, Any]:
    return {"key": outcome.job.key, "error": outcome.reason}


def collect_result(
    points: Sequence[Point], lines: Mapping[str, Mapping[str, Any]], complete: bool
) -> SweepResult:
    """The table: every point that was run, in the order of the grids."""
    there = [point for point in points if point.key in lines]
    names = Columns(points)
    rows = [names.of(point) | summarise_line(lines[point.key]) for point in there]
    curves = [lines[point.key].get("curve") for point in there]
    as_arrays = [
        None if curve is None else {name: np.array(values) for name, values in curve.items()}
        for curve in curves
    ]
    return SweepResult(
        list(points), rows, as_arrays, tuple(names.columns), complete and len(there) == len(points)
    )


def summarise_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's row says of it."""
    last: dict[str, Any] = line.get("result") or dict.fromkeys(("pulls", *MEASURED))
    uniform = last["uniform_regret"]
    share = {"percent_of_uniform": 100 * last["regret"] / uniform if uniform else None}
    return {**last, **share, "guarantee": line.get("guarantee"), "error": line.get("error", "")}


class Columns:
    """The columns for the keywords of policies and problems: policy. or problem. before one that would be there twice."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._keys = {
            part: dict.fromkeys(key for point in points for key in getattr(point, part))
            for part in ("policy", "problem")
        }
        taken = {
            *RUN_COLUMNS,
            *self._keys,
            *(set(self._keys["policy"]) & set(self._keys["problem"])),
        }
        self._names = {
            (part, key): part if key == "name" else f"{part}.{key}" if key in taken else key
            for part, keys in self._keys.items()
            for key in keys
        }
        self.columns = list(self._names.values())

    def of(self, point: Point) -> dict[str, Any]:
        found = {name: getattr(point, part).get(key) for (part, key), name in self._names.items()}
        return {
            name: name_for_key(value) if callable(value) else value for name, value in found.items()
        } | {"seed": point.seed}


def list_curve_rows(
    rows: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Any] | None],
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """The curves of runs as rows: which run it is, by these columns of its row, and what was recorded at a pull."""
    found = []
    for row, curve in zip(rows, curves, strict=True):
        told = {name: row[name] for name in names}
        columns = {name: values.tolist() for name, values in (curve or {}).items()}
        found += [
            told | dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
    return found
