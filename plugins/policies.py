"""Decision policies: how an arm is picked from estimates and widths.

The two of the theory name a decision that is compiled into the engine. Any other policy has
`choose`, as `Uniform` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import LowLevelCallable

from fedsuplin.plugin import formulas, from_cython, hookimpl

__all__ = ["Layered", "Optimism", "Uniform"]


@dataclass(frozen=True)
class Layered:
    """The layered successive screening of SupLinUCB (the paper's S-LUCB)."""

    kernel: ClassVar[str] = "layered"


@dataclass(frozen=True)
class Optimism:
    """One layer, the arm with the largest estimate plus width (OFUL, LinUCB)."""

    kernel: ClassVar[str] = "optimism"


@dataclass(frozen=True)
class Uniform:
    """Any available arm, with equal probability: the baseline for all other policies."""

    def choose(
        self, estimates: np.ndarray, widths: np.ndarray, targets: np.ndarray, draw: float
    ) -> int:
        """Return the arm to play."""
        there = np.flatnonzero(estimates[0] > -np.inf)
        return int(there[int(draw * len(there))])

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "any_arm")


@hookimpl
def fedsuplin_register_policies(register: Callable[[str, Any], None]) -> None:
    register("layered", Layered)
    register("optimism", Optimism)
    register("uniform", Uniform)
