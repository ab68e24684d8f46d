"""Bound and Claim: rows of the paper's Table 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .setting import Setting


@dataclass(frozen=True)
class Bound:
    """An order of growth: a product of powers of the sizes.

    Parameters
    ----------
    text : str
        The bound as the table prints it.
    d, K, M, T, log_d, log_T : float
        The power of each factor.

    Examples
    --------
    >>> from fedsuplin.plugin import Bound, Setting
    >>> bound = Bound("√(d T log³ T)", d=0.5, T=0.5, log_T=1.5)
    >>> bound(Setting(dim=4, n_arms=5, n_clients=2, horizon=1))
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
        """Return the value of a claimed bound with the constant 1."""
        d, T = setting.dim, setting.horizon
        sizes = d**self.d * setting.n_arms**self.K * setting.n_clients**self.M * T**self.T
        return float(sizes * math.log(d) ** self.log_d * math.log(T) ** self.log_T)


@dataclass(frozen=True)
class Claim:
    """One row of the paper's Table 1.

    Parameters
    ----------
    system : str
        "single player", or federated: "async" or "sync".
    actions : str
        The arm sets: "infinite", or finite and "fixed" or "adversarial".
    regret : Bound
        How the regret grows.
    communication : Bound or None
        How the communication cost grows; None for a single player.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> algorithm = fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=1000)
    >>> algorithm.claim.system, algorithm.claim.regret.text
    ('async', '√(d T log³ T)')
    """

    system: str
    actions: str
    regret: Bound
    communication: Bound | None
