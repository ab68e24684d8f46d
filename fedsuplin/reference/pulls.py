"""The pulls that the twin plays, and the tally of what they paid and cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np

from ..contracts.stream import Stream

CHUNK_PULLS = 500  # pulls that are taken from a stream at once


class Pull(NamedTuple):
    """One pull: the active client, the available arms, the noise and its σ_t.

    Contexts, mean rewards and corruption have one row per available arm.
    """

    client: int
    arms: np.ndarray
    contexts: np.ndarray
    means: np.ndarray
    corruption: np.ndarray
    noise: float
    sigma: float


@dataclass
class Traffic:
    """What was communicated so far: the paper's count, messages and bytes.

    The fields have the order of ReferenceResult's last columns.
    """

    communication: int = 0
    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class Tally:
    """What the pulls paid and cost so far, one row of ReferenceResult per pull.

    It also holds the budget that the adversary has left.
    """

    def __init__(self, budget: float) -> None:
        self.budget, self.regret, self.total = budget, 0.0, 0.0
        self.rows: list[tuple[Any, ...]] = []

    def draw_reward(self, pull: Pull, choice: int) -> float:
        """Return the reward of a pull of the twin: mean + noise + corruption.

        The corruption is taken from the budget left.
        """
        corrupted = min(max(pull.corruption[choice], -self.budget), self.budget)
        self.budget -= abs(corrupted)
        return float(pull.means[choice] + pull.noise + corrupted)

    def add_row(self, pull: Pull, choice: int, layer: int, reward: float, traffic: Traffic) -> None:
        """Add the row of a pull of the twin, after the communication that it led to."""
        self.regret += pull.means.max() - pull.means[choice]
        self.total += reward
        self.rows.append(
            (pull.arms[choice], layer, pull.client, self.regret, self.total, *astuple(traffic))
        )


def iterate_pulls(stream: Stream, length: int, n_arms: int) -> Iterator[Pull]:
    """Yield the pulls of a stream for the twin, turning a chunk's d × K into K × d."""
    for start in range(0, length, CHUNK_PULLS):
        chunk = stream.take(min(CHUNK_PULLS, length - start))
        for t, client in enumerate(chunk.clients):
            arms = np.arange(n_arms) if chunk.mask is None else np.flatnonzero(chunk.mask[t])
            contexts = chunk.contexts[t].T[arms]
            means = contexts @ chunk.theta if chunk.rewards is None else chunk.rewards[t, arms]
            corruption = (
                np.zeros(len(arms)) if chunk.corruption is None else chunk.corruption[t, arms]
            )
            yield Pull(
                int(client), arms, contexts, means, corruption, chunk.noise[t], chunk.sigma[t]
            )
