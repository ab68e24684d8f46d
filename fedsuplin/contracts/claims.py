"""Bound and Claim: rows of the paper's Table 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .setting import Setting


@dataclass(frozen=True)
class Bound:
    """An order of growth: as the table prints it, and the powers that it is a product of.

    >>> Bound("√(d T log³ T)", d=0.5, T=0.5, log_T=1.5)(Setting(dim=4, n_arms=5, n_clients=2, horizon=1))
    0.0
    """

    text: str
    d: float = 0
    K: float = 0
    M: float = 0
    T: float = 0
    log_d: float = 0
    log_T: float = 0

    def __call__(self, setting: Setting) -> float:
        """Its value with the constant 1."""
        d, T = setting.dim, setting.horizon
        sizes = d**self.d * setting.n_arms**self.K * setting.n_clients**self.M * T**self.T
        return float(sizes * math.log(d) ** self.log_d * math.log(T) ** self.log_T)


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
