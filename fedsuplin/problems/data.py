"""What problems that draw their rounds from data share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .._shared.arrays import AnyArray, Clients, Counts, Floats
from .._shared.checks import check_positive_integer, check_seed
from ..contracts.problem import Problem
from ..contracts.stream import Chunk
from .base import DrawnStream, make_arrival

SHARED_STREAMS = (
    6  # of a seed, which a SyntheticProblem counts on; those of the data come after them
)


class DataProblem(Problem):
    """Rewards of 0 and 1, one 1 a round. Whatever the mean, such a reward is 1/2-sub-Gaussian (Hoeffding), and at most 1 off it.

    A kind says how rounds are drawn in a DataStream, and has in `_parameters` what makes the problem again, None if nothing can.
    """

    noise_scale = 0.5
    R = 1.0
    noise = None  # the rewards are a table: nothing is added to them

    _parameters: dict[str, Any] | None = None

    def __init__(
        self, dim: int, n_arms: int, n_clients: int, *, horizon: int | None, arrival: Any, seed: int
    ) -> None:
        self.dim, self.n_arms = (
            check_positive_integer("dim", dim),
            check_positive_integer("n_arms", n_arms),
        )
        self.n_clients = check_positive_integer("n_clients", n_clients)
        self.horizon = None if horizon is None else check_positive_integer("horizon", horizon)
        self.seed, self.arrival = check_seed(seed), make_arrival(arrival)

    @property
    def spec(self) -> dict[str, Any]:
        """Parameters that make it again, unless a part was given as an object: then there are none, and it says so."""
        parameters = self._parameters
        if parameters is None or not isinstance(parameters["arrival"], str | None):
            return super().spec | {"parameters": None, "shown": repr(self)}
        return super().spec | {"parameters": dict(parameters)}

    def in_words(self) -> str:
        """What the data is, for people who know the sizes."""
        return repr(self)

    def _seeds(self) -> list[np.random.SeedSequence]:
        return np.random.SeedSequence(self.seed).spawn(SHARED_STREAMS)

    def _generators(self, n: int) -> list[np.random.Generator]:
        """One for each purpose that the data has, so that no choice shifts another's numbers."""
        seeds = np.random.SeedSequence(self.seed).spawn(SHARED_STREAMS + n)[SHARED_STREAMS:]
        return [np.random.default_rng(seed) for seed in seeds]


class DataStream(DrawnStream):
    """A kind defines `_drawn`. It has generators of its own, and no position: a checkpoint takes the pulls again."""

    _problem: DataProblem

    def __init__(self, problem: DataProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival, problem._seeds()[-1])

    @abstractmethod
    def _drawn(self, clients: Clients) -> tuple[Floats, Counts]:
        """The contexts of these clients, and which arm pays."""

    def take(self, n: int) -> Chunk:
        clients = self._clients(self._start, n)
        self._start += n
        contexts, paying = self._drawn(clients)
        rewards = np.zeros((n, contexts.shape[2]))
        rewards[np.arange(n), paying] = 1.0
        sigma = np.full(n, self._problem.noise_scale)
        return Chunk(
            contexts=contexts, clients=clients, noise=np.zeros(n), sigma=sigma, rewards=rewards
        )


def scale_to_whole_numbers(numbers: Floats, limit: Any) -> Counts:
    """Numbers uniform in [0, 1) as whole numbers from 0 to limit - 1: one draw each, so that a stream may be cut anywhere."""
    return np.asarray(numbers * limit).astype(np.int64)


def count_earlier(values: AnyArray) -> Counts:
    """For each entry, how many before it are the same."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    out = np.empty(len(values), np.int64)
    out[order] = np.arange(len(values)) - np.searchsorted(
        ordered, ordered
    )  # where each run of the same begins
    return out
