"""Theorem 4, which the paper does not measure: regret of robust and async as C_p grows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.array_types import Floats
from ..view.style import GREY
from .experiment import PAPER, Case, Experiment, Measured
from .figures import draw_guide, draw_points, finish_panel, make_panels
from .fits import fit_exponents
from .formatting import format_mean_error, format_number
from .verdicts import HOLDS, Verdict, combine_outcomes, compute_difference, judge_no_more

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ROBUST, ASYNC, POLICIES = "robust", "async", ("robust", "async")
ADVERSARIES = {
    "early": "shows −θ from the first pull on",
    "targeted": "makes the best arm look like the worst",
    "random": "adds anything on a tenth of the pulls",
}
NO_ADVERSARY = "none"
BUDGETS = (0, 10, 30, 100, 300, 1000)


class Corruption(Experiment):
    """Corrupted rewards: what does an adversary cost?"""

    name = "corruption"
    title = "Corrupted rewards"
    statement = (
        "Where an adversary changes the rewards by at most C_p in all, robust has regret "
        "Õ(√(dT) + d C_p) (section 4.2, Theorem 4; the paper does not measure it)."
    )

    def describe_settings(self) -> dict[str, str]:
        """Return problem, adversaries and policies of the experiment, in words."""
        return {
            "problem": "d = 25, K = 20, M = 20, T = 40 000; contexts uniform on the sphere, random "
            "arrivals, Gaussian noise of variance 0.01; "
            f"C_p = {', '.join(map(str, self.choose_budgets()))}",
            **{
                f"adversary {name}": f"{does}, until C_p is spent"
                for name, does in ADVERSARIES.items()
            },
            ROBUST: "preset `practical`; given σ = 0.1 and C_p "
            "(given 0, it is async with its own preset)",
            ASYNC: "preset `practical`; given σ = 0.1 and nothing about the adversary",
            "robust, not attacked": "given C_p, but rewards are honest: what readiness alone costs",
        }

    def choose_budgets(self) -> tuple[int, ...]:
        """Return the corruption budgets C_p to run, for the size of the experiment."""
        return (0, 30, 300) if self.size == "quick" else BUDGETS

    def list_cases(self) -> list[Case]:
        """Return robust and async at each budget, against each adversary and none."""
        honest = {**PAPER, "noise": "corrupted", "corruption": 0}
        cases = []
        for budget in self.choose_budgets():
            policies: dict[str, dict[str, Any]] = {
                ROBUST: {"name": ROBUST, "corruption": budget},
                ASYNC: {"name": ASYNC},
            }
            for adversary in ADVERSARIES:
                problem = (
                    honest | {"corruption": budget, "adversary": adversary} if budget else honest
                )
                for policy, keywords in policies.items():
                    cases.append(make_case(adversary, policy, budget, keywords, problem))
            cases.append(make_case(NO_ADVERSARY, ROBUST, budget, policies[ROBUST], honest))
        return cases

    def draw(self, measured: Measured) -> Figure:
        """Draw regret against the budget, one panel per adversary."""
        seeds = f"{self.n_seeds} seeds, 95 % confidence intervals"
        title = f"Corrupted rewards, preset practical, T = 40 000 ({seeds})"
        figure, axes = make_panels(title, 3)
        budgets = list_budgets(measured)
        uniform = measured.values("uniform_regret", adversary=NO_ADVERSARY).mean()
        ready = [get_regret(measured, NO_ADVERSARY, ROBUST, budget).mean() for budget in budgets]
        lowest = min(ready)
        for each, (adversary, does) in zip(axes, ADVERSARIES.items(), strict=True):
            for at, (policy, label) in enumerate(
                {ROBUST: "robust, given C_p", ASYNC: "async, not given C_p"}.items()
            ):
                values = [get_regret(measured, adversary, policy, budget) for budget in budgets]
                draw_points(each, budgets, values, number=at, label=label)
                lowest = min(lowest, *(value.mean() for value in values))
            each.plot(
                budgets,
                ready,
                "o",
                color=GREY,
                fillstyle="none",
                markersize=11,
                label="robust, given C_p, not attacked",
            )
            draw_guide(each, budgets, [uniform] * len(budgets), label="uniform play")
            each.set_xscale("symlog", linthresh=budgets[1], linscale=0.5)
            words = {
                "x": "C_p, what the adversary may change in all",
                "y": "cumulative regret at T",
            }
            finish_panel(each, title=f"{adversary}: {does}", **words, log="y", legend="upper left")
            each.set_xticks(budgets)
        for each in axes:
            each.set_ylim(lowest / 3, 50 * uniform)  # room for the legend
        return figure

    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return the verdicts on Theorem 4 and on what robustness costs."""
        by_adversary = [
            judge_claim(measured, adversary)
            for adversary in ADVERSARIES
            for judge_claim in (judge_robustness, judge_at_most_linear)
        ]
        return [*by_adversary, judge_zero_budget(measured), judge_readiness(measured)]


