"""Setting: the sizes that every formula of the paper depends on, checked once."""

from __future__ import annotations

import dataclasses
import math
import numbers
from dataclasses import dataclass

from .errors import InvalidInput

__all__ = ["Setting", "exceeding", "finite", "not_negative", "positive", "positive_integer", "probability"]

LEAST_RIDGE, MOST_RIDGE = 1e-100, 1e100  # their inverses and squares are far from what a double can hold
LARGEST_SIZE = 2**31 - 1
LARGEST_COUNT = 2**62


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
            object.__setattr__(self, name, size(name, getattr(self, name)))
        object.__setattr__(self, "horizon", positive_integer("horizon", self.horizon))
        if not LEAST_RIDGE <= positive("ridge", self.ridge) <= MOST_RIDGE:
            raise InvalidInput(f"ridge must be from {LEAST_RIDGE} to {MOST_RIDGE}, not {self.ridge!r}")
        object.__setattr__(self, "ridge", float(self.ridge))

    @property
    def rounds(self) -> float:
        """T_c = T / M, the pulls of one client when all take turns."""
        return self.horizon / self.n_clients

    def with_horizon(self, horizon: int) -> Setting:
        return dataclasses.replace(self, horizon=horizon)


def positive_integer(name: str, value: object, most: int = LARGEST_COUNT) -> int:
    """`value` as an int of at least 1, or an error that names it. 40_000.0 is fine, 2.5 and True are not."""
    whole = _whole(value)
    if whole is None or isinstance(value, bool) or whole < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, not {value!r}")
    if whole > most:
        raise InvalidInput(f"{name} must be at most {most}, which is more than anybody's memory or time holds")
    return whole


def _whole(value: object) -> int | None:
    if isinstance(value, numbers.Integral):
        return int(value)
    return int(float(value)) if isinstance(value, numbers.Real) and float(value).is_integer() else None


def size(name: str, value: object) -> int:
    """d, K or M: as `positive_integer`, and an int in C."""
    return positive_integer(name, value, LARGEST_SIZE)


def finite(name: str, value: object) -> float:
    """`value` as a finite float, or an error that names it."""
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond all floats; its digits would fill the screen
        raise InvalidInput(f"{name} must be a finite number, and none this large is in double precision") from None
    raise InvalidInput(f"{name} must be a finite number, not {value!r}")


def positive(name: str, value: object) -> float:
    number = finite(name, value)
    if number <= 0:
        raise InvalidInput(f"{name} must be positive, not {value!r}")
    return number


def not_negative(name: str, value: object) -> float:
    number = finite(name, value)
    if number < 0:
        raise InvalidInput(f"{name} must be at least 0, not {value!r}")
    return number


def probability(name: str, value: object) -> float:
    """`value` strictly between 0 and 1."""
    number = finite(name, value)
    if not 0 < number < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, not {value!r}")
    return number


def exceeding(threshold: float) -> float:
    """What a trigger's left side must be above in order to exceed a threshold: more, by a relative 1e-9.

    A unit context on A = I makes a ratio of determinants exactly 2; without the margin the trajectory would depend on how a
    CPU rounds it.
    """
    return (1 + 1e-9) * threshold
