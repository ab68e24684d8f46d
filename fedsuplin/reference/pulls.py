"""The pulls that the twin plays, and the tally of what they pay and cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np

from ..contracts.stream import Stream

CHUNK_PULLS = 500


class Pull(NamedTuple):
    """The active client, the arms that are there and, a row each, their contexts, mean rewards and corruption; the noise
    and its σ_t."""

    client: int
    arms: np.ndarray
    contexts: np.ndarray
    means: np.ndarray
    corruption: np.ndarray
    noise: float
    sigma: float


@dataclass
class Traffic:
    """The paper's count, and what really crosses the wire; in the order of ReferenceResult's last columns."""

    communication: int = 0
    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class Tally:
    """What the pulls paid and cost so far: a row of ReferenceResult each. Holds what the adversary has left to spend."""

    def __init__(self, budget: float) -> None:
        self.budget, self.regret, self.total = budget, 0.0, 0.0
        self.rows: list[tuple[Any, ...]] = []

    def reward(self, pull: Pull, choice: int) -> float:
        """Mean + noise + corruption, which is clipped to the budget left."""
        corrupted = min(max(pull.corruption[choice], -self.budget), self.budget)
        self.budget -= abs(corrupted)
        return float(pull.means[choice] + pull.noise + corrupted)

    def enter(self, pull: Pull, choice: int, layer: int, reward: float, traffic: Traffic) -> None:
        self.regret += pull.means.max() - pull.means[choice]
        self.total += reward
        self.rows.append(
            (pull.arms[choice], layer, pull.client, self.regret, self.total, *astuple(traffic))
        )


def iterate_pulls(stream: Stream, length: int, n_arms: int) -> Iterator[Pull]:
    """Pull by pull. The engine's d × lanes are turned back into K × d, without the padding."""
    for start in range(0, length, CHUNK_PULLS):
        chunk = stream.take(min(CHUNK_PULLS, length - start))
        for t, client in enumerate(chunk.clients):
            arms = (
                np.arange(n_arms) if chunk.mask is None else np.flatnonzero(chunk.mask[t, :n_arms])
            )
            contexts = chunk.contexts[t].T[arms]
            means = contexts @ chunk.theta if chunk.rewards is None else chunk.rewards[t, arms]
            corruption = (
                np.zeros(len(arms)) if chunk.corruption is None else chunk.corruption[t, arms]
            )
            yield Pull(
                int(client), arms, contexts, means, corruption, chunk.noise[t], chunk.sigma[t]
            )
