"""Weightings: how much an observation counts in the regression, ΔA += ω x xᵀ, Δb += ω r x."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scipy import LowLevelCallable

from fedsuplin.plugin import (
    InvalidInput,
    Setting,
    check_not_negative,
    check_positive,
    formulas,
    from_cython,
    hookimpl,
)

__all__ = ["CorruptionWeight", "Unit", "VarianceWeight"]


@dataclass(frozen=True)
class Unit:
    """ω = 1."""

    largest_weight = 1.0
    reads_norm = False

    def weight(self, norm: float, sigma: float) -> float:
        """Return the weight of an observation."""
        return 1.0

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "unit")


@dataclass(frozen=True)
class CorruptionWeight:
    """ω = min(1, γ/‖x‖_{A⁻¹}) with γ = √d/C_p, so that corrupting one pull has little effect.

    C_p = 0 means ω = 1.
    """

    corruption: float = 0.0
    gamma: float | None = None
    largest_weight = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "corruption", check_not_negative("corruption", self.corruption))
        if self.gamma is not None:
            object.__setattr__(self, "gamma", check_positive("gamma", self.gamma))

    def bind(self, setting: Setting) -> CorruptionWeight:
        """Fill in the defaults that depend on the sizes."""
        if self.gamma is not None or self.corruption == 0:
            return self
        return replace(self, gamma=math.sqrt(setting.dim) / self.corruption)

    @staticmethod
    def theorem(setting: Setting, noise: Any) -> CorruptionWeight:
        """Return the weighting of Theorem 4: its γ makes γC_p = √d, the price in the radii."""
        return CorruptionWeight(getattr(noise, "corruption", 0.0)).bind(setting)

    def weight(self, norm: float, sigma: float) -> float:
        """Return the weight of an observation."""
        if self.gamma is None or norm <= self.gamma:
            return 1.0
        return self.gamma / norm

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return (
            from_cython(formulas, "unit")
            if self.gamma is None
            else from_cython(formulas, "capped", self.gamma)
        )


@dataclass(frozen=True)
class VarianceWeight:
    """ω = 1/σ̄², σ̄ = max(σ_t, ρ, γ‖x‖_{A⁻¹}^½): an observation with less noise counts for more.

    γ = R^½/d^¼ and ρ = 1/√T by default.
    """

    R: float = 1.0
    gamma: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        for name in ("R", "gamma", "rho"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_positive(name, getattr(self, name)))

    def bind(self, setting: Setting) -> VarianceWeight:
        """Fill in the defaults that depend on the sizes."""
        gamma = self.gamma if self.gamma is not None else math.sqrt(self.R) / setting.dim**0.25
        rho = self.rho if self.rho is not None else 1 / math.sqrt(setting.horizon)
        return replace(self, gamma=gamma, rho=rho)

    @staticmethod
    def theorem(setting: Setting, noise: Any) -> VarianceWeight:
        """Return the weighting of Theorem 3, with the R of the noise model."""
        return VarianceWeight(getattr(noise, "R", 1.0)).bind(setting)

    @property
    def largest_weight(self) -> float:
        """The largest weight that any observation can get."""
        return math.inf if self.rho is None else 1 / self.rho**2

    def weight(self, norm: float, sigma: float) -> float:
        """Return the weight of an observation."""
        gamma, rho = self._constants()
        return 1 / max(sigma, rho, gamma * math.sqrt(norm)) ** 2

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "inverse_variance", *self._constants())

    def _constants(self) -> tuple[float, float]:
        """Return γ and ρ, which `bind` fills in."""
        if self.gamma is None or self.rho is None:
            raise InvalidInput(
                "this VarianceWeight has no gamma or rho yet: call bind(setting), or give both"
            )
        return self.gamma, self.rho


@hookimpl
def fedsuplin_register_weightings(register: Callable[[str, Any], None]) -> None:
    register("unit", Unit)
    register("corruption", CorruptionWeight)
    register("variance", VarianceWeight)
