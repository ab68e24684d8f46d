"""Theorems 1 and 2 at their own constants, over horizons of up to 10⁸ pulls."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.array_types import Floats
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
PULLS, FEWEST = 5 * 10**7, 4  # pulls over all seeds of a horizon, and the fewest seeds


class Theorem(Experiment):
    """Theorems 1 and 2: regret and communication as T grows."""

    name = "theorem"
    title = "The theorems at their own constants"
    statement = (
        "R_T is Õ(√(dT)) for async and for sync; async communicates O(d M² log d log T) times, "
        "sync O(√(d³M³) log d) times, whatever T (Theorems 1 and 2; the paper does not measure "
        "them)."
    )

    def describe_settings(self) -> dict[str, str]:
        """Return problem and policies for Theorems 1 and 2, in words."""
        return {
            "problem": "d = 8, K = 8, M = 4; contexts uniform on the sphere (easier than the "
            "adversarial ones of the theorems), Gaussian noise with sd σ = 0.1 or σ = 1; random "
            "arrivals for async, rounds for sync; each horizon T is a run of its own, since the "
            "constants depend on it",
            "policies": "the preset `theory`: δ = 0.05, λ = B = 1, C = 1/M², "
            "D = T_c ln T_c/(d²M), every radius at its full size; given the noise's σ",
            "seeds": f"{self.n_seeds}, but for long T as many as make {format_compact(PULLS)} "
            f"pulls in all, and at least {FEWEST}"
            if self.options.seeds is None
            else f"{self.n_seeds}",
        }

    def choose_horizons(self) -> list[int]:
        """Return the horizons at which to measure the theorems, two per decade."""
        return [T for e in range(4, 9) for T in (10**e, 3 * 10**e) if LONGEST[self.size] >= T]

    def list_cases(self) -> list[Case]:
        """Return each policy at each noise level and horizon."""
        return [
            Case(
                {"policy": policy, "sigma": sigma, "horizon": T},
                {"name": policy, "preset": "theory", "noise_scale": sigma},
                {**SMALL, "noise_scale": sigma, "horizon": T},
                seeds=min(self.n_seeds, max(FEWEST, PULLS // T)),
            )
            for sigma in SIGMAS
            for policy in POLICIES
            for T in self.choose_horizons()
        ]

    def draw(self, measured: Measured) -> Figure:
        """Draw regret and communication against T."""
        from matplotlib.ticker import LogLocator

        sizes = "d = 8, K = 8, M = 4 (95 % confidence intervals)"
        title = f"Theorems 1 and 2 at their own constants: {sizes}"
        figure, (regret, *communication) = make_panels(title, 3)
        horizons, x = list_horizons(measured), "T, pulls of all clients"
        for at, (sigma, policy) in enumerate(
            itertools.product(measured.choices("sigma"), POLICIES)
        ):
            label = f"{policy}, σ = {sigma:g}"
            found = [HorizonRuns(measured, policy, sigma, T) for T in horizons]
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
            # the bound is the same for any σ
            found = [HorizonRuns(measured, policy, SIGMAS[0], T) for T in horizons]
            bounds = [each.compute_bound("communication") for each in found]
            draw_guide(
                axes,
                horizons,
                bounds,
                label=f"{found[0].get_bound('communication').text} (constant 1)",
            )
            axes.set_ylim(top=1.25 * max(axes.get_ylim()[1], *bounds))  # room for the legend
            words = {"title": f"Communication of {policy}", "x": x, "y": "communications until T"}
            finish_panel(axes, **words, log="x", legend="upper left")
        return figure

    def judge_claims(self, measured: Measured) -> list[Verdict]:
        """Return the verdicts on Theorems 1 and 2."""
        proved = [bool(row["guarantee"]) for row in measured.rows]
        verdicts = [
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
                verdicts += [
                    judge_regret_growth(found),
                    judge_regret_bound(found),
                    communication(found),
                    judge_communication_bound(found),
                ]
                verdicts += [judge_proof_bound(found)] if policy == "async" else []
            verdicts.append(judge_layers_reached(found[-1]))
        return verdicts


def list_horizons(measured: Measured) -> list[int]:
    """Return the horizons at which the theorems were measured, shortest first."""
    return sorted(measured.choices("horizon"))


class HorizonRuns:
    """What was measured of a policy at one horizon, one number per seed."""

    def __init__(self, measured: Measured, policy: str, sigma: float, horizon: int) -> None:
        def values(what: str) -> Floats:
            return measured.values(what, policy=policy, sigma=sigma, horizon=horizon)

        self.T, self.sigma, self.setting = horizon, f"σ = {sigma:g}", f"σ = {sigma:g}, {policy}"
        self.regret, self.communication = values("regret"), values("communication")
        self.ratio = self.regret / math.sqrt(SMALL["dim"] * horizon)
        self.algorithm = make(policy, **SMALL, horizon=horizon, preset="theory", noise_scale=sigma)

    def get_bound(self, what: str) -> Bound:
        """Return the theorem's bound on "regret" or "communication"."""
        bound: Bound = getattr(self.algorithm.claim, what)
        return bound

    def compute_bound(self, what: str) -> float:
        """Return the value of the theorem's bound, with the constant 1."""
        return self.get_bound(what)(self.algorithm.setting)


