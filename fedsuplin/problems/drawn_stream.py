"""DrawnStream: the base of streams that draw their pulls."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._shared.array_types import Clients, Floats
from ..contracts.problem import Problem
from ..contracts.stream import Stream
from ..errors import PluginError
from .arrivals import make_arrival
from .buffers import AlternatingBuffers


class DrawnStream(Stream):
    """Base of streams that draw their pulls: draws the clients, and holds memory for contexts.

    `seed` is that of the arrival pattern. Another thread may draw if no plugin takes part: one may
    share state with a rule that is called while a chunk is played.
    """

    checked = True
    _problem: Problem

    def __init__(
        self, problem: Problem, horizon: int, arrival: Any, seed: np.random.SeedSequence
    ) -> None:
        self._problem, self._horizon, self._start = problem, horizon, 0
        self._arrival = arrival or problem.arrival or make_arrival("random")
        self._arrival_seed = int(seed.generate_state(1, np.uint64)[0])
        self._buffers = AlternatingBuffers(problem.dim, problem.n_arms)
        parts = (self, self._arrival, getattr(problem, "noise", None) or self)
        self.may_prefetch = all(is_built_in(part) for part in parts)

    def _draw_clients(self, start: int, n: int) -> Clients:
        """Return the clients of n pulls, after checking what the arrival pattern returns."""
        sizes = {"n_clients": self._problem.n_clients, "horizon": self._horizon}
        clients = np.asarray(
            self._arrival.clients(start, start + n, **sizes, seed=self._arrival_seed)
        )
        if clients.shape != (n,) or not np.issubdtype(clients.dtype, np.integer):
            raise PluginError(
                f"arrival {self._arrival!r} must give {n} whole numbers, "
                f"not {clients.dtype} of shape {clients.shape}"
            )
        return np.ascontiguousarray(clients, dtype=np.int32)

    def _reserve_contexts(self, n: int) -> Floats:
        """Return memory for the contexts of n pulls; the pulls after the next reuse it."""
        return self._buffers.take(n)


def is_built_in(part: Any) -> bool:
    """Return whether a stream, an arrival pattern or a noise model is ours, not a plugin's."""
    return type(part).__module__.partition(".")[0] in ("fedsuplin", "fedsuplin_plugins")
