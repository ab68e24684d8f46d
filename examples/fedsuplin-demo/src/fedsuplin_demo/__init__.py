"""A third party's plugins: a trigger in Python, a weighting in numba, and a variant of both."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scipy import LowLevelCallable

from fedsuplin.plugin import Setting, Variant, add_rounding_margin, hookimpl, low_level


@dataclass(frozen=True)
class Budgeted:
    """det(A+ΔA)/det(A) > 1 + C, but each client asks for at most `limit` syncs in the run."""

    C: float = 1.0
    limit: int = 100
    state_size: ClassVar[int] = 1  # how often this client has asked

    @functools.cached_property
    def threshold(self) -> float:
        return add_rounding_margin(math.log1p(self.C))

    def fires(self, gain: float, elapsed: float, state: Any) -> bool:
        if gain <= self.threshold or state[0] >= self.limit:
            return False
        state[0] += 1
        return True


@dataclass(frozen=True)
class SmoothCorruption:
    """ω = 1/√(1 + ‖x‖²/γ²) with γ = √d/C_p: a smooth version of `corruption`, never above it."""

    corruption: float = 0.0
    slope: float | None = None  # 1/γ, which C_p = 0 has too

    def bind(self, setting: Setting) -> SmoothCorruption:
        return (
            self
            if self.slope is not None
            else replace(self, slope=self.corruption / math.sqrt(setting.dim))
        )

    def weight(self, norm: float, sigma: float) -> float:
        return smooth(norm, sigma, (self.slope,))

    def compiled(self) -> LowLevelCallable:
        return low_level(compiled_smooth(), self.slope)


def smooth(norm, sigma, user):
    """Return the weight. Python passes a tuple of parameters, numba a pointer to them."""
    return 1 / math.sqrt(1 + (user[0] * norm) ** 2)


@functools.cache
def compiled_smooth() -> Any:
    from numba import (  # here and not above: a run without this weighting does not wait for numba
        cfunc,
        types,
    )

    return cfunc(types.double(types.double, types.double, types.CPointer(types.double)))(smooth)


FRUGAL = Variant(
    summary="robust, with smooth weights and a limit on what a client may send",
    trigger="budgeted",
    noise="corrupted",
    weighting="smooth-corruption",
    presets={"practical": {"alpha_scale": 0.05, "ridge": 0.1}},
)


@hookimpl
def fedsuplin_register_triggers(register):
    register("budgeted", Budgeted)


@hookimpl
def fedsuplin_register_weightings(register):
    register("smooth-corruption", SmoothCorruption)


@hookimpl
def fedsuplin_register_variants(register):
    register("frugal", FRUGAL)
