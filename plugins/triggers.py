"""Communication triggers: when a client, or all of them, talk to the server.

`fires(gain, elapsed)` is the rule as a reader checks it against the paper, and `compiled()` the
same rule for the loop. A trigger fires only when its left side exceeds the threshold by a relative
1e-9 (`add_rounding_margin`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scipy import LowLevelCallable

from fedsuplin.plugin import (
    InvalidInput,
    Setting,
    add_rounding_margin,
    check_not_negative,
    check_positive_integer,
    formulas,
    from_cython,
    hookimpl,
)

__all__ = ["Always", "Determinant", "Never", "Periodic", "TimedDeterminant"]


@dataclass(frozen=True)
class Determinant:
    """det(A+ΔA)/det(A) > 1 + C: the client has learnt enough. C defaults to the theorem's 1/M²."""

    C: float | None = None

    def __post_init__(self) -> None:
        if self.C is not None:
            object.__setattr__(self, "C", check_not_negative("C", self.C))

    def bind(self, setting: Setting) -> Determinant:
        """Fill in the defaults that depend on the sizes."""
        return self if self.C is not None else replace(self, C=self.theorem(setting))

    @staticmethod
    def theorem(setting: Setting) -> float:
        """Return the value that the theorem uses."""
        return 1 / setting.n_clients**2

    @property
    def threshold(self) -> float:
        """The threshold in ln det, with the rounding margin."""
        if self.C is None:
            raise InvalidInput("this Determinant has no C yet: call bind(setting), or give it")
        return add_rounding_margin(math.log1p(self.C))

    def fires(self, gain: float, elapsed: float) -> bool:
        """Return whether to ask for a sync."""
        return gain > self.threshold

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "gain_above", self.threshold)


@dataclass(frozen=True)
class TimedDeterminant:
    """(t − t_last)·ln(det(A+ΔA)/det(A)) > D: learnt enough, or no sync for too long.

    D defaults to T_c ln T_c/(d²M).
    """

    D: float | None = None

    def __post_init__(self) -> None:
        if self.D is not None:
            object.__setattr__(self, "D", check_not_negative("D", self.D))

    def bind(self, setting: Setting) -> TimedDeterminant:
        """Fill in the defaults that depend on the sizes."""
        return self if self.D is not None else replace(self, D=self.theorem(setting))

    @staticmethod
    def theorem(setting: Setting) -> float:
        """Return the value that the theorem uses."""
        rounds = setting.rounds
        return max(0.0, rounds * math.log(rounds) / (setting.dim**2 * setting.n_clients))

    @property
    def threshold(self) -> float:
        """The threshold D, with the rounding margin."""
        if self.D is None:
            raise InvalidInput(
                f"this {type(self).__name__} has no D yet: call bind(setting), or give it"
            )
        return add_rounding_margin(self.D)

    def fires(self, gain: float, elapsed: float) -> bool:
        """Return whether to ask for a sync."""
        return elapsed * gain > self.threshold

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "timed_gain_above", self.threshold)


@dataclass(frozen=True)
class Periodic:
    """After a fixed number of the client's pulls (or of rounds, where all clients sync)."""

    every: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", check_positive_integer("every", self.every))

    def fires(self, gain: float, elapsed: float) -> bool:
        """Return whether to ask for a sync."""
        return elapsed >= self.every

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "elapsed_at_least", self.every)


@dataclass(frozen=True)
class Always:
    """After every pull."""

    def fires(self, gain: float, elapsed: float) -> bool:
        """Return whether to ask for a sync."""
        return True

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "elapsed_at_least", 0.0)


@dataclass(frozen=True)
class Never:
    """Never: each client learns alone."""

    def fires(self, gain: float, elapsed: float) -> bool:
        """Return whether to ask for a sync."""
        return False

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "gain_above", math.inf)


@hookimpl
def fedsuplin_register_triggers(register: Callable[[str, Any], None]) -> None:
    register("determinant", Determinant)
    register("timed-determinant", TimedDeterminant)
    register("periodic", Periodic)
    register("always", Always)
    register("never", Never)
