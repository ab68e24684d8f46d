"""Setting: the sizes that every formula of the paper depends on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .._shared.checks import check_positive, check_positive_integer, check_size
from ..errors import InvalidInput

LEAST_RIDGE, MOST_RIDGE = (
    1e-100,
    1e100,
)  # their inverses and squares are far from what a double can hold


@dataclass(frozen=True)
class Setting:
    """d, K, M, T and λ of a problem, as the formulas of noise models, triggers and weightings take them.

    >>> Setting(dim=25, n_arms=20, n_clients=20, horizon=40_000).rounds
    2000.0
    """

    dim: int
    n_arms: int
    n_clients: int
    horizon: int
    ridge: float = 1.0

    def __post_init__(self) -> None:
        for name in ("dim", "n_arms", "n_clients"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        object.__setattr__(self, "horizon", check_positive_integer("horizon", self.horizon))
        if not LEAST_RIDGE <= check_positive("ridge", self.ridge) <= MOST_RIDGE:
            raise InvalidInput(
                f"ridge must be from {LEAST_RIDGE} to {MOST_RIDGE}, not {self.ridge!r}"
            )
        object.__setattr__(self, "ridge", float(self.ridge))

    @property
    def rounds(self) -> float:
        """T_c = T / M, the pulls of one client when all take turns."""
        return self.horizon / self.n_clients

    def with_horizon(self, horizon: int) -> Setting:
        return dataclasses.replace(self, horizon=horizon)


def add_rounding_margin(threshold: float) -> float:
    """What a trigger's left side must be above in order to exceed a threshold: more, by a relative 1e-9.

    A unit context on A = I makes a ratio of determinants exactly 2; without the margin the trajectory would depend on how a
    CPU rounds it.
    """
    return (1 + 1e-9) * threshold
