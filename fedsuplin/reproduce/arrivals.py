"""Experiment 1: regret and communication of async under three arrival patterns, and of sync."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._shared.array_types import Floats
from ..view.style import YLABELS
from .experiment import PAPER, PAPER_IN_WORDS, Case, Experiment, Measured
from .figures import draw_curve, finish_panel, make_panels
from .formatting import format_mean_error
from .verdicts import Verdict, combine_outcomes, compute_difference, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PATTERNS = ("random", "round-robin", "click-leave")
SYNC = "sync"
PRACTICAL, THEOREM_C, THEORY = "practical", "practical, C = 1/M²", "theory"


class Arrivals(Experiment):
    """Arrival patterns: which client plays when."""

    name = "arrivals"
    title = "Arrival patterns"
    statement = (
        "Click-leave, the pattern closest to one central learner, has the lowest regret of the "
        "asynchronous runs; the synchronous algorithm has lower regret than the asynchronous one, "
        "at a higher communication cost (figures 1a and 1b)."
    )
    record = "log"

    def describe_settings(self) -> dict[str, str]:
        """Return problem, arrival patterns and policies of the experiment, in words."""
        return {
            "problem": PAPER_IN_WORDS,
            PRACTICAL: "the preset `practical` as it is: what the figure shows",
            THEOREM_C: "its radii, with the theorem's C",
            THEORY: "the constants of Theorems 1 and 2, with the noise's σ = 0.1",
        }

    def list_cases(self) -> list[Case]:
        """Return each arrival pattern, and sync, in each setting."""
        theory = {"preset": "theory", "noise_scale": PAPER["noise_scale"]}
        settings: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            PRACTICAL: ({}, {}),
            THEOREM_C: ({"C": 1 / PAPER["n_clients"] ** 2}, {}),
            THEORY: (theory, theory),
        }
        if self.size == "quick":
            del settings[THEORY]
        cases = []
        for setting, (for_async, for_sync) in settings.items():
            for pattern in PATTERNS:
                labels = {"setting": setting, "pattern": pattern}
                cases.append(
                    Case(labels, {"name": "async", **for_async}, {**PAPER, "arrival": pattern})
                )
            cases.append(
                Case({"setting": setting, "pattern": SYNC}, {"name": "sync", **for_sync}, PAPER)
            )
        return cases

    def draw(self, measured: Measured) -> Figure:
        """Draw regret and communication over the pulls, one curve per pattern."""
        figure, axes = make_panels(
            f"Arrival patterns, preset practical ({self.n_seeds} seeds, 95 % confidence bands)", 2
        )
        for each, what, title in zip(
            axes, ("regret", "communication"), ("Regret", "Communication"), strict=True
        ):
            for number, pattern in enumerate((*PATTERNS, SYNC)):
                pulls, values = measured.curve(what, setting=PRACTICAL, pattern=pattern)
                label = "sync" if pattern == SYNC else f"async, {pattern}"
                draw_curve(each, pulls, values, number=number, label=label)
            finish_panel(
                each,
                title=title,
                x="pulls of all clients",
                y=YLABELS[what],
                legend="lower right" if what == "regret" else None,
            )
        return figure

    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return the verdicts on the arrival patterns, in each setting."""
        return [
            verdict
            for setting in measured.choices("setting")
            for verdict in judge_setting(measured, setting)
        ]


def judge_setting(measured: Measured, setting: str) -> list[Verdict]:
    """Return the verdicts on the arrival patterns, of the paper and its draft, in one setting."""

    def of(what: str, pattern: str) -> Floats:
        return measured.values(what, setting=setting, pattern=pattern)

    def list_values(what: str) -> str:
        return ", ".join(
            f"{pattern} {format_mean_error(of(what, pattern))}" for pattern in (*PATTERNS, SYNC)
        )

    def less(what: str, pattern: str, others: tuple[str, ...]) -> str:
        return combine_outcomes(
            [compute_difference(of(what, pattern), of(what, other)).less for other in others]
        )

    def more_communication(pattern: str, others: tuple[str, ...]) -> str:
        return combine_outcomes(
            [
                compute_difference(of("communication", other), of("communication", pattern)).less
                for other in others
            ]
        )

    random, round_robin = of("communication", "random"), of("communication", "round-robin")
    apart = abs(random.mean() / round_robin.mean() - 1)
    return [
        Verdict(
            "click-leave has the lowest regret of the async runs",
            "paper",
            setting,
            f"regret: {list_values('regret')}",
            less("regret", "click-leave", ("random", "round-robin")),
        ),
        Verdict(
            "sync has lower regret than async with the same arrivals, round-robin",
            "paper",
            setting,
            f"regret: sync {format_mean_error(of('regret', SYNC))}, "
            f"async {format_mean_error(of('regret', 'round-robin'))}",
            less("regret", SYNC, ("round-robin",)),
        ),
        Verdict(
            "sync has lower regret than async with any arrivals",
            "paper",
            setting,
            f"regret: {list_values('regret')}",
            less("regret", SYNC, PATTERNS),
        ),
        Verdict(
            "sync communicates more than async with any arrivals",
            "paper",
            setting,
            f"communication: {list_values('communication')}",
            more_communication(SYNC, PATTERNS),
        ),
        Verdict(
            "random and round-robin nearly coincide in communication (within 5 %)",
            "draft",
            setting,
            f"{format_mean_error(random)} and {format_mean_error(round_robin)}, "
            f"{100 * apart:.1f} % apart",
            judge(apart < 0.05),
        ),
        Verdict(
            "click-leave communicates more than random and round-robin",
            "draft",
            setting,
            f"communication: {list_values('communication')}",
            more_communication("click-leave", PATTERNS[:2]),
        ),
    ]
