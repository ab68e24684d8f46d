"""The phases of a phased policy, planned between calls of the engine."""

from __future__ import annotations

import numpy as np

from fedsuplin_ext.loop import Engine

from .._shared.array_types import AnyArray, Counts, Floats
from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..errors import FedsuplinError, PluginError


class PhaseRunner:
    """Run the phases of a policy, and keep the end of each so that a resumed run can replay it."""

    def __init__(self, algorithm: Algorithm, problem: Problem, engine: Engine) -> None:
        self._engine, self._policy = engine, algorithm.policy.begin(algorithm, problem)
        self.ended: list[dict[str, AnyArray]] = []
        engine.begin_phase(self._policy.plan, self._policy.idle, self._policy.together)

    def advance(self, played: int) -> None:
        """Give the policy the sums of the phase that is over, and begin the next phase."""
        engine = self._engine
        left, counts, sums = self._read_tallies()
        over = np.flatnonzero(left == 0)  # clients whose phase is over
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

    def _read_tallies(self) -> tuple[Counts, Counts, Floats]:
        """Return the pulls left per client, and pulls and summed rewards per client and arm."""
        left, counts, sums = self._engine.left, self._engine.counts, self._engine.reward_sums
        assert left is not None and counts is not None and sums is not None  # a phase has begun
        return left, counts, sums

    def replay(self, ended: list[dict[str, AnyArray]]) -> None:
        """Bring the policy to where it was by giving it the phases that have already ended.

        A policy reads only the rows of the clients whose phase is over, so the others may be zero.
        """
        shape = self._read_tallies()[1].shape
        for phase in ended:
            counts, sums = np.zeros(shape, np.int64), np.zeros(shape)
            counts[phase["clients"]], sums[phase["clients"]] = phase["counts"], phase["sums"]
            self._policy.advance(phase["clients"], counts, sums)
        self.ended = list(ended)


def begin_phases(algorithm: Algorithm, problem: Problem, engine: Engine) -> PhaseRunner | None:
    """Begin the first phase of a phased policy; return None for other policies."""
    return PhaseRunner(algorithm, problem, engine) if algorithm.kernel == "phased" else None
