"""The variance-weighted variant for unknown noise levels, which clients estimate themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scipy import LowLevelCallable

from fedsuplin.plugin import Setting, Variant, from_cython, hookimpl

from . import weights


@dataclass(frozen=True)
class EstimatedVariance:
    """ω = 1/σ̄² as in `variance`, with an estimate σ̂ from earlier residuals in place of σ_t.

    σ̂ is the root mean square of the client's residuals. It begins with R, the bound on the noise,
    and forgets what is older than about `window` pulls: the first residuals are large because θ̂
    is poor. A pull's own residual counts from the next pull on, because a weight that depends on
    its own reward would bias the estimate of θ.
    """

    R: float = 1.0
    window: float = 500.0
    gamma: float | None = None
    rho: float | None = None
    state_size: ClassVar[int] = 2  # pulls until now, mean square of the residuals

    def bind(self, setting: Setting) -> EstimatedVariance:
        gamma = self.gamma if self.gamma is not None else math.sqrt(self.R) / setting.dim**0.25
        rho = self.rho if self.rho is not None else 1 / math.sqrt(setting.horizon)
        return replace(self, gamma=gamma, rho=rho)

    def weight(self, norm: float, sigma: float, residual: float, state: Any) -> float:
        if state[0] == 0:
            state[1] = self.R**2
        weight = 1 / max(math.sqrt(state[1]), self.rho, self.gamma * math.sqrt(norm)) ** 2
        state[0] += 1
        state[1] += (residual**2 - state[1]) / min(state[0] + 1, self.window)
        return weight

    def compiled(self) -> LowLevelCallable:
        return from_cython(weights, "estimated", self.gamma, self.rho, self.R, self.window)


ESTIMATED_VARIANCE = Variant(
    summary="variance, for clients that estimate their noise level",
    trigger="determinant",
    noise="bounded",
    weighting="estimated-variance",
    presets={
        "practical": {"alpha_scale": 0.15, "ridge": 0.1, "C": 1.0, "layer_zero": "square-root"}
    },
)


@hookimpl
def fedsuplin_register_weightings(register):
    register("estimated-variance", EstimatedVariance)


@hookimpl
def fedsuplin_register_variants(register):
    register("estimated-variance", ESTIMATED_VARIANCE)
