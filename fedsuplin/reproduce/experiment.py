"""What an experiment is: cases to run, a figure of what was measured, and a verdict on each claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._shared.arrays import AnyArray, Floats
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
PAPER_IN_WORDS = "the paper's: d = 25, K = 20, M = 20, T = 40 000, contexts uniform on the unit sphere, Gaussian noise of variance 0.01"


@dataclass(frozen=True)
class Options:
    """What a user may choose for all experiments."""

    size: str = "normal"
    """"quick" for a minute's version, "full" for the longest horizons."""
    seeds: int | None = None
    movielens: Path | None = None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise unknown("size", self.size, SIZES)
        if self.seeds is not None and check_positive_integer("seeds", self.seeds) < 2:
            raise InvalidInput("a verdict needs the spread over seeds: give at least 2")


@dataclass(frozen=True)
class Case:
    """One line of an experiment's table: what the figure calls it, and the policy and problem that are run for it."""

    labels: dict[str, Any]
    policy: dict[str, Any]
    problem: dict[str, Any]
    seeds: int | None = None
    """How many, where a long run has fewer than the experiment; those that a user asks for come first."""

    def point(self, seed: int, record: str | None) -> Point:
        return Point(self.policy, {"name": "synthetic"} | self.problem, seed, record)


class Measured:
    """The runs of an experiment, by the labels of their cases.

    >>> found = Measured([{"M": 2, "seed": 1, "regret": 5.0}, {"M": 2, "seed": 0, "regret": 4.0}], [None, None], ["M"])
    >>> found.values("regret", M=2).tolist()
    [4.0, 5.0]
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        curves: list[dict[str, AnyArray] | None],
        labels: Sequence[str],
    ) -> None:
        order = sorted(
            range(len(rows)), key=lambda at: rows[at]["seed"]
        )  # stable: cases stay in their order within a seed
        self.rows, self.curves, self.labels = (
            [rows[at] for at in order],
            [curves[at] for at in order],
            list(labels),
        )

    def _where(self, labels: dict[str, Any]) -> list[int]:
        found = [
            at
            for at, row in enumerate(self.rows)
            if all(row[name] == value for name, value in labels.items())
        ]
        if not found:
            raise KeyError(f"no run has {labels}")
        return found

    def values(self, what: str, **labels: Any) -> Floats:
        """The final value of what was measured, a number a seed, in the order of the seeds."""
        return np.array([self.rows[at][what] for at in self._where(labels)], float)

    def curve(self, what: str, **labels: Any) -> tuple[AnyArray, Floats]:
        """Recorded pulls, and values as seeds × pulls."""
        found = [curve for at in self._where(labels) if (curve := self.curves[at]) is not None]
        return found[0]["pulls"], np.array([curve[what] for curve in found], float)

    def choices(self, label: str) -> list[Any]:
        """The values of a label, in the order of the cases."""
        return list(dict.fromkeys(row[label] for row in self.rows))

    def summary(self, measures: Sequence[str]) -> list[dict[str, Any]]:
        """Mean and standard error over the seeds, a row a case."""
        cases = dict.fromkeys(tuple(row[name] for name in self.labels) for row in self.rows)
        told = []
        for case in cases:
            row = dict(zip(self.labels, case, strict=True))
            for what in measures:
                values = self.values(what, **row)
                told.append(
                    row
                    | {
                        "measure": what,
                        "mean": values.mean(),
                        "error": compute_standard_error(values),
                        "seeds": len(values),
                    }
                )
        return told


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment."""

    experiment: Experiment
    sweep: SweepResult
    measured: Measured | None = None
    """None if it was stopped, or a run of it failed: then there is nothing to say."""
    verdicts: list[Verdict] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    seconds: float = 0.0
    missing: str | None = None
    """Why it was not run, where it was not."""


class Experiment(ABC):
    """Base of the experiments. One says its cases, draws what was measured and judges the claims; the rest is here."""

    name: ClassVar[str]
    title: ClassVar[str]
    says: ClassVar[str]
    """What the paper says, or why it is measured."""
    seeds: ClassVar[dict[str, int]] = {"quick": 3, "normal": 20, "full": 20}
    record: ClassVar[str | None] = None
    """"log" where the figure shows curves."""
    measures: ClassVar[tuple[str, ...]] = ("regret", "percent_of_uniform", "communication")
    """Columns of the table of means."""

    def __init__(self, options: Options) -> None:
        self.options, self.size = options, options.size
        self.n_seeds = options.seeds or self.seeds[options.size]

    def missing(self) -> str | None:
        """Why it can't be run, if so: what the user has to give."""
        return None

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """What a reader needs to know to do it again, in words."""
        ...

    @abstractmethod
    def cases(self) -> list[Case]: ...

    @abstractmethod
    def draw(self, measured: Measured) -> Figure: ...

    @abstractmethod
    def verdicts(self, measured: Measured) -> list[Verdict]: ...

    # --- the same for all --------------------------------------------------------------------------------------------------

    def seeds_of(self, case: Case) -> range:
        return range(self.options.seeds or case.seeds or self.n_seeds)

    def run(
        self, folder: Path, progress: Callable[[SweepProgress], None] | None = None, **where: Any
    ) -> SweepResult:
        """Every case with every seed, each kept in the folder as it ends. Two cases may be the same run."""
        points = [
            case.point(seed, self.record) for case in self.cases() for seed in self.seeds_of(case)
        ]
        return sweep_points(
            list({point.key: point for point in points}.values()),
            folder=folder,
            progress=progress,
            **where,
        )

    def measured(self, found: SweepResult) -> Measured:
        at = {point.key: number for number, point in enumerate(found.points)}
        rows, curves = [], []
        for case in self.cases():
            for seed in self.seeds_of(case):
                number = at[case.point(seed, self.record).key]
                rows.append(
                    case.labels
                    | {"seed": seed}
                    | {
                        key: value
                        for key, value in found.rows[number].items()
                        if key not in case.labels
                    }
                )
                curves.append(found.curves[number])
        return Measured(rows, curves, list(self.cases()[0].labels))

    def report(self, found: SweepResult, folder: Path) -> Outcome:
        """Data, figure and verdicts of a sweep that is complete, into the folder."""
        measured = self.measured(found)
        verdicts = self.verdicts(measured)
        figure = self.draw(measured)
        files = [
            write_csv_rows(folder / "runs.csv", measured.rows),
            write_csv_rows(folder / "means.csv", measured.summary(self.measures)),
            write_csv_rows(folder / "verdicts.csv", [verdict.row() for verdict in verdicts]),
        ]
        if self.record is not None:
            files.append(
                write_csv_rows(
                    folder / "curves.csv",
                    list_curve_rows(measured.rows, measured.curves, (*measured.labels, "seed")),
                )
            )
        for suffix in ("png", "svg"):
            files.append(folder / f"{self.name}.{suffix}")
            save_figure(figure, files[-1])
        return Outcome(self, found, measured, verdicts, files)
