"""The phases of a policy that has them, between calls of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsuplin_ext.loop import Engine

from .._shared.arrays import AnyArray, Counts, Floats
from ..algorithm.algorithm import Algorithm
from ..errors import FedsuplinError, PluginError


class PhaseRunner:
    """The phases of a policy that has them. What each ended with is kept: played again, it brings the policy to where it is."""

    def __init__(self, algorithm: Algorithm, problem: Any, engine: Engine) -> None:
        self._engine, self._policy = engine, algorithm.policy.begin(algorithm, problem)
        self.ended: list[dict[str, AnyArray]] = []
        engine.begin_phase(self._policy.plan, self._policy.idle, self._policy.together)

    def advance(self, played: int) -> None:
        """What the policy makes of the phase that is over, for the clients for whom it is."""
        engine = self._engine
        left, counts, sums = self._tallies()
        over = np.flatnonzero(left == 0)
        self.ended.append({"clients": over, "counts": counts[over], "sums": sums[over]})
        try:
            traffic = self._policy.advance(over, counts, sums)
            engine.begin_phase(
                self._policy.plan,
                self._policy.idle,
                self._policy.together,
                clients=over,
                traffic=traffic,
            )
        except FedsuplinError:
            raise
        except Exception as error:
            where = f"after pull {played - 1}"
            raise PluginError(
                f"{type(self._policy).__qualname__} raised {type(error).__name__}: {error}, {where}"
            ) from error

    def _tallies(self) -> tuple[Counts, Counts, Floats]:
        """Of this phase, by client: the pulls left, and by arm too, the pulls and their summed rewards."""
        left, counts, sums = self._engine.left, self._engine.counts, self._engine.reward_sums
        assert (
            left is not None and counts is not None and sums is not None
        )  # since the first phase began
        return left, counts, sums

    def again(self, ended: list[dict[str, AnyArray]]) -> None:
        """The phases of an earlier part of this run; a policy looks at the rows of those clients only for whom it is over."""
        shape = self._tallies()[1].shape
        for phase in ended:
            counts, sums = np.zeros(shape, np.int64), np.zeros(shape)
            counts[phase["clients"]], sums[phase["clients"]] = phase["counts"], phase["sums"]
            self._policy.advance(phase["clients"], counts, sums)
        self.ended = list(ended)
