"""Arrival patterns: which client is active at which pull.

Each is a function of the pull's number, so memory does not grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuplin.plugin import hookimpl, keyed_permutation


@dataclass(frozen=True)
class RoundRobin:
    """1, 2, …, M, 1, 2, …, M: the only pattern in rounds, which synchronous policies need."""

    in_rounds: ClassVar[bool] = True

    def clients(
        self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int
    ) -> np.ndarray:
        """Return the clients of the pulls start, …, stop − 1."""
        return (np.arange(start, stop) % n_clients).astype(np.int32)


@dataclass(frozen=True)
class ClickLeave:
    """1, 1, …, 2, 2, …, M, M: each client plays all its pulls and leaves."""

    in_rounds: ClassVar[bool] = False

    def clients(
        self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int
    ) -> np.ndarray:
        """Return the clients of the pulls start, …, stop − 1."""
        return (np.arange(start, stop) * n_clients // horizon).astype(np.int32)


@dataclass(frozen=True)
class Random:
    """Each client plays T/M pulls (or one more), in random order: a keyed permutation."""

    in_rounds: ClassVar[bool] = False

    def clients(
        self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int
    ) -> np.ndarray:
        """Return the clients of the pulls start, …, stop − 1."""
        return (keyed_permutation(start, stop, horizon, seed) % n_clients).astype(np.int32)


@hookimpl
def fedsuplin_register_arrivals(register: Callable[[str, Any], None]) -> None:
    register("round-robin", RoundRobin)
    register("click-leave", ClickLeave)
    register("random", Random)
