"""Experiment 3: what talking is worth. Regret against communication over a sweep of the thresholds C and D."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._shared.arrays import Floats
from .._shared.text import format_compact
from ..algorithm.making import make
from .experiment import PAPER, PAPER_IN_WORDS, Case, Experiment, Measured, Options
from .figures import draw_points, finish_panel, make_panels
from .formatting import format_mean_error
from .verdicts import FAILS, HOLDS, OPEN, Difference, Verdict, combine_outcomes, compute_difference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure


POLICIES = ("async", "sync")
LEVELS = 5  # of communication at which the two are compared
PRACTICAL = "practical radii"


class Tradeoff(Experiment):
    name = "tradeoff"
    title = "Regret against communication"
    says = (
        "Over different thresholds C and D there is a clear trade-off between regret and communication at T = 40 000, and the "
        "synchronous algorithm has the better one (figure 1d)."
    )
    thresholds_c = (1 / 400, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    multiples_d = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        sizes = {name: PAPER[name] for name in ("dim", "n_arms", "n_clients")}
        self.theorem_d: float = make(
            "sync", **sizes, horizon=PAPER["horizon"], preset="theory"
        ).trigger.D

    def settings(self) -> dict[str, str]:
        return {
            "problem": PAPER_IN_WORDS,
            "async": f"preset `practical` with C = {format_list(self.thresholds_c)} (Theorem 1 has 1/M² = 0.0025), random arrivals",
            "sync": f"preset `practical` with D = {format_list(self.multiples_d)} times Theorem 2's, which is {self.theorem_d:.4g}",
        }

    def cases(self) -> list[Case]:
        every = 2 if self.size == "quick" else 1
        by_c = [("async", "C", c) for c in self.thresholds_c[::every]]
        by_d = [("sync", "D", multiple * self.theorem_d) for multiple in self.multiples_d[::every]]
        return [
            Case({"policy": name, "threshold": value}, {"name": name, key: value}, PAPER)
            for name, key, value in (*by_c, *by_d)
        ]

    def draw(self, measured: Measured) -> Figure:
        figure, (axes,) = make_panels(
            f"Regret against communication, T = 40 000 ({self.n_seeds} seeds)", 1
        )
        for number, policy in enumerate(POLICIES):
            thresholds = self.thresholds(measured, policy)
            spent = [
                measured.values("communication", policy=policy, threshold=each).mean()
                for each in thresholds
            ]
            lost = [measured.values("regret", policy=policy, threshold=each) for each in thresholds]
            name = "C" if policy == "async" else "D"
            label = f"{policy}, {name} from {format_compact(thresholds[0])} (right) to {format_compact(thresholds[-1])} (left)"
            draw_points(axes, spent, lost, number=number, label=label)
        words = {"x": "communications until T", "y": "cumulative regret at T (95 % intervals)"}
        finish_panel(
            axes, title="Each point is a threshold", **words, log="x", legend="upper right"
        )
        return figure

    def thresholds(self, measured: Measured, policy: str) -> list[float]:
        return sorted(
            row["threshold"]
            for row in measured.rows
            if row["policy"] == policy and row["seed"] == 0
        )

    def verdicts(self, measured: Measured) -> list[Verdict]:
        return [*(self.trades(measured, policy) for policy in POLICIES), self.better(measured)]

    def trades(self, measured: Measured, policy: str) -> Verdict:
        """From the lowest threshold to the highest: less communication, more regret."""
        ends = [
            {
                what: measured.values(what, policy=policy, threshold=each)
                for what in ("regret", "communication")
            }
            for each in (self.thresholds(measured, policy)[at] for at in (0, -1))
        ]
        low, high = ends
        outcome = combine_outcomes(
            [
                compute_difference(high["communication"], low["communication"]).less,
                compute_difference(low["regret"], high["regret"]).less,
            ]
        )
        told = "; ".join(
            f"{words} threshold: regret {format_mean_error(end['regret'])} at communication {format_mean_error(end['communication'])}"
            for words, end in (("lowest", low), ("highest", high))
        )
        return Verdict(
            f"{policy}: a clear trade-off of regret against communication",
            "paper",
            PRACTICAL,
            told,
            outcome,
        )

    def better(self, measured: Measured) -> Verdict:
        """Regret at the same communication, between the thresholds by a straight line on logarithmic axes, seed by seed."""
        curves = {policy: self.by_seed(measured, policy) for policy in POLICIES}
        low = max(spent[:, 0].max() for spent, _ in curves.values())
        high = min(spent[:, -1].min() for spent, _ in curves.values())
        levels = np.geomspace(low, high, LEVELS)
        apart = [
            self.at(curves["sync"], level) - self.at(curves["async"], level) for level in levels
        ]
        found = [compute_difference(each, np.zeros_like(each)) for each in apart]
        outcomes = [each.less for each in found]
        outcome = HOLDS if set(outcomes) == {HOLDS} else FAILS if FAILS in outcomes else OPEN
        told = "; ".join(
            f"at {level:,.0f}: {format_percent(each)}"
            for level, each in zip(levels, found, strict=True)
        )
        words = f"regret of sync against async at equal communication: {told}"
        return Verdict("sync has the better trade-off", "paper", PRACTICAL, words, outcome)

    def by_seed(self, measured: Measured, policy: str) -> tuple[Floats, Floats]:
        """Communication and ln regret, seeds × thresholds, least communication first."""
        thresholds = self.thresholds(measured, policy)[::-1]
        both = [
            np.stack(
                [measured.values(what, policy=policy, threshold=each) for each in thresholds],
                axis=1,
            )
            for what in ("communication", "regret")
        ]
        order = np.argsort(both[0], axis=1)
        spent, lost = (np.take_along_axis(values, order, axis=1) for values in both)
        return spent, np.log(lost)

    @staticmethod
    def at(curve: tuple[Floats, Floats], level: float) -> Floats:
        return np.array(
            [
                np.interp(np.log(level), np.log(spent), lost)
                for spent, lost in zip(*curve, strict=True)
            ]
        )


def format_list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def format_percent(found: Difference) -> str:
    """A difference of logarithms as a percentage."""
    mean, low, high = (100 * np.expm1(value) for value in (found.mean, found.low, found.high))
    return f"{mean:+.0f} % [{low:+.0f}, {high:+.0f}]"
