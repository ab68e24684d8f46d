"""Theorem 3, which the paper does not measure: regret of variance and async as Σσ_t² shrinks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .experiment import PAPER, Case, Experiment, Measured
from .figures import draw_guide, draw_points, finish_panel, make_panels
from .fits import fit_exponents
from .formatting import format_mean_error, format_number
from .verdicts import Verdict, compute_difference, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure


R = 1.0
VARIANCE, BLIND, INFORMED = "variance", "async, given R", "async, given the rms of σ_t"
LEVELS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # the largest σ_t; σ_t is uniform below it


class VarianceAdaptive(Experiment):
    """Known noise levels: what is it worth to know σ_t?"""

    name = "variance"
    title = "Known noise levels"
    statement = (
        "Where the clients know their σ_t, regret is Õ(√(d Σσ_t²)), significantly less than that "
        "of async when the variances are small (section 4.1, Theorem 3; the paper does not measure "
        "it)."
    )

    def describe_settings(self) -> dict[str, str]:
        """Return problem, noise and policies of the experiment, in words."""
        levels = ", ".join(f"{level:g}" for level in self.choose_levels())
        return {
            "problem": "d = 25, K = 20, M = 20, T = 40 000; contexts uniform on the sphere, random "
            "arrivals; noise ±R with probability σ_t²/(2R²) each, else 0, with R = 1 and σ_t "
            "uniform on [0, σ_max], so that Σσ_t² is T σ_max²/3 on average; "
            f"σ_max = {levels}",
            VARIANCE: "preset `practical`; given R, and σ_t with each reward",
            BLIND: "preset `practical`, with the σ that the bound alone allows: R",
            INFORMED: "preset `practical`, with σ = √(Σσ_t²/T), which is more than a client of "
            "Theorem 1 could know, and less than the theorem's σ must be",
        }

    def choose_levels(self) -> tuple[float, ...]:
        """Return the largest noise levels to run, for the size of the experiment."""
        return LEVELS[::3] if self.size == "quick" else LEVELS

    def list_cases(self) -> list[Case]:
        """Return each player at each noise level."""
        sizes = {name: value for name, value in PAPER.items() if name != "noise_scale"}
        cases = []
        for level in self.choose_levels():
            problem = {**sizes, "noise": "bounded", "R": R, "sigma_high": level}
            policies = {
                VARIANCE: {"name": "variance", "R": R},
                BLIND: {"name": "async", "noise_scale": R},
                INFORMED: {
                    "name": "async",
                    "noise_scale": math.sqrt(compute_total_variance(level) / PAPER["horizon"]),
                },
            }
            cases += [
                Case(
                    {
                        "player": player,
                        "sigma_max": level,
                        "total_variance": compute_total_variance(level),
                    },
                    policy,
                    problem,
                )
                for player, policy in policies.items()
            ]
        return cases

    def draw(self, measured: Measured) -> Figure:
        """Draw regret and communication against Σσ_t², one line per player."""
        seeds = f"{self.n_seeds} seeds, 95 % confidence intervals"
        title = f"Known noise levels, preset practical ({seeds})"
        figure, (regret, communication) = make_panels(title, 2)
        levels = list_levels(measured)
        x = [compute_total_variance(level) for level in levels]
        for at, player in enumerate((VARIANCE, BLIND, INFORMED)):
            for axes, what in ((regret, "regret"), (communication, "communication")):
                values = [measured.values(what, player=player, sigma_max=level) for level in levels]
                draw_points(axes, x, values, number=at, label=player)
        draw_guide(
            regret, x, [compute_root(level) for level in levels], label="√(d Σσ_t²) (constant 1)"
        )
        regret.set(yscale="log")
        regret.set_ylim(top=20 * regret.get_ylim()[1])  # room for the legend
        communication.set_ylim(top=1.3 * communication.get_ylim()[1])
        sums = "Σσ_t² over the T pulls"
        finish_panel(
            regret,
            title="Regret",
            x=sums,
            y="cumulative regret at T",
            log="xy",
            legend="upper left",
        )
        finish_panel(
            communication,
            title="Communication",
            x=sums,
            y="communications until T",
            log="x",
            legend="upper left",
        )
        return figure

    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return the verdicts on Theorem 3 and on what knowing σ_t is worth."""
        levels = list_levels(measured)
        three = (levels[0], levels[len(levels) // 2], levels[-1])
        return [
            *(
                judge_against(measured, BLIND, level, "paper" if level == levels[0] else "ours")
                for level in three
            ),
            judge_fall(measured, levels),
            judge_like_root(measured, levels[-3:]),
            judge_like_root(measured, levels),
            judge_no_gain(measured, levels),
            *(judge_against(measured, INFORMED, level, "ours") for level in three),
            judge_communication(measured, levels[0]),
        ]


def compute_total_variance(level: float) -> float:
    """Return the total variance Σσ_t² on average, for σ_t uniform on [0, level]."""
    return float(PAPER["horizon"] * level**2 / 3)


def compute_root(level: float) -> float:
    """Return √(d Σσ_t²), which the regret of variance should follow."""
    return math.sqrt(PAPER["dim"] * compute_total_variance(level))


def list_levels(measured: Measured) -> list[float]:
    """Return the noise levels at which variance was run, lowest first."""
    return sorted(measured.choices("sigma_max"))


def format_level(level: float) -> str:
    """Return the setting of a verdict on variance at one noise level."""
    return f"practical, Σσ_t² = {format_number(compute_total_variance(level))}"


def judge_against(measured: Measured, other: str, level: float, source: str) -> Verdict:
    """Return the verdict on whether variance has less regret than another player."""
    ours, theirs = (
        measured.values("regret", player=player, sigma_max=level) for player in (VARIANCE, other)
    )
    apart = compute_difference(ours, theirs)
    return Verdict(
        f"variance has lower regret than {other}",
        source,
        format_level(level),
        f"{format_mean_error(ours)} and {format_mean_error(theirs)}, difference {apart}",
        apart.less,
    )


def judge_fall(measured: Measured, levels: list[float]) -> Verdict:
    """Return the verdict on whether the regret of variance falls with Σσ_t²."""
    values = [measured.values("regret", player=VARIANCE, sigma_max=level) for level in levels]
    listed = ", ".join(
        f"{format_mean_error(each)} ({format_number(compute_total_variance(level))})"
        for each, level in zip(values, levels, strict=True)
    )
    return Verdict(
        "regret of variance falls as Σσ_t² shrinks, from its largest to its smallest",
        "theorem",
        "practical, all levels",
        f"regret (Σσ_t²): {listed}",
        compute_difference(values[0], values[-1]).less,
    )


def judge_like_root(measured: Measured, levels: list[float]) -> Verdict:
    """Return the verdict on whether the regret of variance falls as fast as √Σσ_t²."""
    values = [measured.values("regret", player=VARIANCE, sigma_max=level) for level in levels]
    powers = fit_exponents([compute_total_variance(level) for level in levels], values)
    shares = [each.mean() / compute_root(level) for each, level in zip(values, levels, strict=True)]
    half = np.full_like(powers, 0.5)
    low, high = (format_number(compute_total_variance(levels[at])) for at in (0, -1))
    return Verdict(
        "regret of variance falls at least as fast as √Σσ_t²",
        "theorem",
        f"practical, Σσ_t² from {high} to {low}",
        f"it goes like (Σσ_t²)^p with p = {format_mean_error(powers)}; "
        f"from {format_number(shares[-1])} to {format_number(shares[0])} times √(d Σσ_t²) "
        f"(the proof also has an Õ(d) that the theorem does not state; d = {PAPER['dim']})",
        compute_difference(half, powers).less,
    )


def judge_no_gain(measured: Measured, levels: list[float]) -> Verdict:
    """Return the verdict on whether async with R alone gains nothing from less variance."""
    low, high = (
        measured.values("regret", player=BLIND, sigma_max=level)
        for level in (levels[0], levels[-1])
    )
    change = low.mean() / high.mean() - 1
    return Verdict(
        "async that is given only R gains nothing from less noise (within 5 %)",
        "ours",
        "practical, all levels",
        f"{format_mean_error(high)} at the largest Σσ_t², {format_mean_error(low)} at the "
        f"smallest, {100 * change:+.1f} %",
        judge(abs(change) < 0.05),
    )


def judge_communication(measured: Measured, level: float) -> Verdict:
    """Return the verdict on whether variance communicates less than async with R alone."""
    ours, theirs = (
        measured.values("communication", player=player, sigma_max=level)
        for player in (VARIANCE, BLIND)
    )
    return Verdict(
        f"variance communicates less than {BLIND}",
        "ours",
        format_level(level),
        f"communication {format_mean_error(ours)} and {format_mean_error(theirs)}",
        compute_difference(ours, theirs).less,
    )