def keep_decades(found: list[HorizonRuns]) -> list[HorizonRuns]:
    """Return the longest horizon of a theorem's runs, a tenth of it, and so on, shortest first."""
    return [each for each in found if math.log10(found[-1].T / each.T).is_integer()]


def format_by_horizon(found: list[HorizonRuns], what: str) -> str:
    """Return a measure of a theorem's runs at each decade of the horizon, in words."""
    return ", ".join(
        f"{format_mean_error(getattr(each, what))} ({format_compact(each.T)})"
        for each in keep_decades(found)
    )


def keep_common_seeds(found: list[HorizonRuns], what: str) -> list[Floats]:
    """Return a measure for the seeds that all horizons of a theorem's runs have.

    Longer ones have fewer.
    """
    n = min(len(each.regret) for each in found)
    return [getattr(each, what)[:n] for each in found]


def judge_regret_growth(found: list[HorizonRuns]) -> Verdict:
    """Return the verdict on whether R_T grows no faster than √T, as in the theorems."""
    before, last = keep_decades(found)[-2:]
    powers = fit_exponents([before.T, last.T], keep_common_seeds([before, last], "regret"))
    return Verdict(
        "over the last decade of T, R_T grows no faster than √T",
        "theorem",
        last.setting,
        f"R_T/√(dT): {format_by_horizon(found, 'ratio')}; "
        f"R_T grows like T^p with p = {format_mean_error(powers)} "
        f"from T = {format_compact(before.T)} to {format_compact(last.T)}",
        compute_difference(powers, np.full_like(powers, 0.5)).less,
    )


def judge_regret_bound(found: list[HorizonRuns]) -> Verdict:
    """Return the verdict on whether R_T is below its theorem's bound with the constant 1."""
    shares = [each.regret.mean() / each.compute_bound("regret") for each in found]
    return Verdict(
        f"R_T is below {found[0].get_bound('regret').text} with the constant 1, at every T",
        "ours",
        found[0].setting,
        f"{100 * max(shares):.2g} % of it at most, {100 * shares[-1]:.2g} % at "
        f"T = {format_compact(found[-1].T)}",
        judge(max(shares) < 1),
    )


