"""What an experiment is: cases to run, a figure of what was measured, and a verdict per claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._shared.array_types import AnyArray, Floats
from .._shared.checks import check_positive_integer
from .._shared.files import write_csv_rows
from .._shared.statistics import compute_standard_error
from ..errors import InvalidInput, unknown
from ..study.curves import list_curve_rows
from ..study.grid import Point
from ..study.sweeps import SweepProgress, SweepResult, sweep_points
from ..view.style import save_figure
from .verdicts import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SIZES = ("quick", "normal", "full")
# Section 5 of the paper: its synthetic experiments.
PAPER: dict[str, Any] = {
    "dim": 25,
    "n_arms": 20,
    "n_clients": 20,
    "noise_scale": 0.1,
    "horizon": 40_000,
}
PAPER_IN_WORDS = (
    "the paper's: d = 25, K = 20, M = 20, T = 40 000, contexts uniform on the unit sphere, "
    "Gaussian noise of variance 0.01"
)


@dataclass(frozen=True)
class Options:
    """What a user may choose for all experiments."""

    size: str = "normal"
    """"quick" for a version that takes a minute, "full" for the longest horizons."""
    seeds: int | None = None
    movielens: Path | None = None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise unknown("size", self.size, SIZES)
        if self.seeds is not None and check_positive_integer("seeds", self.seeds) < 2:
            raise InvalidInput("a verdict needs the spread over seeds: give at least 2")


@dataclass(frozen=True)
class Case:
    """One policy on one problem, run with several seeds; its labels are columns of the tables."""

    labels: dict[str, Any]
    policy: dict[str, Any]
    problem: dict[str, Any]
    seeds: int | None = None
    """How many seeds, where a long run has fewer than the experiment; `Options.seeds` wins."""

    def make_point(self, seed: int, record: str | None) -> Point:
        """Make the point of a sweep that runs this case of an experiment with one seed."""
        return Point(self.policy, {"name": "synthetic"} | self.problem, seed, record)


class Measured:
    """The runs of an experiment, selected by the labels of their cases.

    >>> rows = [{"M": 2, "seed": 1, "regret": 5.0}, {"M": 2, "seed": 0, "regret": 4.0}]
    >>> Measured(rows, [None, None], ["M"]).values("regret", M=2).tolist()
    [4.0, 5.0]
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        curves: list[dict[str, AnyArray] | None],
        labels: Sequence[str],
    ) -> None:
        # The sort is stable: cases keep their order within a seed.
        order = sorted(range(len(rows)), key=lambda at: rows[at]["seed"])
        self.rows = [rows[at] for at in order]
        self.curves = [curves[at] for at in order]
        self.labels = list(labels)

    def _find(self, labels: dict[str, Any]) -> list[int]:
        """Return the numbers of an experiment's runs with these labels; raise KeyError if none."""
        found = [
            at
            for at, row in enumerate(self.rows)
            if all(row[name] == value for name, value in labels.items())
        ]
        if not found:
            raise KeyError(f"no run has {labels}")
        return found

    def values(self, what: str, **labels: Any) -> Floats:
        """Return the final values of a measure in an experiment, one per seed, in their order."""
        return np.array([self.rows[at][what] for at in self._find(labels)], float)

    def curve(self, what: str, **labels: Any) -> tuple[AnyArray, Floats]:
        """Return the recorded pulls of a case of an experiment, and a measure as seeds × pulls."""
        found = [curve for at in self._find(labels) if (curve := self.curves[at]) is not None]
        return found[0]["pulls"], np.array([curve[what] for curve in found], float)

    def choices(self, label: str) -> list[Any]:
        """Return the values of a label in an experiment, in the order of the cases."""
        return list(dict.fromkeys(row[label] for row in self.rows))

    def summarise(self, measures: Sequence[str]) -> list[dict[str, Any]]:
        """Return an experiment's means and standard errors, one row per case and measure."""
        cases = dict.fromkeys(tuple(row[name] for name in self.labels) for row in self.rows)
        rows = []
        for case in cases:
            labels = dict(zip(self.labels, case, strict=True))
            for what in measures:
                values = self.values(what, **labels)
                error = compute_standard_error(values)
                numbers = {"mean": values.mean(), "error": error, "seeds": len(values)}
                rows.append(labels | {"measure": what} | numbers)
        return rows


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment: its runs, verdicts and files."""

    experiment: Experiment
    sweep: SweepResult
    measured: Measured | None = None
    """None if the experiment was not run or was stopped, or if one of its runs failed."""
    verdicts: list[Verdict] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    seconds: float = 0.0
    missing: str | None = None
    """Why it was not run, if it was not."""


class Experiment(ABC):
    """Base class of the experiments: each has its cases, figure and verdicts."""

    name: ClassVar[str]
    title: ClassVar[str]
    statement: ClassVar[str]
    """What the paper states, or proves without measuring it."""
    seeds: ClassVar[dict[str, int]] = {"quick": 3, "normal": 20, "full": 20}
    record: ClassVar[str | None] = None
    """"log" where the figure shows curves."""
    measures: ClassVar[tuple[str, ...]] = ("regret", "percent_of_uniform", "communication")
    """Columns of the table of means."""

    def __init__(self, options: Options) -> None:
        self.options, self.size = options, options.size
        self.n_seeds = options.seeds or self.seeds[options.size]

    def explain_missing(self) -> str | None:
        """Return what the user has to provide before the experiment can run, None if nothing."""
        return None

    @abstractmethod
    def describe_settings(self) -> dict[str, str]:
        """Return all that a reader needs to repeat the experiment, in words."""
        ...

    @abstractmethod
    def list_cases(self) -> list[Case]:
        """Return the cases of the experiment."""
        ...

    @abstractmethod
    def draw(self, measured: Measured) -> Figure:
        """Draw what the experiment measured."""
        ...

    @abstractmethod
    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return a verdict on each claim that the experiment is about."""
        ...

    # --- the same for all experiments --------------------------------------------------------

    def list_seeds(self, case: Case) -> range:
        """Return the seeds of a case of the experiment."""
        return range(self.options.seeds or case.seeds or self.n_seeds)

    def run(
        self, folder: Path, progress: Callable[[SweepProgress], None] | None = None, **where: Any
    ) -> SweepResult:
        """Run every case of the experiment with every seed, and keep each run in the folder."""
        points = [
            case.make_point(seed, self.record)
            for case in self.list_cases()
            for seed in self.list_seeds(case)
        ]
        distinct = {point.key: point for point in points}  # two cases may be the same run
        return sweep_points(list(distinct.values()), folder=folder, progress=progress, **where)

    def collect(self, found: SweepResult) -> Measured:
        """Return the runs of the experiment's complete sweep with the labels of their cases."""
        at = {point.key: number for number, point in enumerate(found.points)}
        rows, curves = [], []
        for case in self.list_cases():
            for seed in self.list_seeds(case):
                number = at[case.make_point(seed, self.record).key]
                labels = case.labels | {"seed": seed}
                rest = {
                    key: value
                    for key, value in found.rows[number].items()
                    if key not in case.labels
                }
                rows.append(labels | rest)
                curves.append(found.curves[number])
        return Measured(rows, curves, list(self.list_cases()[0].labels))

    def report(self, found: SweepResult, folder: Path) -> Outcome:
        """Write data, figure and verdicts of the experiment's complete sweep into the folder."""
        measured = self.collect(found)
        verdicts = self.judge_claims(measured)
        figure = self.draw(measured)
        files = [
            write_csv_rows(folder / "runs.csv", measured.rows),
            write_csv_rows(folder / "means.csv", measured.summarise(self.measures)),
            write_csv_rows(folder / "verdicts.csv", [verdict.to_row() for verdict in verdicts]),
        ]
        if self.record is not None:
            columns = (*measured.labels, "seed")
            rows = list_curve_rows(measured.rows, measured.curves, columns)
            files.append(write_csv_rows(folder / "curves.csv", rows))
        for suffix in ("png", "svg"):
            files.append(folder / f"{self.name}.{suffix}")
            save_figure(figure, files[-1])
        return Outcome(self, found, measured, verdicts, files)
