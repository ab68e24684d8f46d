"""Experiment 3: regret against communication, over a range of the thresholds C and D."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._shared.array_types import Floats
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
    """Regret against communication: what does communication buy?"""

    name = "tradeoff"
    title = "Regret against communication"
    statement = (
        "Over different thresholds C and D there is a clear trade-off between regret and "
        "communication at T = 40 000, and the synchronous algorithm has the better one (figure 1d)."
    )
    thresholds_c = (1 / 400, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    multiples_d = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        sizes = {name: PAPER[name] for name in ("dim", "n_arms", "n_clients")}
        self.theorem_d: float = make(
            "sync", **sizes, horizon=PAPER["horizon"], preset="theory"
        ).trigger.D

    def describe_settings(self) -> dict[str, str]:
        """Return problem, thresholds and policies of the trade-off, in words."""
        return {
            "problem": PAPER_IN_WORDS,
            "async": f"preset `practical` with C = {format_list(self.thresholds_c)} "
            "(Theorem 1 has 1/M² = 0.0025), random arrivals",
            "sync": f"preset `practical` with D = {format_list(self.multiples_d)} times "
            f"Theorem 2's, which is {self.theorem_d:.4g}",
        }

    def list_cases(self) -> list[Case]:
        """Return async with each threshold C, and sync with each threshold D."""
        every = 2 if self.size == "quick" else 1
        by_c = [("async", "C", c) for c in self.thresholds_c[::every]]
        by_d = [("sync", "D", multiple * self.theorem_d) for multiple in self.multiples_d[::every]]
        return [
            Case({"policy": name, "threshold": value}, {"name": name, key: value}, PAPER)
            for name, key, value in (*by_c, *by_d)
        ]

    def draw(self, measured: Measured) -> Figure:
        """Draw regret against communication, one point per threshold."""
        figure, (axes,) = make_panels(
            f"Regret against communication, T = 40 000 ({self.n_seeds} seeds)", 1
        )
        for number, policy in enumerate(POLICIES):
            thresholds = self.list_thresholds(measured, policy)
            spent = [
                measured.values("communication", policy=policy, threshold=each).mean()
                for each in thresholds
            ]
            lost = [measured.values("regret", policy=policy, threshold=each) for each in thresholds]
            name = "C" if policy == "async" else "D"
            low, high = format_compact(thresholds[0]), format_compact(thresholds[-1])
            label = f"{policy}, {name} from {low} (right) to {high} (left)"
            draw_points(axes, spent, lost, number=number, label=label)
        words = {"x": "communications until T", "y": "cumulative regret at T (95 % intervals)"}
        finish_panel(
            axes, title="Each point is a threshold", **words, log="x", legend="upper right"
        )
        return figure

    def list_thresholds(self, measured: Measured, policy: str) -> list[float]:
        """Return the thresholds of a policy, lowest first."""
        return sorted(
            row["threshold"]
            for row in measured.rows
            if row["policy"] == policy and row["seed"] == 0
        )

    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return the verdicts on both trade-offs, and on which is better."""
        tradeoffs = (self.judge_tradeoff(measured, policy) for policy in POLICIES)
        return [*tradeoffs, self.judge_better(measured)]

    def judge_tradeoff(self, measured: Measured, policy: str) -> Verdict:
        """Return the verdict on whether a higher threshold trades regret for communication."""
        ends = [
            {
                what: measured.values(what, policy=policy, threshold=each)
                for what in ("regret", "communication")
            }
            for each in (self.list_thresholds(measured, policy)[at] for at in (0, -1))
        ]
        low, high = ends
        outcome = combine_outcomes(
            [
                compute_difference(high["communication"], low["communication"]).less,
                compute_difference(low["regret"], high["regret"]).less,
            ]
        )
        listed = "; ".join(
            f"{which} threshold: regret {format_mean_error(end['regret'])} "
            f"at communication {format_mean_error(end['communication'])}"
            for which, end in (("lowest", low), ("highest", high))
        )
        return Verdict(
            f"{policy}: a clear trade-off of regret against communication",
            "paper",
            PRACTICAL,
            listed,
            outcome,
        )

    def judge_better(self, measured: Measured) -> Verdict:
        """Return the verdict on which policy has less regret at the same communication.

        Between thresholds, regret is interpolated on logarithmic axes, seed by seed.
        """
        curves = {policy: self.collect_by_seed(measured, policy) for policy in POLICIES}
        low = max(spent[:, 0].max() for spent, _ in curves.values())
        high = min(spent[:, -1].min() for spent, _ in curves.values())
        levels = np.geomspace(low, high, LEVELS)
        apart = [
            self.interpolate(curves["sync"], level) - self.interpolate(curves["async"], level)
            for level in levels
        ]
        found = [compute_difference(each, np.zeros_like(each)) for each in apart]
        outcomes = [each.less for each in found]
        outcome = HOLDS if set(outcomes) == {HOLDS} else FAILS if FAILS in outcomes else OPEN
        listed = "; ".join(
            f"at {level:,.0f}: {format_percent(each)}"
            for level, each in zip(levels, found, strict=True)
        )
        numbers = f"regret of sync against async at equal communication: {listed}"
        return Verdict("sync has the better trade-off", "paper", PRACTICAL, numbers, outcome)

    def collect_by_seed(self, measured: Measured, policy: str) -> tuple[Floats, Floats]:
        """Return communication and ln regret as seeds × thresholds, least communication first."""
        thresholds = self.list_thresholds(measured, policy)[::-1]
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
    def interpolate(curve: tuple[Floats, Floats], level: float) -> Floats:
        """Return ln regret at a level of communication, one number per seed."""
        return np.array(
            [
                np.interp(np.log(level), np.log(spent), lost)
                for spent, lost in zip(*curve, strict=True)
            ]
        )


def format_list(values: Iterable[float]) -> str:
    """Return the thresholds of the trade-off as a list in words."""
    return ", ".join(f"{value:g}" for value in values)


def format_percent(found: Difference) -> str:
    """Return how far two trade-offs are apart, a difference of ln regret, as a percentage.

    Its interval is in brackets.
    """
    mean, low, high = (100 * np.expm1(value) for value in (found.mean, found.low, found.high))
    return f"{mean:+.0f} % [{low:+.0f}, {high:+.0f}]"
