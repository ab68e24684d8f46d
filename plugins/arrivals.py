"""Arrival patterns: which client is active at which pull. Each is a function of the pull's number, so memory does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsuplin import hookimpl

FEISTEL_ROUNDS = 6


@dataclass(frozen=True)
class RoundRobin:
    """1, 2, …, M, 1, 2, …, M: the only pattern in rounds, so the one that synchronous policies take."""

    in_rounds: ClassVar[bool] = True

    def clients(self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int) -> np.ndarray:
        return (np.arange(start, stop) % n_clients).astype(np.int32)


@dataclass(frozen=True)
class ClickLeave:
    """1, 1, …, 2, 2, …, M, M: each client plays all its pulls and leaves."""

    in_rounds: ClassVar[bool] = False

    def clients(self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int) -> np.ndarray:
        return (np.arange(start, stop) * n_clients // horizon).astype(np.int32)


@dataclass(frozen=True)
class Random:
    """Each client exactly T/M pulls (or one more or less), in random order: a keyed permutation of the pull numbers."""

    in_rounds: ClassVar[bool] = False

    def clients(self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int) -> np.ndarray:
        return (permuted(np.arange(start, stop), horizon, seed) % n_clients).astype(np.int32)


def permuted(numbers: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Where a permutation of 0..size-1, chosen by the seed, sends each number.

    A balanced Feistel network permutes the next power of four; a value that falls outside walks on until it falls inside.
    """
    half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    keys = np.random.SeedSequence(seed).generate_state(FEISTEL_ROUNDS, np.uint64)
    values = feistel(numbers.astype(np.uint64), half_bits, keys)
    while (outside := values >= size).any():
        values[outside] = feistel(values[outside], half_bits, keys)
    return values.astype(np.int64)


def feistel(values: np.ndarray, half_bits: np.uint64, keys: np.ndarray) -> np.ndarray:
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = values >> half_bits, values & mask
    for key in keys:
        left, right = right, left ^ (scramble(right + key) & mask)
    return (left << half_bits) | right


def scramble(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: every output bit depends on every input bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@hookimpl
def fedsuplin_register_arrivals(register):
    register("round-robin", RoundRobin)
    register("click-leave", ClickLeave)
    register("random", Random)
