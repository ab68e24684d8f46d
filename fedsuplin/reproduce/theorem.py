"""Theorems 1 and 2 at their own constants, over horizons that only a compiled loop reaches."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.arrays import Floats
from .._shared.text import format_compact
from ..algorithm.making import make
from ..contracts.claims import Bound
from .experiment import Case, Experiment, Measured
from .figures import draw_guide, draw_points, finish_panel, make_panels
from .fits import fit_exponents, fit_line
from .formatting import format_mean_error, format_number
from .verdicts import HOLDS, Verdict, combine_outcomes, compute_difference, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SMALL: dict[str, Any] = {"dim": 8, "n_arms": 8, "n_clients": 4}
SIGMAS = (0.1, 1.0)
POLICIES = ("async", "sync")
LONGEST = {"quick": 10**6, "normal": 10**7, "full": 10**8}
PULLS, FEWEST = 5 * 10**7, 4  # pulls over all seeds of a horizon, but no fewer seeds than that


class Theorem(Experiment):
    name = "theorem"
    title = "The theorems at their own constants"
    says = (
        "R_T is Õ(√(dT)) for async and for sync; async communicates O(d M² log d log T) times, sync O(√(d³M³) log d) times, "
        "whatever T (Theorems 1 and 2; the paper does not measure them)."
    )

    def settings(self) -> dict[str, str]:
        return {
            "problem": "d = 8, K = 8, M = 4; contexts uniform on the sphere (easier than the adversary's, for whom the theorems "
            "hold), Gaussian noise with sd σ = 0.1 or σ = 1; random arrivals for async, rounds for sync; each horizon T is a run "
            "of its own, since the constants depend on it",
            "policies": "the preset `theory`: δ = 0.05, λ = B = 1, C = 1/M², D = T_c ln T_c/(d²M), every radius at its full "
            "size; told the noise's σ",
            "seeds": f"{self.n_seeds}, but for long T as many as make {format_compact(PULLS)} pulls in all, and at least {FEWEST}"
            if self.options.seeds is None
            else f"{self.n_seeds}",
        }

    def horizons(self) -> list[int]:
        """Two a decade."""
        return [T for e in range(4, 9) for T in (10**e, 3 * 10**e) if LONGEST[self.size] >= T]

    def cases(self) -> list[Case]:
        return [
            Case(
                {"policy": policy, "sigma": sigma, "horizon": T},
                {"name": policy, "preset": "theory", "noise_scale": sigma},
                {**SMALL, "noise_scale": sigma, "horizon": T},
                seeds=min(self.n_seeds, max(FEWEST, PULLS // T)),
            )
            for sigma in SIGMAS
            for policy in POLICIES
            for T in self.horizons()
        ]

    def draw(self, measured: Measured) -> Figure:
        from matplotlib.ticker import LogLocator

        title = "Theorems 1 and 2 at their own constants: d = 8, K = 8, M = 4 (95 % confidence intervals)"
        figure, (regret, *communication) = make_panels(title, 3)
        horizons, x = list_horizons(measured), "T, pulls of all clients"
        for at, (sigma, policy) in enumerate(
            itertools.product(measured.choices("sigma"), POLICIES)
        ):
            label, found = (
                f"{policy}, σ = {sigma:g}",
                [HorizonRuns(measured, policy, sigma, T) for T in horizons],
            )
            draw_points(regret, horizons, [each.ratio for each in found], number=at, label=label)
            axes = communication[POLICIES.index(policy)]
            draw_points(
                axes, horizons, [each.communication for each in found], number=at, label=label
            )
        finish_panel(
            regret,
            title="Regret: where this falls, it grows slower than √T",
            x=x,
            y="R_T / √(dT)",
            log="xy",
        )
        regret.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        for policy, axes in zip(POLICIES, communication, strict=True):
            found = [
                HorizonRuns(measured, policy, SIGMAS[0], T) for T in horizons
            ]  # of which the bound is the same for any σ
            bounds = [each.bound("communication") for each in found]
            draw_guide(
                axes, horizons, bounds, label=f"{found[0].order('communication').text} (constant 1)"
            )
            axes.set_ylim(top=1.25 * max(axes.get_ylim()[1], *bounds))  # room for the legend
            words = {"title": f"Communication of {policy}", "x": x, "y": "communications until T"}
            finish_panel(axes, **words, log="x", legend="upper left")
        return figure

    def verdicts(self, measured: Measured) -> list[Verdict]:
        proved = [bool(row["guarantee"]) for row in measured.rows]
        told = [
            Verdict(
                "the runs meet every condition of the theorems",
                "theorem",
                "all",
                f"{sum(proved)} of {len(proved)} runs",
                judge(all(proved)),
            )
        ]
        for sigma in measured.choices("sigma"):
            for policy in POLICIES:
                found = [HorizonRuns(measured, policy, sigma, T) for T in list_horizons(measured)]
                communication = judge_logarithmic if policy == "async" else judge_constant
                told += [
                    judge_regret_growth(found),
                    judge_regret_bound(found),
                    communication(found),
                    judge_communication_bound(found),
                ]
                told += [judge_proof_bound(found)] if policy == "async" else []
            told.append(judge_layers_reached(found[-1]))
        return told


def list_horizons(measured: Measured) -> list[int]:
    return sorted(measured.choices("horizon"))


class HorizonRuns:
    """What was measured of a policy at one horizon, a number a seed."""

    def __init__(self, measured: Measured, policy: str, sigma: float, horizon: int) -> None:
        def values(what: str) -> Floats:
            return measured.values(what, policy=policy, sigma=sigma, horizon=horizon)

        self.T, self.sigma, self.setting = horizon, f"σ = {sigma:g}", f"σ = {sigma:g}, {policy}"
        self.regret, self.communication = values("regret"), values("communication")
        self.ratio = self.regret / math.sqrt(SMALL["dim"] * horizon)
        self.algorithm = make(policy, **SMALL, horizon=horizon, preset="theory", noise_scale=sigma)

    def order(self, what: str) -> Bound:
        """Table 1's for "regret" or "communication"; both policies have a row there."""
        bound: Bound = getattr(self.algorithm.claim, what)
        return bound

    def bound(self, what: str) -> float:
        """Its value, with the constant 1."""
        return self.order(what)(self.algorithm.setting)


