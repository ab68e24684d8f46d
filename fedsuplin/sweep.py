"""Many runs: grids of policies and of problems × seeds, in threads, processes or on a cluster, to one tidy table.

A grid is a dict whose lists are axes: {"name": ["async", "sync"], "alpha_scale": [0.1, 0.3]} is four policies. What was run is
kept in a journal, so a sweep that was stopped or killed goes on where it was, and one with more seeds runs only those.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import functools
import inspect
import itertools
import json
import math
import numbers
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import files
from .algorithm import AXES, PRESETS, SYNCS, composed, keywords_of
from .comparison import Stopped, go_on, standard_error
from .engines import Died, check_engine, outcomes
from .errors import FedsuplinError, InvalidInput, PluginError, UnknownName, unknown
from .extras import imported
from .journal import Journal
from .registry import needed_by, parameters_of, plugins
from .result import COUNTS, SUMS, RunResult, plain
from .run import recorded_pulls, run
from .setting import positive_integer
from .version import __version__

if TYPE_CHECKING:
    import os

    import pandas

MEASURED = (*SUMS, *COUNTS)
OF_A_RUN = ("seed", "pulls", *MEASURED, "percent_of_uniform", "guarantee", "error")  # columns beside those of the grids
SECTIONS = ("policy", "problem", "seeds", "record")  # of a sweep's file
OF_THE_SWEEP = {"seed", "horizon"}  # keywords of a problem that are not its grid's to give
NOT_PARAMETERS = {"preset", "syncs", "lazy", *AXES}

Grid = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """One run of a sweep: the keywords of its policy and of its problem, and a seed."""

    policy: dict[str, Any]
    problem: dict[str, Any]
    seed: int
    record: str | int | None = None

    @functools.cached_property
    def key(self) -> str:
        """What makes it this run and no other, as text: with other constants in its preset, or another version of fedsuplin or
        of a plugin package, it is another run."""
        parts = {"policy": self.policy, "problem": self.problem, "seed": self.seed, "record": self.record}
        return json.dumps(parts | {"preset": preset_of(self.policy), "versions": versions()}, sort_keys=True, default=named)

    @property
    def work(self) -> float:
        """How much there is to do, against other points of the sweep: pulls × arms × dim², where the problem says them."""
        sizes = [self.problem.get(name, 1) for name in ("horizon", "n_arms", "dim", "dim")]
        return float(math.prod(size for size in sizes if isinstance(size, (int, float)) and size > 0))


def preset_of(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The constants that a policy has from its preset."""
    _, recipe = composed(policy["name"], {axis: policy.get(axis) for axis in AXES})
    return dict(recipe.presets.get(policy.get("preset", "practical"), {}))


def versions() -> dict[str, str]:
    """Of fedsuplin and of the packages that have plugins."""
    return {source.package: source.version for source in plugins.sources()} | {"fedsuplin": __version__}


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
        return tuple(axis for axis in self.axes if len({json.dumps(row[axis], default=named) for row in self.rows}) > 1)

    def summary(self) -> list[dict[str, Any]]:
        """A row a point of the grids: mean and standard error (None of one seed) over the seeds that did not fail."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(json.dumps([row[axis] for axis in self.axes], default=named), []).append(row)
        return [self._means(rows) for rows in groups.values()]

    def _means(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        told = {axis: rows[0][axis] for axis in self.axes}
        good = [row for row in rows if not row["error"]]
        told |= {"seeds": len(good), "failed": len(rows) - len(good)}
        for what in (*MEASURED, "percent_of_uniform"):
            values = np.array([row[what] for row in good if row[what] is not None], float)
            told[what] = float(values.mean()) if len(values) else None
            told[f"{what}_error"] = standard_error(values) if len(values) > 1 else None
        return told

    def to_frame(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        pandas = imported("pandas", "frame", "to_frame()")
        return pandas.DataFrame(self.rows)

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """The table. No times are in it: the same sweep gives the same file."""
        return write_rows(path, self.rows)

    def write_curves(self, path: str | os.PathLike[str]) -> Path:
        """A row a run and recorded pull, where `record` asked for them."""
        return write_rows(path, curve_rows(self.rows, self.curves, (*self.axes, "seed")))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Regret and communication against the axis with the most values, a line for each combination of the others."""
        from .plotting import draw_sweep

        return draw_sweep(self, path)

    def __repr__(self) -> str:
        ended = "" if self.complete else f", stopped early with {len(self.points) - len(self.rows)} to go"
        over = " × ".join(self.varied) or "one point"
        return f"SweepResult({len(self.rows)} runs over {over}, {len(self.failed)} failed{ended})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from .notebook import sweep_form

        return sweep_form(self)


# --- running -----------------------------------------------------------------------------------------------------------


