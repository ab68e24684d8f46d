"""Algorithm: a variant with its numbers computed for one setting."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from fedsuplin_ext.rules import Rule

from .._shared.array_types import Floats
from ..contracts.claims import Claim
from ..contracts.setting import Setting
from ..contracts.variant import SYNCS
from .rules import make_rule

ROUNDING_SLACK = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A variant with its numbers computed for one setting. `fedsuplin.make` makes it.

    Parameters
    ----------
    name : str
        The name of the variant, or "custom".
    setting : Setting
        The sizes and the ridge.
    preset : str
        "practical" or "theory".
    policy, trigger, noise, weighting : plugin
        The parts, bound to the setting.
    syncs : str
        Who syncs: "one", "all" or "push", as in `Variant`.
    lazy : bool
        Whether decisions use the last download alone.
    theorem : str or None
        The theorem of the paper that covers the composition.
    claim : Claim or None
        Its row in the paper's Table 1.
    radii : ndarray of shape (layers,)
        The confidence radius α_s of each layer.
    radius_growth : tuple of float
        (scale, offset): the radius grows by scale·√(offset + ln det A/det λI).
    target_widths : ndarray of shape (layers,)
        The target width w̄_s of each layer.
    spec : dict
        The algorithm as plain data, from which it can be made again.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> sizes = {"dim": 25, "n_arms": 20, "n_clients": 20, "horizon": 40_000}
    >>> algorithm = fsl.make("async", **sizes, preset="theory")
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
        """The length of a context, d."""
        return self.setting.dim

    @property
    def n_arms(self) -> int:
        """The number of arms per round, K."""
        return self.setting.n_arms

    @property
    def n_clients(self) -> int:
        """The number of clients, M."""
        return self.setting.n_clients

    @property
    def horizon(self) -> int:
        """The number of pulls of all clients together, T."""
        return self.setting.horizon

    @property
    def n_layers(self) -> int:
        """The number of layers, S + 1."""
        return len(self.radii)

    @property
    def sync_description(self) -> str:
        """Who syncs with whom, in words."""
        return SYNCS[self.syncs]

    @property
    def kernel(self) -> str | None:
        """The compiled decision that the policy names; None where it chooses in its own code."""
        return getattr(self.policy, "kernel", None)

    @functools.cached_property
    def rules(self) -> dict[str, Rule]:
        """The rules that the engine asks at each pull, by axis, checked."""
        by_axis = {"trigger": self.trigger, "weighting": self.weighting}
        if self.kernel is None:
            by_axis["policy"] = self.policy
        return {axis: make_rule(axis, part) for axis, part in by_axis.items()}

    def departures(self, problem: Any = None) -> list[str]:
        """List what takes this algorithm out of the paper's guarantee.

        Parameters
        ----------
        problem : Problem, optional
            List also what the problem breaks: more noise, a longer θ or more corruption than the
            algorithm assumes.

        Returns
        -------
        list of str
            One sentence per departure; empty when the guarantee holds.
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
        if self.theorem and hasattr(self.weighting, "theorem"):
            expected = self.weighting.theorem(self.setting, self.noise)
            if self.weighting != expected:
                found.append(f"the weighting is {self.weighting}, the theorem's is {expected}")
        return found + (self._list_broken_assumptions(problem) if problem is not None else [])

    def _list_broken_assumptions(self, problem: Any) -> list[str]:
        """List what the problem states about noise and θ that the noise model does not allow."""

        def assumes(name: str) -> Any:
            return getattr(self.noise, name, None)

        def states(name: str) -> Any:
            return getattr(problem, name, None)

        found = []
        # Noise in [−R, R] is R-sub-Gaussian.
        scale = states("R") if states("noise_scale") is None else states("noise_scale")
        if (
            assumes("noise_scale") is not None
            and scale is not None
            and scale > assumes("noise_scale") * ROUNDING_SLACK
        ):
            found.append(
                f"the problem's noise scale is {scale:g}, "
                f"the algorithm assumes {assumes('noise_scale'):g}"
            )
        if assumes("R") is not None and states("R") is None and states("noise_scale"):
            found.append(
                f"the problem's noise has no bound, the algorithm assumes R = {assumes('R'):g}"
            )
        if (
            assumes("R") is not None
            and states("R") is not None
            and states("R") > assumes("R") * ROUNDING_SLACK
        ):
            found.append(
                f"the problem's noise bound R is {states('R'):g}, "
                f"the algorithm assumes {assumes('R'):g}"
            )
        if (states("corruption") or 0.0) > (assumes("corruption") or 0.0) * ROUNDING_SLACK:
            corruption = assumes("corruption") or 0.0
            found.append(
                f"the problem's corruption C_p is {states('corruption'):g}, "
                f"the algorithm assumes {corruption:g}"
            )
        if states("arm_thetas") is not None and not getattr(self.policy, "per_arm", False):
            found.append("the problem has a θ for each arm, the algorithm one for all")
        length = 0.0 if states("theta") is None else math.hypot(*states("theta"))
        if assumes("theta_bound") is not None and length > assumes("theta_bound") * ROUNDING_SLACK:
            found.append(
                f"the problem's ‖θ‖ is {length:.3g}, "
                f"the algorithm assumes {assumes('theta_bound'):g}"
            )
        return found

    def describe_overstated_noise(self, problem: Any) -> str | None:
        """Explain how the algorithm assumes more noise than the problem has, if it does.

        Only the practical preset is examined: its radii should be no wider than necessary.

        Parameters
        ----------
        problem : Problem
            The problem to play.

        Returns
        -------
        str or None
            The explanation, or None.
        """
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
            f"the algorithm assumes a noise scale of {assumed:g}, the problem's is {there:g}: "
            "its radii are wider than they need be. run by name takes the problem's; "
            f"make takes noise_scale={there:g}"
        )

    @property
    def guarantee(self) -> bool:
        """Whether the paper's regret bound holds, if the problem is as assumed."""
        return not self.departures()

    def regret_bound(self, horizon: int | None = None) -> float:
        """Compute the paper's bound on regret, ``Σ_s 8 w̄_s |Ψ_s|``.

        A layer has as many pulls as contexts from every direction need to bring its widths down
        to the target, ``|Ψ_s| = d (α_s/w̄_s)²``, as far as the horizon allows.

        Parameters
        ----------
        horizon : int, optional
            The number of pulls; the algorithm's own if left out.

        Returns
        -------
        float
            The bound.
        """
        setting = self.setting.with_horizon(horizon or self.horizon)
        left, bound = setting.horizon, 0.0
        radii, targets = self.noise.radii(setting), self.noise.target_widths(setting)
        for radius, target in zip(radii[:-1], targets[:-1], strict=True):
            pulls = min(left, self.dim * (radius / target) ** 2)
            bound, left = bound + 8 * target * pulls, left - pulls
        return float(bound + 8 * targets[-1] * left)

    def needed_horizon(self, loss: float | None = None) -> int | None:
        """Find the shortest horizon, within 1 %, at which `regret_bound` is below `loss` per pull.

        Parameters
        ----------
        loss : float, optional
            The loss per pull; the bound B on ‖θ‖ if left out.

        Returns
        -------
        int or None
            None if no horizon up to 10¹⁵ is long enough, or the policy has no layers.
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
            f"{self.name} (preset {self.preset}): d={s.dim} K={s.n_arms} M={s.n_clients} "
            f"T={s.horizon} ridge={s.ridge:g}",
            f"  policy    {self.policy}, {'lazy' if self.lazy else 'eager'}; "
            f"{self.sync_description}",
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
        """Return what a notebook shows."""
        from ..view.notebook import render_algorithm

        return render_algorithm(self)