def keep_decades(found: list[HorizonRuns]) -> list[HorizonRuns]:
    """The longest horizon, a tenth of it, and so on, from the shortest."""
    return [each for each in found if math.log10(found[-1].T / each.T).is_integer()]


def format_by_horizon(found: list[HorizonRuns], what: str) -> str:
    return ", ".join(
        f"{format_mean_error(getattr(each, what))} ({format_compact(each.T)})"
        for each in keep_decades(found)
    )


def keep_common_seeds(found: list[HorizonRuns], what: str) -> list[Floats]:
    """Longer horizons have fewer seeds, the first ones."""
    n = min(len(each.regret) for each in found)
    return [getattr(each, what)[:n] for each in found]


def judge_regret_growth(found: list[HorizonRuns]) -> Verdict:
    before, last = keep_decades(found)[-2:]
    powers = fit_exponents([before.T, last.T], keep_common_seeds([before, last], "regret"))
    return Verdict(
        "over the last decade of T, R_T grows no faster than √T",
        "theorem",
        last.setting,
        f"R_T/√(dT): {format_by_horizon(found, 'ratio')}; R_T grows like T^p with p = {format_mean_error(powers)} "
        f"from T = {format_compact(before.T)} to {format_compact(last.T)}",
        compute_difference(powers, np.full_like(powers, 0.5)).less,
    )


def judge_regret_bound(found: list[HorizonRuns]) -> Verdict:
    shares = [each.regret.mean() / each.bound("regret") for each in found]
    return Verdict(
        f"R_T is below {found[0].order('regret').text} with the constant 1, at every T",
        "ours",
        found[0].setting,
        f"{100 * max(shares):.2g} % of it at most, {100 * shares[-1]:.2g} % at T = {format_compact(found[-1].T)}",
        judge(max(shares) < 1),
    )


