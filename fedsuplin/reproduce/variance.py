"""What knowing the noise level is worth: regret of variance against async as Σσ_t² shrinks, which the paper does not measure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from . import figures
from .experiment import PAPER, Case, Experiment, Measured
from .fits import exponents
from .verdicts import Verdict, difference, judged, mean_error, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

R = 1.0
VARIANCE, BLIND, TOLD = "variance", "async, told R", "async, told the rms of σ_t"
LEVELS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # the largest σ_t; they are uniform below it


class VarianceAdaptive(Experiment):
    name = "variance"
    title = "Known noise levels"
    says = (
        "Where the clients are told their σ_t, regret is Õ(√(d Σσ_t²)), significantly less than that of async when the "
        "variances are small (section 4.1, Theorem 3; the paper does not measure it)."
    )

    def settings(self) -> dict[str, str]:
        return {
            "problem": "d = 25, K = 20, M = 20, T = 40 000; contexts uniform on the sphere, random arrivals; noise ±R with "
            "probability σ_t²/(2R²) each, else 0, with R = 1 and σ_t uniform on [0, σ_max], so that Σσ_t² is "
            f"T σ_max²/3 on average; σ_max = {', '.join(f'{level:g}' for level in self.levels())}",
            VARIANCE: "preset `practical`; told R, and σ_t with each reward",
            BLIND: "preset `practical`, with the σ that the bound alone allows: R",
            TOLD: "preset `practical`, with σ = √(Σσ_t²/T), which is more than a client of Theorem 1 could know, and less than "
            "the theorem's σ must be",
        }

    def levels(self) -> tuple[float, ...]:
        return LEVELS[::3] if self.size == "quick" else LEVELS

    def cases(self) -> list[Case]:
        sizes = {name: value for name, value in PAPER.items() if name != "noise_scale"}
        cases = []
        for level in self.levels():
            problem = {**sizes, "noise": "bounded", "R": R, "sigma_high": level}
            policies = {
                VARIANCE: {"name": "variance", "R": R},
                BLIND: {"name": "async", "noise_scale": R},
                TOLD: {"name": "async", "noise_scale": math.sqrt(total(level) / PAPER["horizon"])},
            }
            cases += [
                Case({"player": player, "sigma_max": level, "total_variance": total(level)}, policy, problem)
                for player, policy in policies.items()
            ]
        return cases

    def draw(self, measured: Measured) -> Figure:
        title = f"Known noise levels, preset practical ({self.n_seeds} seeds, 95 % confidence intervals)"
        figure, (regret, communication) = figures.panels(title, 2)
        levels = levels_of(measured)
        x = [total(level) for level in levels]
        for at, player in enumerate((VARIANCE, BLIND, TOLD)):
            for axes, what in ((regret, "regret"), (communication, "communication")):
                values = [measured.values(what, player=player, sigma_max=level) for level in levels]
                figures.points(axes, x, values, number=at, label=player)
        figures.guide(regret, x, [root(level) for level in levels], label="√(d Σσ_t²) (constant 1)")
        regret.set(yscale="log")
        regret.set_ylim(top=20 * regret.get_ylim()[1])  # room for the legend
        communication.set_ylim(top=1.3 * communication.get_ylim()[1])
        sums = "Σσ_t² over the T pulls"
        figures.finish(regret, title="Regret", x=sums, y="cumulative regret at T", log="xy", legend="upper left")
        figures.finish(communication, title="Communication", x=sums, y="communications until T", log="x", legend="upper left")
        return figure

    def verdicts(self, measured: Measured) -> list[Verdict]:
        levels = levels_of(measured)
        three = (levels[0], levels[len(levels) // 2], levels[-1])
        return [
            *(against(measured, BLIND, level, "paper" if level == levels[0] else "ours") for level in three),
            falls(measured, levels),
            like_the_root(measured, levels[-3:]),
            like_the_root(measured, levels),
            gains_nothing(measured, levels),
            *(against(measured, TOLD, level, "ours") for level in three),
            talks_no_more(measured, levels[0]),
        ]


def total(level: float) -> float:
    """Σσ_t² on average, for σ_t uniform on [0, level]."""
    return float(PAPER["horizon"] * level**2 / 3)


def root(level: float) -> float:
    """√(d Σσ_t²)."""
    return math.sqrt(PAPER["dim"] * total(level))


def levels_of(measured: Measured) -> list[float]:
    return sorted(measured.choices("sigma_max"))


def at_level(level: float) -> str:
    return f"practical, Σσ_t² = {number(total(level))}"


def against(measured: Measured, other: str, level: float, source: str) -> Verdict:
    ours, theirs = (measured.values("regret", player=player, sigma_max=level) for player in (VARIANCE, other))
    apart = difference(ours, theirs)
    return Verdict(
        f"variance has lower regret than {other}",
        source,
        at_level(level),
        f"{mean_error(ours)} and {mean_error(theirs)}, difference {apart}",
        apart.less,
    )


def falls(measured: Measured, levels: list[float]) -> Verdict:
    values = [measured.values("regret", player=VARIANCE, sigma_max=level) for level in levels]
    told = ", ".join(f"{mean_error(each)} ({number(total(level))})" for each, level in zip(values, levels, strict=True))
    return Verdict(
        "regret of variance falls as Σσ_t² shrinks, from its largest to its smallest",
        "theorem",
        "practical, all levels",
        f"regret (Σσ_t²): {told}",
        difference(values[0], values[-1]).less,
    )


def like_the_root(measured: Measured, levels: list[float]) -> Verdict:
    values = [measured.values("regret", player=VARIANCE, sigma_max=level) for level in levels]
    powers = exponents([total(level) for level in levels], values)
    shares = [each.mean() / root(level) for each, level in zip(values, levels, strict=True)]
    half = np.full_like(powers, 0.5)
    return Verdict(
        "regret of variance falls at least as fast as √Σσ_t²",
        "theorem",
        f"practical, Σσ_t² from {number(total(levels[-1]))} to {number(total(levels[0]))}",
        f"it goes like (Σσ_t²)^p with p = {mean_error(powers)}; from {number(shares[-1])} to {number(shares[0])} times "
        f"√(d Σσ_t²) (the proof also has an Õ(d) that the theorem does not state; d = {PAPER['dim']})",
        difference(half, powers).less,
    )


def gains_nothing(measured: Measured, levels: list[float]) -> Verdict:
    low, high = (measured.values("regret", player=BLIND, sigma_max=level) for level in (levels[0], levels[-1]))
    change = low.mean() / high.mean() - 1
    return Verdict(
        "async that is told only R gains nothing from less noise (within 5 %)",
        "ours",
        "practical, all levels",
        f"{mean_error(high)} at the largest Σσ_t², {mean_error(low)} at the smallest, {100 * change:+.1f} %",
        judged(abs(change) < 0.05),
    )


def talks_no_more(measured: Measured, level: float) -> Verdict:
    ours, theirs = (measured.values("communication", player=player, sigma_max=level) for player in (VARIANCE, BLIND))
    return Verdict(
        f"variance communicates less than {BLIND}",
        "ours",
        at_level(level),
        f"communication {mean_error(ours)} and {mean_error(theirs)}",
        difference(ours, theirs).less,
    )
