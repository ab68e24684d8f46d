"""What problems that draw their rounds from data share: rewards of 0 and 1, seeds, streams."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .._shared.array_types import AnyArray, Clients, Counts, Floats
from .._shared.checks import check_positive_integer, check_seed, check_size
from ..contracts.problem import Problem
from ..contracts.stream import Chunk
from .arrivals import make_arrival
from .drawn_stream import DrawnStream
from .specs import build_spec

# The random streams of a seed that a SyntheticProblem uses; those of the data come after them.
SHARED_STREAMS = 6


class DataProblem(Problem):
    """Base of problems with rewards of 0 and 1, in which one arm per round pays 1.

    Whatever its mean, such a reward is 1/2-sub-Gaussian (Hoeffding), and differs from it by at
    most 1. A subclass draws the rounds in a DataStream. Its `_parameters` are the keywords that
    make the problem again, None if it can't be made from plain data.
    """

    noise_scale = 0.5
    R = 1.0
    noise = None  # the rewards are a table: nothing is added to them

    _parameters: dict[str, Any] | None = None

    def __init__(
        self, dim: int, n_arms: int, n_clients: int, *, horizon: int | None, arrival: Any, seed: int
    ) -> None:
        self.dim, self.n_arms = check_size("dim", dim), check_size("n_arms", n_arms)
        self.n_clients = check_size("n_clients", n_clients)
        self.horizon = None if horizon is None else check_positive_integer("horizon", horizon)
        self.seed, self.arrival = check_seed(seed), make_arrival(arrival)

    @property
    def spec(self) -> dict[str, Any]:
        """The problem as plain data; `parameters` is None if it can't be made again from it."""
        return build_spec(self, super().spec["problem"], self._parameters, ("arrival",))

    def describe(self) -> str:
        """Describe the data in a few words, without the sizes of the problem."""
        return repr(self)

    def _spawn_seeds(self) -> list[np.random.SeedSequence]:
        """Return the seeds that all problems have, one per purpose; the last is the arrival's."""
        return np.random.SeedSequence(self.seed).spawn(SHARED_STREAMS)

    def _spawn_generators(self, n: int) -> list[np.random.Generator]:
        """Return n generators for the data, one per purpose: none shifts another's draws."""
        seeds = np.random.SeedSequence(self.seed).spawn(SHARED_STREAMS + n)[SHARED_STREAMS:]
        return [np.random.default_rng(seed) for seed in seeds]


class DataStream(DrawnStream):
    """Base of streams that draw rounds from data; a subclass defines `_draw_rounds`.

    It has no position, so a resumed run draws the earlier pulls again.
    """

    _problem: DataProblem

    def __init__(self, problem: DataProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival, problem._spawn_seeds()[-1])

    @abstractmethod
    def _draw_rounds(self, clients: Clients) -> tuple[Floats, Counts]:
        """Draw one round per client: return the contexts, and the arm that pays."""

    def take(self, n: int) -> Chunk:
        """Take the next n pulls."""
        clients = self._draw_clients(self._start, n)
        self._start += n
        contexts, paying = self._draw_rounds(clients)
        rewards = np.zeros((n, contexts.shape[2]))
        rewards[np.arange(n), paying] = 1.0
        sigma = np.full(n, self._problem.noise_scale)
        return Chunk(
            contexts=contexts, clients=clients, noise=np.zeros(n), sigma=sigma, rewards=rewards
        )


def scale_to_whole_numbers(numbers: Floats, limit: Any) -> Counts:
    """Turn uniform numbers in [0, 1) into whole numbers below a limit, to draw from data.

    Each takes exactly one draw, so that a stream may be cut into chunks anywhere.
    """
    return np.asarray(numbers * limit).astype(np.int64)


def count_earlier(values: AnyArray) -> Counts:
    """Return for each entry how many earlier ones are equal, for rounds drawn from data."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    out = np.empty(len(values), np.int64)
    begins = np.searchsorted(ordered, ordered)  # where each run of equal values begins
    out[order] = np.arange(len(values)) - begins
    return out
