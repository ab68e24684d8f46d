"""Run every policy on every problem with every seed, into one table.

The runs are kept in a journal. A sweep that was stopped or killed continues where it stopped, and
one with more seeds plays only the new ones.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.checks import check_positive_integer
from .._shared.extras import import_extra
from .._shared.files import write_csv_rows
from .._shared.plain_data import encode_json
from .._shared.statistics import compute_standard_error
from ..simulation.result import RunResult
from ..simulation.runner import run
from .backends import (
    Died,
    RunStopped,
    StopFlag,
    check_backend,
    is_core_left,
    raise_if_stopped,
    run_jobs,
)
from .curves import CURVE_COLUMNS, MEASURED, list_curve_rows
from .grid import Grid, Point, list_points, make_problem, name_for_key
from .sweep_checks import check_names
from .sweep_journal import SweepJournal

if TYPE_CHECKING:
    import os

    import pandas
    from matplotlib.figure import Figure


# The columns beside those of the grids.
RUN_COLUMNS = ("seed", *CURVE_COLUMNS, "percent_of_uniform", "guarantee", "error")


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is: what `progress` is called with after each run."""

    done: int
    total: int
    failed: int
    share: float
    """The share of the work that is done. It differs from done / total where runs differ."""


@dataclass(frozen=True, eq=False)
class SweepResult:
    """The table of a sweep: one row per run, in the order of the grids.

    Parameters
    ----------
    points : list of Point
        All runs that were planned.
    rows : list of dict
        One row per run that ended: its place in the grids, its seed, and what was measured.
    curves : list of dict or None
        For each row, where `record` asked for them, the cumulative arrays and their ``pulls``.
    axes : tuple of str
        The columns that say which run it is, without the seed.
    complete : bool, default True
        False if the sweep was stopped: then the rows of runs that did not end are missing.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> problems = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": [50, 100]}
    >>> found = fsl.sweep(["oful", "uniform"], problems, seeds=2)
    >>> len(found.rows), len(found.summary()), found.rows[0]["policy"], found.complete
    (8, 4, 'oful', True)
    """

    points: list[Point]
    rows: list[dict[str, Any]]
    curves: list[dict[str, np.ndarray] | None]
    axes: tuple[str, ...]
    complete: bool = True

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Return the rows of the runs that failed."""
        return [row for row in self.rows if row["error"]]

    @property
    def varied(self) -> tuple[str, ...]:
        """Return the columns with more than one value."""
        return tuple(
            axis
            for axis in self.axes
            if len({encode_json(row[axis], name_for_key) for row in self.rows}) > 1
        )

    def summary(self) -> list[dict[str, Any]]:
        """Return means and standard errors over the seeds that did not fail.

        Returns
        -------
        list of dict
            One row per point of the grids. The standard error of one seed is None.
        """
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            place = encode_json([row[axis] for axis in self.axes], name_for_key)
            groups.setdefault(place, []).append(row)
        return [self._compute_means(rows) for rows in groups.values()]

    def _compute_means(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the row of the sweep's summary for the rows of one point."""
        means = {axis: rows[0][axis] for axis in self.axes}
        good = [row for row in rows if not row["error"]]
        means |= {"seeds": len(good), "failed": len(rows) - len(good)}
        for what in (*MEASURED, "percent_of_uniform"):
            values = np.array([row[what] for row in good if row[what] is not None], float)
            means[what] = float(values.mean()) if len(values) else None
            means[f"{what}_error"] = compute_standard_error(values) if len(values) > 1 else None
        return means

    def to_frame(self) -> pandas.DataFrame:
        """Return the table as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame
            One row per run.
        """
        pandas = import_extra("pandas", "frame", "to_frame()")
        return pandas.DataFrame(self.rows)

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the table as a CSV file, one row per run.

        There are no times in it: the same sweep gives the same file.

        Parameters
        ----------
        path : str or PathLike
            Where to write it.

        Returns
        -------
        pathlib.Path
            The same path.
        """
        return write_csv_rows(path, self.rows)

    def write_curves(self, path: str | os.PathLike[str]) -> Path:
        """Write the curves as a CSV file, one row per run and recorded pull.

        Parameters
        ----------
        path : str or PathLike
            Where to write it.

        Returns
        -------
        pathlib.Path
            The same path.
        """
        return write_csv_rows(path, list_curve_rows(self.rows, self.curves, (*self.axes, "seed")))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw regret and communication against the axis with the most values.

        There is one line for each combination of the other axes.

        Parameters
        ----------
        path : str or PathLike, optional
            Where to save the figure, too; the suffix decides the format.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from ..view.sweep_figure import draw_sweep

        return draw_sweep(self, path)

    def __repr__(self) -> str:
        left = len(self.points) - len(self.rows)
        ended = "" if self.complete else f", stopped early with {left} to go"
        over = " × ".join(self.varied) or "one point"
        return f"SweepResult({len(self.rows)} runs over {over}, {len(self.failed)} failed{ended})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
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

    A grid is a dict whose lists are axes: ``{"name": ["async", "sync"], "C": [0.1, 1]}`` stands
    for four policies. A run that fails has its ``error`` in the table and does not stop the rest.
    Ctrl-C ends the sweep with the runs that ended.

    Parameters
    ----------
    policies : str, grid, or sequence of them
        What to play. In a grid ``name`` is the policy, and the other keys are keywords of
        :func:`make`.
    problems : grid, or sequence of grids
        What to play on. ``name`` is the kind of problem (``"synthetic"`` by default, or a
        function that makes one), ``horizon`` is the number of pulls, and the other keys are
        keywords of the problem.
    seeds : int or iterable of int, default 10
        How many seeds, or which.
    record : {"log"} or int, optional
        Keep the curves, recorded at logarithmic distances or at every n-th pull.
    folder : str or PathLike, optional
        Where to keep the runs, in its ``runs.jsonl``, as they end. Those already there are not
        run again.
    backend : str, default "threads"
        Where to run: ``"threads"``, ``"processes"`` or ``"dask://HOST:PORT"``.
    workers : int, optional
        How many runs at a time; by default one per core, or as many as a Dask cluster takes.
    progress : callable, optional
        Called after each run with an object that has ``done``, ``total``, ``failed`` and
        ``share``, the share of the work that is done.

    Returns
    -------
    SweepResult
        One row per run: ``.rows``, ``.summary()``, ``.to_frame()``, ``.plot()``.

    Raises
    ------
    InvalidInput
        If the grids can't be a sweep, or the backend can't be reached.
    UnknownName
        If a name or keyword in a grid does not exist. Nothing has run then.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> problems = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 200}
    >>> found = fsl.sweep({"name": "async", "C": [0.1, 1]}, problems, seeds=3)
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
    """Run a sweep over points that need not be a product of grids.

    They can be those of several `list_points`, for example.
    """
    check_backend(backend)
    workers = None if workers is None else check_positive_integer("workers", workers)
    check_names(points)
    with SweepJournal(None if folder is None else Path(folder) / "runs.jsonl") as journal:
        done = {
            point.key
            for point in points
            if "error" not in journal.lines.get(point.key, {"error": "not run"})
        }
        counter = ProgressCounter(points, done, progress)
        todo = sort_longest_first(point for point in points if point.key not in done)
        prefetch = is_core_left(backend, workers, len(todo))
        run_job = functools.partial(run_point, prefetch=prefetch)
        complete = True
        try:
            with contextlib.closing(run_jobs(backend, workers, run_job, todo)) as ended:
                for outcome in ended if todo else ():
                    line = make_failed_line(outcome) if isinstance(outcome, Died) else outcome
                    if line is not None:
                        journal.append(line)
                        counter.count(line)
        except KeyboardInterrupt:
            complete = False
        return collect_result(points, journal.lines, complete)


class ProgressCounter:
    """Counts the runs and the work, and calls `progress`."""

    def __init__(
        self,
        points: Sequence[Point],
        done: set[str],
        progress: Callable[[SweepProgress], None] | None,
    ) -> None:
        self._work = {point.key: point.work for point in points}
        self._all = sum(self._work.values())
        self._left = sum(work for key, work in self._work.items() if key not in done)
        self._progress, self._failed, self._done = progress, 0, len(done)
        self._report()

    def count(self, line: Mapping[str, Any]) -> None:
        """Count a run of the sweep that ended, by its line of the journal."""
        self._done += 1
        self._left -= self._work[line["key"]]
        self._failed += "error" in line
        self._report()

    def _report(self) -> None:
        """Call `progress` with how far the sweep is."""
        if self._progress is not None:
            total = len(self._work)
            share = 1.0 if self._done == total else 1 - self._left / self._all
            self._progress(SweepProgress(self._done, total, self._failed, share))


def sort_longest_first(points: Iterable[Point]) -> list[Point]:
    """Return the points in the order in which a sweep runs them, the longest first.

    So no long run is left for one worker at the end.
    """
    return sorted(points, key=lambda point: -point.work)


def run_point(
    point: Point, stop: StopFlag | None = None, prefetch: bool = False
) -> dict[str, Any] | None:
    """Do one run of a sweep, and return its line for the journal; None if it was stopped.

    An error of the run is kept in its line and not raised.
    """
    began = time.perf_counter()
    try:
        result = play_point(point, stop, prefetch)
    except RunStopped:
        return None
    except (Exception, SystemExit) as error:  # a plugin does not end the program of its user
        return {"key": point.key, "error": f"{type(error).__name__}: {error}"}
    last = {name: getattr(result, name)[-1].item() for name in CURVE_COLUMNS}
    line = {
        "key": point.key,
        "seconds": time.perf_counter() - began,
        "microseconds": result.microseconds,
        "result": last,
    }
    if point.record is not None:
        line["curve"] = {name: getattr(result, name).tolist() for name in CURVE_COLUMNS}
    return line | {"versions": result.versions, "guarantee": not result.departures}


def play_point(point: Point, stop: StopFlag | None, prefetch: bool) -> RunResult:
    """Play one run of a sweep: make the problem of a point, and run its policy on it."""
    keywords = dict(point.policy)
    name, horizon = keywords.pop("name"), point.problem.get("horizon")
    watch = None if stop is None else lambda *_: raise_if_stopped(stop)
    record = "log" if point.record is None else point.record
    return run(
        name,
        make_problem(point),
        horizon=horizon,
        record=record,
        progress=watch,
        prefetch=prefetch,
        **keywords,
    )


def make_failed_line(outcome: Died) -> dict[str, Any]:
    """Return what a sweep notes in its journal about a run whose worker died."""
    return {"key": outcome.job.key, "error": outcome.reason}


def collect_result(
    points: Sequence[Point], lines: Mapping[str, Mapping[str, Any]], complete: bool
) -> SweepResult:
    """Return the result of a sweep: a row for every point that was run, in the grids' order."""
    there = [point for point in points if point.key in lines]
    names = Columns(points)
    rows = [names.make_row(point) | summarise_line(lines[point.key]) for point in there]
    curves = [lines[point.key].get("curve") for point in there]
    as_arrays = [
        None if curve is None else {name: np.array(values) for name, values in curve.items()}
        for curve in curves
    ]
    return SweepResult(
        list(points), rows, as_arrays, tuple(names.columns), complete and len(there) == len(points)
    )


def summarise_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns in a row of a sweep's table that describe the result of its run."""
    last: dict[str, Any] = line.get("result") or dict.fromkeys(CURVE_COLUMNS)
    uniform = last["uniform_regret"]
    share = {"percent_of_uniform": 100 * last["regret"] / uniform if uniform else None}
    return {**last, **share, "guarantee": line.get("guarantee"), "error": line.get("error", "")}


class Columns:
    """The columns for the keywords of policies and problems.

    A name that would occur twice has "policy." or "problem." before it.
    """

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

    def make_row(self, point: Point) -> dict[str, Any]:
        """Return the columns in a row of a sweep's table that say which run it is."""
        found = {name: getattr(point, part).get(key) for (part, key), name in self._names.items()}
        return {
            name: name_for_key(value) if callable(value) else value for name, value in found.items()
        } | {"seed": point.seed}
