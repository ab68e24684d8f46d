"""Algorithm: a variant with its numbers computed for one setting."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from fedsuplin_ext.rules import Rule

from .._shared.arrays import Floats
from ..contracts.claims import Claim
from ..contracts.setting import Setting
from ..contracts.variant import SYNCS
from ..errors import FedsuplinError, PluginError

ROUNDING_SLACK = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A variant with its numbers: radii, target widths, thresholds, and whether the theorem's guarantee holds with them.

    >>> import fedsuplin as fsl
    >>> algorithm = fsl.make("async", dim=25, n_arms=20, n_clients=20, horizon=40_000, preset="theory")
    >>> algorithm.n_layers, algorithm.trigger
    (6, Determinant(C=0.0025))
    """

    name: str
    setting: Setting
    preset: str
    policy: Any
    trigger: Any
    noise: Any
    weighting: Any
    syncs: str
    lazy: bool
    theorem: str | None
    claim: Claim | None
    radii: Floats
    radius_growth: tuple[float, float]
    target_widths: Floats
    spec: dict[str, Any]

    @property
    def dim(self) -> int:
        return self.setting.dim

    @property
    def n_arms(self) -> int:
        return self.setting.n_arms

    @property
    def n_clients(self) -> int:
        return self.setting.n_clients

    @property
    def horizon(self) -> int:
        return self.setting.horizon

    @property
    def n_layers(self) -> int:
        return len(self.radii)

    @property
    def sync_description(self) -> str:
        """Who syncs with whom, in words."""
        return SYNCS[self.syncs]

    @property
    def kernel(self) -> str | None:
        """The compiled decision of the engine's that the policy names, None where it chooses itself."""
        return getattr(self.policy, "kernel", None)

    @functools.cached_property
    def rules(self) -> dict[str, Rule]:
        """What the parts decide each pull, as the engine calls it, by axis; checked when it is made."""
        by_axis = {"trigger": self.trigger, "weighting": self.weighting}
        if self.kernel is None:
            by_axis["policy"] = self.policy
        return {axis: make_rule(axis, part) for axis, part in by_axis.items()}

    def departures(self, problem: Any = None) -> list[str]:
        """What takes this algorithm out of the paper's guarantee; empty when it holds.

        With a problem, also what the problem breaks: more noise, a longer θ or more corruption than was assumed.
        """
        found = []
        if self.theorem is None:
            found.append("no theorem of the paper covers this composition")
        if getattr(self.noise, "alpha_scale", 1.0) < 1:
            found.append(f"alpha_scale is {self.noise.alpha_scale:g}, below 1")
        if (
            getattr(self.noise, "corruption", 0.0)
            and getattr(self.noise, "corruption_scale", 1.0) < 1
        ):
            found.append(f"corruption_scale is {self.noise.corruption_scale:g}, below 1")
        if getattr(self.noise, "layer_zero", "bernstein") != "bernstein":
            found.append("the radius of layer 0 is not the Bernstein theorem's")
        if self.theorem and hasattr(self.trigger, "theorem"):
            expected = type(self.trigger)().bind(self.setting)
            if self.trigger != expected:
                found.append(f"the trigger is {self.trigger}, the theorem's is {expected}")
        return found + (self._broken_by(problem) if problem is not None else [])

    def _broken_by(self, problem: Any) -> list[str]:
        """What the problem says of its noise and of θ, against what the noise model of this algorithm assumes."""

        def assumes(name: str) -> Any:
            return getattr(self.noise, name, None)

        def told(name: str) -> Any:
            return getattr(problem, name, None)

        found = []
        scale = (
            told("R") if told("noise_scale") is None else told("noise_scale")
        )  # noise in [−R, R] is R-sub-Gaussian
        if (
            assumes("noise_scale") is not None
            and scale is not None
            and scale > assumes("noise_scale") * ROUNDING_SLACK
        ):
            found.append(
                f"the problem's noise scale is {scale:g}, the algorithm assumes {assumes('noise_scale'):g}"
            )
        if assumes("R") is not None and told("R") is None and told("noise_scale"):
            found.append(
                f"the problem's noise has no bound, the algorithm assumes R = {assumes('R'):g}"
            )
        if (
            assumes("R") is not None
            and told("R") is not None
            and told("R") > assumes("R") * ROUNDING_SLACK
        ):
            found.append(
                f"the problem's noise bound R is {told('R'):g}, the algorithm assumes {assumes('R'):g}"
            )
        if (told("corruption") or 0.0) > (assumes("corruption") or 0.0) * ROUNDING_SLACK:
            corruption = assumes("corruption") or 0.0
            found.append(
                f"the problem's corruption C_p is {told('corruption'):g}, the algorithm assumes {corruption:g}"
            )
        if told("arm_thetas") is not None and not getattr(self.policy, "per_arm", False):
            found.append("the problem has a θ for each arm, the algorithm one for all")
        length = 0.0 if told("theta") is None else math.hypot(*told("theta"))
        if assumes("theta_bound") is not None and length > assumes("theta_bound") * ROUNDING_SLACK:
            found.append(
                f"the problem's ‖θ‖ is {length:.3g}, the algorithm assumes {assumes('theta_bound'):g}"
            )
        return found

    def overstated(self, problem: Any) -> str | None:
        """The practical preset is for radii no wider than they need be; in words, where more noise was assumed than there is."""
        assumed, there = (
            getattr(self.noise, "noise_scale", None),
            getattr(problem, "noise_scale", None),
        )
        if (
            self.preset != "practical"
            or assumed is None
            or there is None
            or assumed <= there * ROUNDING_SLACK
        ):
            return None
        return (
            f"the algorithm assumes a noise scale of {assumed:g}, the problem's is {there:g}: its radii are wider than they need "
            f"be. run by name takes the problem's; make takes noise_scale={there:g}"
        )

    @property
    def guarantee(self) -> bool:
        """Does the paper's regret bound hold with these numbers (if the problem is as assumed)?"""
        return not self.departures()

    def regret_bound(self, horizon: int | None = None) -> float:
        """``Σ_s 8 w̄_s |Ψ_s|``: the paper's bound on regret, with the pulls of each layer those that contexts from every
        direction need to bring its widths down to the target: ``|Ψ_s| = d (α_s/w̄_s)²``, as far as the horizon allows."""
        setting = self.setting.with_horizon(horizon or self.horizon)
        left, bound = setting.horizon, 0.0
        radii, targets = self.noise.radii(setting), self.noise.target_widths(setting)
        for radius, target in zip(radii[:-1], targets[:-1], strict=True):
            pulls = min(left, self.dim * (radius / target) ** 2)
            bound, left = bound + 8 * target * pulls, left - pulls
        return float(bound + 8 * targets[-1] * left)

    def needed_horizon(self, loss: float | None = None) -> int | None:
        """The shortest horizon, within a hundredth, at which `regret_bound` is below `loss` a pull (default ‖θ‖'s bound B).

        None where no horizon up to 10¹⁵ is long enough, or the policy has no layers to wait for.
        """
        loss = getattr(self.noise, "theta_bound", 1.0) if loss is None else loss
        if self.kernel != "layered":
            return None
        low, high = 1.0, 1e15
        if not self.regret_bound(int(high)) < loss * high:
            return None
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            low, high = (
                (low, middle)
                if self.regret_bound(math.ceil(middle)) < loss * middle
                else (middle, high)
            )
        return math.ceil(high)

    def __str__(self) -> str:
        s = self.setting
        lines = [
            f"{self.name} (preset {self.preset}): d={s.dim} K={s.n_arms} M={s.n_clients} T={s.horizon} ridge={s.ridge:g}",
            f"  policy    {self.policy}, {'lazy' if self.lazy else 'eager'}; {self.sync_description}",
            f"  trigger   {self.trigger}",
            f"  noise     {self.noise}",
            f"  weighting {self.weighting}",
            f"  S = {self.n_layers - 1}",
        ]
        for layer, (radius, target) in enumerate(zip(self.radii, self.target_widths, strict=True)):
            grows = " (grows with ln det)" if self.radius_growth[0] else ""
            lines.append(
                f"  layer {layer:<3} radius {radius:<10.5g} target width {target:.5g}{grows}"
            )
        departures = self.departures()
        verdict = (
            f"holds ({self.theorem})"
            if not departures
            else "does not hold: " + "; ".join(departures)
        )
        return "\n".join([*lines, f"  guarantee {verdict}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from ..view.notebook import render_algorithm

        return render_algorithm(self)


def make_rule(axis: str, part: Any) -> Rule:
    """The rule of a part, checked; what is wrong with it names the part."""
    try:
        return Rule(axis, part)
    except FedsuplinError:
        raise
    except Exception as error:
        told = str(error) if str(error).startswith(repr(part)) else f"{part!r}: {error}"
        raise PluginError(told) from error