def judge_logarithmic(found: list[HorizonRuns]) -> Verdict:
    """A straight line in ln T; and log² T, which looks like one, would make the last decade's increase larger than it is."""
    logs, means = (
        np.log([each.T for each in found]),
        np.array([each.communication.mean() for each in found]),
    )
    slope, fit = fit_line(logs, means)
    counts = keep_common_seeds(keep_decades(found)[-3:], "communication")
    increases, squares = (
        np.diff(counts, axis=0),
        np.diff([math.log(each.T) ** 2 for each in keep_decades(found)[-3:]]),
    )
    unit = found[-1].bound("communication") / logs[-1]
    return Verdict(
        "communication grows like log T: R² of a line in ln T above 0.99, and the last decade adds less than log² T would",
        "theorem",
        found[0].setting,
        f"{format_by_horizon(found, 'communication')}; R² = {fit:.4f}, slope {format_number(slope)} = {format_number(slope / unit)} × that of "
        f"{found[0].order('communication').text}; the last two decades add {' and '.join(map(format_mean_error, increases))}",
        combine_outcomes(
            [
                judge(fit > 0.99),
                compute_difference(increases[1], increases[0] * squares[1] / squares[0]).less,
            ]
        ),
    )


def judge_constant(found: list[HorizonRuns]) -> Verdict:
    before, last = keep_decades(found)[-2:]
    first, second = keep_common_seeds([before, last], "communication")
    return Verdict(
        "communication does not depend on T: over the last decade it grows by less than log T",
        "theorem",
        last.setting,
        f"{format_by_horizon(found, 'communication')}; the last decade adds {format_mean_error(second - first)}, "
        f"log T would have added {format_number(first.mean() * (math.log(last.T) / math.log(before.T) - 1))}",
        compute_difference(second / math.log(last.T), first / math.log(before.T)).less,
    )


def judge_communication_bound(found: list[HorizonRuns]) -> Verdict:
    shares = [each.communication.mean() / each.bound("communication") for each in found]
    return Verdict(
        f"communication is below {found[0].order('communication').text} with the constant 1, which the theorem leaves open",
        "ours",
        found[0].setting,
        f"{format_number(min(shares))} to {format_number(max(shares))} times that, {format_number(shares[-1])} at T = {format_compact(found[-1].T)}",
        judge(max(shares) < 1),
    )


def judge_proof_bound(found: list[HorizonRuns]) -> Verdict:
    """2(M + 1/C) in each of d log₂(1 + T/d) epochs of each of S + 1 layers."""
    d, M, C = SMALL["dim"], SMALL["n_clients"], found[0].algorithm.trigger.C
    bounds = [
        2 * (M + 1 / C) * d * math.log2(1 + each.T / d) * each.algorithm.n_layers for each in found
    ]
    shares = [each.communication.mean() / bound for each, bound in zip(found, bounds, strict=True)]
    return Verdict(
        "communication is below what the proof has with its constants, 2(M + 1/C) d log₂(1 + T/d) (S + 1)",
        "theorem",
        found[0].setting,
        f"{100 * max(shares):.2g} % of it at most",
        judge(max(shares) < 1),
    )


def judge_layers_reached(last: HorizonRuns) -> Verdict:
    """Contexts from every direction bring the widths of layer 0 to their target after d (α_0/w̄_0)² pulls."""
    share = (
        last.algorithm.dim
        * (last.algorithm.radii[0] / last.algorithm.target_widths[0]) ** 2
        / last.T
    )
    outcome = judge(share < 1)
    ends = (
        ""
        if outcome == HOLDS
        else ": the screening of layer 0 alone learns, at this T and at any longer one"
    )
    return Verdict(
        "the horizon is long enough for the layers past the first",
        "ours",
        last.sigma,
        f"worked out, not counted: layer 0 wants about d (α_0/w̄_0)² = {format_number(share)} T pulls at T = {format_compact(last.T)}{ends}",
        outcome,
    )