def sweep(
    policies: str | Grid | Sequence[str | Grid],
    problems: Grid | Sequence[Grid],
    *,
    seeds: int | Iterable[int] = 10,
    record: str | int | None = None,
    folder: str | os.PathLike[str] | None = None,
    engine: str = "threads",
    workers: int | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> SweepResult:
    """Run every policy on every problem with every seed.

    `policies` is a grid, several of them, or names: `name` is the policy, the other keys are keywords of `make`. In a grid of
    problems `name` is the kind ("synthetic" unless given; or a function that makes one), `horizon` the number of pulls, and
    the other keys are its keywords. A list is an axis. With a `folder`, runs are kept in its runs.jsonl as they end, and
    those already there are not run again. `engine` is "threads", "processes" or "dask://HOST:PORT"; `workers` how many at a
    time. A run that fails has its `error` in the table and does not stop the rest. `record` ("log" or every n-th pull) keeps
    the curves. Ctrl-C ends it with what there is (`complete` is False).

    >>> found = sweep({"name": "async", "C": [0.1, 1]}, {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 200}, seeds=3)
    >>> [(row["C"], row["seeds"]) for row in found.summary()]
    [(0.1, 3), (1, 3)]
    """
    points = planned(policies, problems, seeds, record)
    return sweep_points(points, folder=folder, engine=engine, workers=workers, progress=progress)


def sweep_points(
    points: Sequence[Point],
    *,
    folder: str | os.PathLike[str] | None = None,
    engine: str = "threads",
    workers: int | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> SweepResult:
    """The same for runs that are no product of grids: those of several `planned` one after another."""
    check_engine(engine)
    workers = None if workers is None else positive_integer("workers", workers)
    check_names(points)
    stop = threading.Event()
    one = functools.partial(outcome_of, stop=stop) if engine == "threads" else outcome_of
    with Journal(None if folder is None else Path(folder) / "runs.jsonl") as journal:
        done = {point.key for point in points if "error" not in journal.lines.get(point.key, {"error": "not run"})}
        told = Teller(points, done, progress)
        todo = longest_first(point for point in points if point.key not in done)
        complete = True
        try:
            with contextlib.closing(outcomes(engine, workers, one, todo)) as ended:
                for outcome in ended if todo else ():
                    line = died(outcome) if isinstance(outcome, Died) else outcome
                    if line is not None:
                        journal.append(line)
                        told(line)
        except KeyboardInterrupt:
            complete = False
        finally:
            stop.set()
        return collected(points, journal.lines, complete)


class Teller:
    """Counts the runs for whoever watches."""

    def __init__(self, points: Sequence[Point], done: set[str], progress: Callable[[SweepProgress], None] | None) -> None:
        self._work = {point.key: point.work for point in points}
        self._all, self._left = sum(self._work.values()), sum(work for key, work in self._work.items() if key not in done)
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


def longest_first(points: Iterable[Point]) -> list[Point]:
    """So that no worker is left with a long run at the end, when the others have nothing more to do."""
    return sorted(points, key=lambda point: -point.work)


def outcome_of(point: Point, stop: threading.Event | None = None) -> dict[str, Any] | None:
    """One run as a line of the journal; None if it was stopped. Whatever is wrong with it is told there, and goes no further."""
    began = time.perf_counter()
    try:
        result = played(point, stop)
    except Stopped:
        return None
    except (Exception, SystemExit) as error:  # a plugin does not end the program of its user
        return {"key": point.key, "error": f"{type(error).__name__}: {error}"}
    last = {name: getattr(result, name)[-1].item() for name in ("pulls", *MEASURED)}
    line = {"key": point.key, "seconds": time.perf_counter() - began, "microseconds": result.microseconds, "result": last}
    if point.record is not None:
        line["curve"] = {name: getattr(result, name).tolist() for name in ("pulls", *MEASURED)}
    return line | {"versions": result.versions, "guarantee": not result.departures}


def played(point: Point, stop: threading.Event | None) -> RunResult:
    keywords = dict(point.policy)
    name, horizon = keywords.pop("name"), point.problem.get("horizon")
    watch = None if stop is None else lambda *_: go_on(stop)
    record = "log" if point.record is None else point.record
    return run(name, problem_of(point), horizon=horizon, record=record, progress=watch, **keywords)


def problem_of(point: Point) -> Any:
    """The problem of a point. The horizon is for the run; most problems have as many pulls as are asked for."""
    keywords = {key: value for key, value in point.problem.items() if key not in ("name", "horizon")} | {"seed": point.seed}
    name = point.problem["name"]
    return name(**keywords) if callable(name) else plugins.create("problems", name, keywords)


def died(outcome: Died) -> dict[str, Any]:
    return {"key": outcome.job.key, "error": outcome.reason}


def collected(points: Sequence[Point], lines: Mapping[str, Mapping[str, Any]], complete: bool) -> SweepResult:
    """The table: every point that was run, in the order of the grids."""
    there = [point for point in points if point.key in lines]
    names = Columns(points)
    rows = [names.of(point) | told(lines[point.key]) for point in there]
    curves = [lines[point.key].get("curve") for point in there]
    as_arrays = [None if curve is None else {name: np.array(values) for name, values in curve.items()} for curve in curves]
    return SweepResult(list(points), rows, as_arrays, tuple(names.columns), complete and len(there) == len(points))


def told(line: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's row says of it."""
    last: dict[str, Any] = line.get("result") or dict.fromkeys(("pulls", *MEASURED))
    uniform = last["uniform_regret"]
    share = {"percent_of_uniform": 100 * last["regret"] / uniform if uniform else None}
    return {**last, **share, "guarantee": line.get("guarantee"), "error": line.get("error", "")}


class Columns:
    """The columns for the keywords of policies and problems: policy. or problem. before one that would be there twice."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._keys = {
            part: dict.fromkeys(key for point in points for key in getattr(point, part)) for part in ("policy", "problem")
        }
        taken = {*OF_A_RUN, *self._keys, *(set(self._keys["policy"]) & set(self._keys["problem"]))}
        self._names = {
            (part, key): part if key == "name" else f"{part}.{key}" if key in taken else key
            for part, keys in self._keys.items()
            for key in keys
        }
        self.columns = list(self._names.values())

    def of(self, point: Point) -> dict[str, Any]:
        found = {name: getattr(point, part).get(key) for (part, key), name in self._names.items()}
        return {name: named(value) if callable(value) else value for name, value in found.items()} | {"seed": point.seed}


# --- the plan ----------------------------------------------------------------------------------------------------------


def planned(policies: Any, problems: Any, seeds: Any, record: Any) -> list[Point]:
    """Every point of the grids, seeds innermost."""
    if record is not None:
        if record == "all":
            raise InvalidInput('record="all" is for a single run: a sweep keeps curves with "log" or every n-th pull')
        recorded_pulls(record, 1)
    plan = itertools.product(expanded("policies", policies), expanded("problems", problems), seeds_of(seeds))
    points = [Point(policy, {"name": "synthetic"} | problem, seed, whole(record)) for policy, problem, seed in plan]
    if len({point.key for point in points}) < len(points):
        raise InvalidInput("some runs are in the sweep twice: each combination of policy, problem and seed must be there once")
    return points


def seeds_of(seeds: Any) -> list[int]:
    """How many, or which."""
    if isinstance(seeds, numbers.Real):
        return list(range(positive_integer("seeds", seeds)))
    which = [whole(plain_number(seed)) for seed in seeds] if isinstance(seeds, Iterable) else [seeds]
    for seed in which:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise InvalidInput(f"seeds must be how many, or whole numbers of at least 0, not {seed!r}")
    if not which:
        raise InvalidInput("there is nothing to run: give at least one seed")
    return which


def expanded(what: str, grids: Any) -> list[dict[str, Any]]:
    """The combinations of one or several grids."""
    several = [grids] if isinstance(grids, (str, Mapping)) or not isinstance(grids, Iterable) else list(grids)
    found = [combination for grid in several for combination in combinations(what, grid)]
    if not found:
        raise InvalidInput(f"there is nothing to run: {what} are missing")
    return found


def combinations(what: str, grid: Any) -> Iterator[dict[str, Any]]:
    if what == "policies" and isinstance(grid, str):
        grid = {"name": grid}
    if not isinstance(grid, Mapping):
        raise InvalidInput(f"{what} must be a grid or several: {{'name': …, 'keyword': [values]}}, not {grid!r}")
    if what == "policies" and "name" not in grid:
        raise InvalidInput(f"a grid of policies must say which: add name, such as 'async', to {dict(grid)!r}")
    if what == "problems" and "seed" in grid:
        raise InvalidInput("the seeds of a sweep are its own: give seeds=, and no seed in a grid of problems")
    axes = {key: values_of(values) for key, values in grid.items()}
    for key, values in axes.items():
        if not values:
            raise InvalidInput(f"the axis {key} of {what} has no values")
    for each in itertools.product(*axes.values()):
        yield dict(zip(axes, each, strict=True))


def values_of(values: Any) -> list[Any]:
    """Of an axis, or the one value that is none."""
    several = isinstance(values, (list, tuple, range)) or (isinstance(values, np.ndarray) and values.ndim > 0)
    return [whole(plain_number(value)) for value in (values if several else [values])]


def plain_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def whole(value: Any) -> Any:
    """1e6, which TOML has as a float, as the whole number that it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def named(value: Any) -> Any:
    """Something that is not plain data, as text that is the same in the next process; refused where there is none."""
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value)
    name = f"{value.__module__}.{value.__qualname__}" if callable(value) and hasattr(value, "__qualname__") else repr(value)
    if " at 0x" in name or "<lambda>" in name or "<locals>" in name:
        raise InvalidInput(
            f"{name} has no name to know its runs by: define it at the top of a module, register it as a plugin, or give its "
            "class a repr"
        )
    return name


def check_names(points: Sequence[Point]) -> None:
    """A name that does not exist is told before anything runs; a value that can't be used is an error of its run."""
    for policy in distinct(point.policy for point in points):
        check_policy(policy)
    for problem in distinct(point.problem for point in points):
        check_problem(problem)


def check_policy(policy: Mapping[str, Any]) -> None:
    _, recipe = composed(policy["name"], {axis: policy.get(axis) for axis in AXES})
    takes = keywords_of(recipe) | NOT_PARAMETERS
    for keyword in policy:
        if keyword != "name" and keyword not in takes:
            raise unknown(f"keyword for {policy['name']!r}", keyword, takes)
    for keyword, choices in (("preset", PRESETS), ("syncs", SYNCS)):
        if policy.get(keyword) is not None and policy[keyword] not in choices:
            raise unknown(keyword, policy[keyword], choices)


def check_problem(problem: Mapping[str, Any]) -> None:
    """Keywords by the signature; one that is made by name also once, for names among its values, such as that of a noise."""
    name = problem["name"]
    if not callable(name) and not isinstance(name, str):
        raise InvalidInput(f"the name of a problem must be one, or a function that makes it, not {name!r}")
    factory = name if callable(name) else plugins.factory("problems", name)
    what, takes = (
        f"keyword for problem {(named(name) if callable(name) else name)!r}",
        {*parameters_of(factory), "horizon"} - {"seed"},
    )
    others = [keyword for keyword in problem if keyword != "name" and keyword not in takes]
    if others and not takes_any(factory):
        raise unknown(what, others[0], takes)
    lacking = [keyword for keyword in needed_by(factory) if keyword not in {*problem, *OF_THE_SWEEP}]
    for keyword in others if lacking else ():
        if difflib.get_close_matches(keyword, lacking, n=1):  # where any keyword is taken, this is how a misspelt one shows
            raise unknown(what, keyword, takes)
    if lacking:
        raise InvalidInput(f"problem {(named(name) if callable(name) else name)!r} needs {', '.join(lacking)}: add to its grid")
    wrong = None if callable(name) else unknown_in(problem)
    for keyword in others if wrong else ():
        if repr(keyword) in str(wrong):
            raise unknown(what, keyword, takes, f" ({wrong})")
    if wrong:
        raise UnknownName(f"problem {name!r}: {wrong}") from wrong


def unknown_in(problem: Mapping[str, Any]) -> UnknownName | None:
    """What making it says of a name that does not exist; anything else that is wrong is for its runs to say."""
    try:
        problem_of(Point({}, dict(problem), 0))
    except FedsuplinError as error:
        cause = error.__cause__ if isinstance(error, PluginError) else error
        return cause if isinstance(cause, UnknownName) else None
    return None


def takes_any(factory: Callable[..., Any]) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(factory).parameters.values())


def distinct(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that differ in more than a number, which can't be misspelt."""
    return list({words_of(each): each for each in found}.values())


def words_of(keywords: Mapping[str, Any]) -> str:
    return json.dumps({key: 0 if isinstance(value, (int, float)) else value for key, value in keywords.items()}, default=named)


# --- files --------------------------------------------------------------------------------------------------------------


def read_plan(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A sweep's TOML file as keywords of `sweep`: [policy] or several [[policy]], [problem] or [[problem]], seeds, record."""
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None
    for section in found:
        if section not in SECTIONS:
            raise unknown(f"section of {path}", section, SECTIONS)
    for section in ("policy", "problem"):
        if section not in found:
            raise InvalidInput(f"{path} has no [{section}]: `fedsuplin sweep --example` prints a file that has all there can be")
    rest: dict[str, Any] = {key: found[key] for key in ("seeds", "record") if key in found}
    return {"policies": found["policy"], "problems": found["problem"], **rest}


def curve_rows(
    rows: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Any] | None], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The curves of runs as rows: which run it is, by these columns of its row, and what was recorded at a pull."""
    found = []
    for row, curve in zip(rows, curves, strict=True):
        told = {name: row[name] for name in names}
        columns = {name: values.tolist() for name, values in (curve or {}).items()}
        found += [told | dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return found


def write_rows(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    path = Path(path)
    with files.whole(path, newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path
