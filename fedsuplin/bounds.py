"""The rows of the paper's Table 1: what each system is proved to lose and to send, as printed and as functions.

They are orders of growth. The functions have the constant 1 and natural logarithms, so they compare shapes, not heights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .setting import Setting

__all__ = ["Bound", "Claim"]


@dataclass(frozen=True)
class Bound:
    """An order of growth: as the table prints it, and its value for a setting with the constant 1.

    >>> Bound("√(dT)", lambda s: math.sqrt(s.dim * s.horizon))(Setting(dim=4, n_arms=5, n_clients=2, horizon=100))
    20.0
    """

    text: str
    value: Callable[[Setting], float]

    def __call__(self, setting: Setting) -> float:
        return float(self.value(setting))


@dataclass(frozen=True)
class Claim:
    """One row of Table 1."""

    system: str
    """"single player", or federated: "async" or "sync"."""
    actions: str
    """"infinite"ly many arms, or finitely many: "fixed" or "adversarial"."""
    regret: Bound
    communication: Bound | None
    """None where nobody talks."""