def judge_logarithmic(found: list[HorizonRuns]) -> Verdict:
    """Return the verdict on whether communication grows like log T, as in the theorem.

    It must be a straight line in ln T. log² T looks like one too, but would grow faster in the
    last decade.
    """
    logs = np.log([each.T for each in found])
    means = np.array([each.communication.mean() for each in found])
    slope, fit = fit_line(logs, means)
    last = keep_decades(found)[-3:]
    increases = np.diff(keep_common_seeds(last, "communication"), axis=0)
    squares = np.diff([math.log(each.T) ** 2 for each in last])
    unit = found[-1].compute_bound("communication") / logs[-1]
    return Verdict(
        "communication grows like log T: R² of a line in ln T above 0.99, "
        "and the last decade adds less than log² T would",
        "theorem",
        found[0].setting,
        f"{format_by_horizon(found, 'communication')}; R² = {fit:.4f}, "
        f"slope {format_number(slope)} = {format_number(slope / unit)} × that of "
        f"{found[0].get_bound('communication').text}; "
        f"the last two decades add {' and '.join(map(format_mean_error, increases))}",
        combine_outcomes(
            [
                judge(fit > 0.99),
                compute_difference(increases[1], increases[0] * squares[1] / squares[0]).less,
            ]
        ),
    )


def judge_constant(found: list[HorizonRuns]) -> Verdict:
    """Return the verdict on whether communication does not depend on T, as in the theorem."""
    before, last = keep_decades(found)[-2:]
    first, second = keep_common_seeds([before, last], "communication")
    logarithmic = first.mean() * (math.log(last.T) / math.log(before.T) - 1)
    return Verdict(
        "communication does not depend on T: over the last decade it grows by less than log T",
        "theorem",
        last.setting,
        f"{format_by_horizon(found, 'communication')}; "
        f"the last decade adds {format_mean_error(second - first)}, "
        f"log T would have added {format_number(logarithmic)}",
        compute_difference(second / math.log(last.T), first / math.log(before.T)).less,
    )


def judge_communication_bound(found: list[HorizonRuns]) -> Verdict:
    """Return the verdict on whether communication is below its theorem's bound, constant 1."""
    shares = [each.communication.mean() / each.compute_bound("communication") for each in found]
    return Verdict(
        f"communication is below {found[0].get_bound('communication').text} with the constant 1, "
        "which the theorem leaves open",
        "ours",
        found[0].setting,
        f"{format_number(min(shares))} to {format_number(max(shares))} times that, "
        f"{format_number(shares[-1])} at T = {format_compact(found[-1].T)}",
        judge(max(shares) < 1),
    )


def judge_proof_bound(found: list[HorizonRuns]) -> Verdict:
    """Return the verdict on whether communication is below the bound of the theorem's proof.

    That is 2(M + 1/C) in each of d log₂(1 + T/d) epochs of each of S + 1 layers.
    """
    d, M, C = SMALL["dim"], SMALL["n_clients"], found[0].algorithm.trigger.C
    bounds = [
        2 * (M + 1 / C) * d * math.log2(1 + each.T / d) * each.algorithm.n_layers for each in found
    ]
    shares = [each.communication.mean() / bound for each, bound in zip(found, bounds, strict=True)]
    return Verdict(
        "communication is below what the proof has with its constants, "
        "2(M + 1/C) d log₂(1 + T/d) (S + 1)",
        "theorem",
        found[0].setting,
        f"{100 * max(shares):.2g} % of it at most",
        judge(max(shares) < 1),
    )


def judge_layers_reached(last: HorizonRuns) -> Verdict:
    """Return the verdict on whether a theorem's horizon suffices to get past the first layer.

    With contexts from every direction, the widths of layer 0 reach their target after
    d (α_0/w̄_0)² pulls.
    """
    algorithm = last.algorithm
    share = algorithm.dim * (algorithm.radii[0] / algorithm.target_widths[0]) ** 2 / last.T
    outcome = judge(share < 1)
    ends = (
        ""
        if outcome == HOLDS
        else ": only the screening of layer 0 learns, at this T and at any longer one"
    )
    return Verdict(
        "the horizon is long enough for the layers past the first",
        "ours",
        last.sigma,
        "computed, not counted: layer 0 needs about "
        f"d (α_0/w̄_0)² = {format_number(share)} T pulls "
        f"at T = {format_compact(last.T)}{ends}",
        outcome,
    )
