"""Experiment 2: regret per client for several numbers of clients, against SupLinUCB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._shared.array_types import Floats
from .experiment import PAPER, Case, Experiment, Measured
from .figures import draw_curve, finish_panel, make_panels
from .formatting import format_mean_error
from .verdicts import Verdict, combine_outcomes, compute_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ALONE = "suplinucb"
POLICIES = ("async", "sync")
PRACTICAL = "practical"


class Clients(Experiment):
    """Number of clients: does each of them learn faster among more?"""

    name = "clients"
    title = "Number of clients"
    statement = (
        "FedSupLinUCB significantly reduces the regret per client compared with SupLinUCB, and the "
        "more so the more clients there are, in both the asynchronous and the synchronous setting "
        "(figure 1c)."
    )
    record = "log"
    counts = (2, 5, 10, 20, 40)
    pulls_each: int = PAPER["horizon"] // PAPER["n_clients"]

    def describe_settings(self) -> dict[str, str]:
        """Return problem, numbers of clients and policies of the experiment, in words."""
        return {
            "problem": f"d = 25, K = 20, {self.pulls_each:,} pulls per client "
            f"(T = M · {self.pulls_each:,}), M = {self.counts}, contexts uniform on the unit "
            "sphere, Gaussian noise of variance 0.01; async: random arrivals",
            "policies": "the preset `practical`; SupLinUCB: 20 learners, each alone",
        }

    def list_cases(self) -> list[Case]:
        """Return each policy with each number of clients, and SupLinUCB alone."""
        found = [
            Case({"policy": name, "M": count}, {"name": name}, self.make_problem(count))
            for name in POLICIES
            for count in self.counts
        ]
        return [
            *found,
            Case({"policy": ALONE, "M": 1}, {"name": ALONE}, self.make_problem(PAPER["n_clients"])),
        ]

    def make_problem(self, count: int) -> dict[str, Any]:
        """Return the keywords of the experiment's problem with this many clients."""
        return PAPER | {"n_clients": count, "horizon": count * self.pulls_each}

    def draw(self, measured: Measured) -> Figure:
        """Draw the regret per client over its own pulls, one curve per number of clients."""
        figure, axes = make_panels(
            f"Regret per client, preset practical ({self.n_seeds} seeds, 95 % confidence bands)", 2
        )
        for each, policy in zip(axes, POLICIES, strict=True):
            for number, (name, count) in enumerate(
                [(ALONE, 1), *((policy, count) for count in self.counts)]
            ):
                pulls, values = measured.curve("regret", policy=name, M=count)
                players = PAPER["n_clients"] if name == ALONE else count
                label = "SupLinUCB (alone)" if name == ALONE else f"{policy}, M = {count}"
                draw_curve(each, pulls / players, values / players, number=number, label=label)
            finish_panel(
                each,
                title=policy,
                x="pulls of a client, T/M",
                y="cumulative regret of a client",
                legend="upper left",
            )
        top = max(each.get_ylim()[1] for each in axes)
        for each in axes:
            each.set_ylim(0, 1.45 * top)  # room for the legend
        return figure

    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return the verdicts on the regret per client of async and of sync."""
        alone = measured.values("regret", policy=ALONE, M=1) / PAPER["n_clients"]
        found = []
        for policy in POLICIES:
            each = {
                count: measured.values("regret", policy=policy, M=count) / count
                for count in self.counts
            }
            listed = "regret per client: " + ", ".join(
                f"M = {count}: {format_mean_error(values)}" for count, values in each.items()
            )
            found += [
                Verdict(
                    f"{policy}: every number of clients has lower regret per client than SupLinUCB",
                    "paper",
                    PRACTICAL,
                    f"{listed}; SupLinUCB: {format_mean_error(alone)}",
                    combine_outcomes(
                        [
                            compute_difference(values, alone, paired=False).less
                            for values in each.values()
                        ]
                    ),
                ),
                Verdict(
                    f"{policy}: regret per client falls as M grows",
                    "paper",
                    PRACTICAL,
                    listed,
                    judge_falling(list(each.values())),
                ),
            ]
        return found


def judge_falling(samples: list[Floats]) -> str:
    """Return the outcome for the claim that regret falls with each larger number of clients.

    Other numbers of clients are other problems, so the seeds are not pairs.
    """
    return combine_outcomes(
        [
            compute_difference(later, earlier, paired=False).less
            for earlier, later in zip(samples, samples[1:], strict=False)
        ]
    )
