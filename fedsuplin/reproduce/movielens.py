"""Experiment 4: reward on MovieLens ratings against random play, for several numbers of users."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.array_types import Floats
from ..errors import InvalidInput
from ..problems.movielens import MovieLensProblem
from ..study.sweeps import SweepResult
from .clients import ALONE, POLICIES, PRACTICAL
from .experiment import Case, Experiment, Measured
from .figures import draw_curve, finish_panel, make_panels
from .formatting import format_mean_error
from .verdicts import Verdict, combine_outcomes, compute_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PAPER_USERS, PAPER_DIM = 37, 25


class MovieLens(Experiment):
    """MovieLens: real ratings, one client per user."""

    name = "movielens"
    title = "MovieLens"
    statement = (
        "On MovieLens 20M (37 users with more than 2500 positive ratings, 121 934 interactions, "
        "TF-IDF features, d = 25, K = 20) the rewards per client, normalised by a random "
        "strategy's, are above SupLinUCB's, and the more so the more users there are, asynchronous "
        "and synchronous (figure 2)."
    )
    record = "log"
    measures = ("ratio", "reward", "communication")
    counts = (5, 10, 20, 37)
    pulls_each = {"quick": 300, "normal": 2000, "full": 10_000}

    def explain_missing(self) -> str | None:
        """Return how to get the MovieLens release that is needed, or None if one was given."""
        if self.options.movielens is not None:
            return None
        return (
            "it needs a MovieLens release: get one at grouplens.org/datasets/movielens and name "
            "its folder with --movielens"
        )

    @functools.cached_property
    def release(self) -> dict[str, Any]:
        """Keywords of the experiment's problem: the paper's users and dimension, if possible.

        A release may have too few users or words for that.
        """
        folder = str(self.options.movielens)
        smallest = MovieLensProblem(folder, dim=1, most_active=PAPER_USERS)
        chosen: dict[str, Any] = {"folder": folder, "dim": min(PAPER_DIM, smallest.n_words - 1)}
        try:
            MovieLensProblem(**chosen)
        except InvalidInput:  # no user has more than 2500 positive ratings
            return {**chosen, "most_active": PAPER_USERS}
        return chosen

    def describe_settings(self) -> dict[str, str]:
        """Return data, rounds and policies of the experiment, in words."""
        problem = MovieLensProblem(**self.release)
        most = "most_active" in self.release
        which = (
            "the users with the most ratings above 3"
            if most
            else "the users with more than 2500 ratings above 3"
        )
        return {
            "data": f"{Path(problem.folder).name}: {problem.n_users} users ({which}), "
            f"{problem.n_positives:,} of these; "
            "the paper has ml-20m, 37 users, 121,934 interactions",
            "features": f"TF-IDF of {problem.n_words:,} words of genres and tags of "
            f"{problem.n_movies:,} movies, reduced to d = {problem.dim} "
            f"({100 * problem.explained_variance:.0f} % of the variance), length 1",
            "rounds": "K = 20: one movie that the user rated above 3, at a random place, and 19 "
            f"that the user has not rated; {self.pulls_each[self.size]:,} rounds per client; "
            "random play has 1/20",
            "policies": "the preset `practical` with σ = 1/2, since the reward is 0 or 1; "
            "SupLinUCB: each user alone; async and SupLinUCB: random arrivals",
        }

    def list_cases(self) -> list[Case]:
        """Return each policy, and SupLinUCB, with each number of users."""
        return [
            Case({"policy": name, "M": count}, {"name": name}, self.make_problem(count))
            for name in (ALONE, *POLICIES)
            for count in self.counts
        ]

    def make_problem(self, count: int) -> dict[str, Any]:
        """Return the keywords of the experiment's problem with this many users."""
        return {
            "name": "movielens",
            **self.release,
            "n_clients": count,
            "horizon": count * self.pulls_each[self.size],
        }

    def collect(self, found: SweepResult) -> Measured:
        """Return the experiment's runs, with the reward relative to random play as `ratio`.

        One arm pays 1 in each round, so random play has `pulls − uniform_regret`.
        """
        measured = super().collect(found)
        curves = [curve for curve in measured.curves if curve is not None]
        for each in (*measured.rows, *curves):
            each["ratio"] = each["reward"] / (each["pulls"] - each["uniform_regret"])
        return measured

    def draw(self, measured: Measured) -> Figure:
        """Draw the normalised reward over the rounds, one curve per number of users."""
        figure, axes = make_panels(
            f"MovieLens: reward against random play ({self.n_seeds} seeds, 95 % confidence bands)",
            2,
        )
        for each, policy in zip(axes, POLICIES, strict=True):
            shown = [(ALONE, self.counts[-1]), *((policy, count) for count in self.counts)]
            for number, (name, count) in enumerate(shown):
                pulls, values = measured.curve("ratio", policy=name, M=count)
                later = pulls >= count * 10  # before that, it is a ratio of two small sums
                label = (
                    f"SupLinUCB (alone), {count} users"
                    if name == ALONE
                    else f"{policy}, M = {count}"
                )
                draw_curve(each, pulls[later] / count, values[:, later], number=number, label=label)
            finish_panel(
                each,
                title=policy,
                x="rounds of a client, T/M",
                y="cumulative reward / random play's",
                legend=None,
            )
        top = max(each.get_ylim()[1] for each in axes)
        for each in axes:
            each.set_ylim(0, top)
            each.legend(loc="lower right", frameon=False, fontsize=9)
        return figure

    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return the verdicts after one pass over the positive ratings, and at the end.

        One pass is as many rounds as a user has positive ratings on average, as in the paper.
        """
        problem = MovieLensProblem(**self.release)
        end = self.pulls_each[self.size]
        once = min(end, problem.n_positives // problem.n_users)
        return [
            verdict
            for rounds in dict.fromkeys((once, end))
            for policy in POLICIES
            for verdict in self.judge_policy(measured, policy, rounds)
        ]

    def judge_policy(self, measured: Measured, policy: str, rounds: int) -> list[Verdict]:
        """Return the verdicts on a policy after this many rounds per client."""
        of = {
            name: [compute_ratio_after(measured, name, count, rounds) for count in self.counts]
            for name in (policy, ALONE)
        }
        pairs = list(zip(self.counts, of[policy], of[ALONE], strict=True))
        listed = "; ".join(
            f"M = {count}: {format_mean_error(ours)}, SupLinUCB {format_mean_error(alone)}"
            for count, ours, alone in pairs
        )
        ahead = [ours - alone for _, ours, alone in pairs]
        setting = f"{PRACTICAL}, after {rounds:,} rounds per client"
        return [
            Verdict(
                f"{policy}: normalised reward above SupLinUCB's, for every number of users",
                "paper",
                setting,
                f"reward / random play's: {listed}",
                combine_outcomes(
                    [compute_difference(alone, ours, paired=False).less for _, ours, alone in pairs]
                ),
            ),
            Verdict(
                f"{policy}: the more users, the larger the advantage",
                "paper",
                setting,
                "advantage: "
                + ", ".join(
                    f"M = {m}: {format_mean_error(each)}"
                    for m, each in zip(self.counts, ahead, strict=True)
                ),
                combine_outcomes(
                    [
                        compute_difference(fewer, more, paired=False).less
                        for fewer, more in zip(ahead, ahead[1:], strict=False)
                    ]
                ),
            ),
        ]


def compute_ratio_after(measured: Measured, policy: str, count: int, rounds: int) -> Floats:
    """Return the reward on MovieLens relative to random play after this many rounds, per seed.

    It is read at the nearest recorded pull.
    """
    pulls, values = measured.curve("ratio", policy=policy, M=count)
    return values[:, np.abs(pulls - count * rounds).argmin()]