def make_case(
    adversary: str, policy: str, budget: int, keywords: dict[str, Any], problem: dict[str, Any]
) -> Case:
    """Make the case of a policy under one adversary, with one corruption budget."""
    labels = {"adversary": adversary, "policy": policy, "budget": budget}
    return Case(labels, keywords | {"noise_scale": PAPER["noise_scale"]}, problem)


def get_regret(measured: Measured, adversary: str, policy: str, budget: int) -> Floats:
    """Return the regret of a policy under an adversary at one corruption budget, one per seed."""
    return measured.values("regret", adversary=adversary, policy=policy, budget=budget)


def list_budgets(measured: Measured) -> list[int]:
    """Return the corruption budgets C_p that were run, lowest first."""
    return sorted(measured.choices("budget"))


def format_by_budget(measured: Measured, adversary: str, policy: str) -> str:
    """Return the regret of a policy at each corruption budget, in words."""
    return ", ".join(
        f"{format_mean_error(get_regret(measured, adversary, policy, each))} ({each})"
        for each in list_budgets(measured)
    )


def judge_robustness(measured: Measured, adversary: str) -> Verdict:
    """Return the verdict on whether robust has less regret than async at the most corruption."""
    budgets = [budget for budget in list_budgets(measured) if budget]
    outcomes = [
        compute_difference(
            *(get_regret(measured, adversary, each, budget) for each in POLICIES)
        ).less
        for budget in budgets
    ]
    lower = ", ".join(
        str(budget) for budget, outcome in zip(budgets, outcomes, strict=True) if outcome == HOLDS
    )
    return Verdict(
        f"robust has lower regret than async at the largest C_p, {budgets[-1]:,}",
        "ours",
        f"practical, adversary {adversary}",
        f"regret (C_p): robust {format_by_budget(measured, adversary, ROBUST)}; "
        f"async {format_by_budget(measured, adversary, ASYNC)}; "
        f"robust is lower at C_p = {lower or 'none'}",
        outcomes[-1],
    )


def judge_at_most_linear(measured: Measured, adversary: str) -> Verdict:
    """Return the verdict on whether the regret of robust grows no faster than the corruption C_p.

    A line a + b C_p with a ≥ 0 grows like a power of at most 1 between any two C_p.
    """
    budgets = [budget for budget in list_budgets(measured) if budget]
    values = [get_regret(measured, adversary, ROBUST, budget) for budget in budgets]
    steps = [
        (budgets[at : at + 2], fit_exponents(budgets[at : at + 2], values[at : at + 2]))
        for at in range(len(budgets) - 1)
    ]
    bounds = [
        math.sqrt(PAPER["dim"] * PAPER["horizon"]) + PAPER["dim"] * budget for budget in budgets
    ]
    largest = max(each.mean() / bound for each, bound in zip(values, bounds, strict=True))
    of_uniform = measured.values(
        "percent_of_uniform", adversary=adversary, policy=ROBUST, budget=budgets[-1]
    ).mean()
    listed = ", ".join(
        f"{format_mean_error(powers)} ({low} to {high})" for (low, high), powers in steps
    )
    return Verdict(
        "regret of robust grows no faster than C_p",
        "theorem",
        f"practical, adversary {adversary}",
        f"it goes like C_p^p with p = {listed}; "
        f"it is at most {format_number(largest)} × (√(dT) + d C_p), and "
        f"{of_uniform:.0f} % of that of uniform play at C_p = {budgets[-1]}",
        combine_outcomes(
            [compute_difference(powers, np.ones_like(powers)).less for _, powers in steps]
        ),
    )


def judge_zero_budget(measured: Measured) -> Verdict:
    """Return the verdict on whether robust, at corruption 0, has no more regret than async."""
    robust = get_regret(measured, NO_ADVERSARY, ROBUST, 0)
    plain = get_regret(measured, next(iter(ADVERSARIES)), ASYNC, 0)
    return Verdict(
        "given C_p = 0, robust has no more regret than async",
        "ours",
        "practical, C_p = 0",
        f"{format_mean_error(robust)} and {format_mean_error(plain)}, difference "
        f"{compute_difference(robust, plain)}: the same algorithm, each with its own preset",
        judge_no_more(robust, plain),
    )


def judge_readiness(measured: Measured) -> Verdict:
    """Return the verdict on whether robust, ready for corruption, costs nothing without it.

    Given a C_p that is never spent, it should have no more regret than async.
    """
    budgets, plain = list_budgets(measured), get_regret(measured, next(iter(ADVERSARIES)), ASYNC, 0)
    return Verdict(
        "given a C_p that is never spent, robust has no more regret than async",
        "ours",
        "practical, not attacked",
        f"regret (the C_p given): {format_by_budget(measured, NO_ADVERSARY, ROBUST)}; "
        f"async {format_mean_error(plain)}",
        combine_outcomes(
            [
                judge_no_more(get_regret(measured, NO_ADVERSARY, ROBUST, budget), plain)
                for budget in budgets
            ]
        ),
    )
