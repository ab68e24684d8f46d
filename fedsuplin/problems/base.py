"""Problem, and what problems share: drawn streams, arrivals by name, problems from specifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.arrays import Clients, Floats
from ..contracts.problem import Problem
from ..contracts.stream import Stream
from ..errors import InvalidInput, PluginError
from ..registry import check_plugin, list_parameters, plugins


class DrawnStream(Stream):
    """What streams share that draw their pulls: who plays, and memory for the contexts. `seed` is the arrival's."""

    checked = True
    _problem: Problem

    def __init__(
        self, problem: Problem, horizon: int, arrival: Any, seed: np.random.SeedSequence
    ) -> None:
        self._problem, self._horizon, self._start = problem, horizon, 0
        self._arrival = arrival or problem.arrival or make_arrival("random")
        self._arrival_seed = int(seed.generate_state(1, np.uint64)[0])
        self._packed = np.empty((0, 0, 0))

    def _clients(self, start: int, n: int) -> Clients:
        sizes = {"n_clients": self._problem.n_clients, "horizon": self._horizon}
        clients = np.asarray(
            self._arrival.clients(start, start + n, **sizes, seed=self._arrival_seed)
        )
        if clients.shape != (n,) or not np.issubdtype(clients.dtype, np.integer):
            raise PluginError(
                f"arrival {self._arrival!r} must give {n} whole numbers, not {clients.dtype} of shape {clients.shape}"
            )
        return np.ascontiguousarray(clients, dtype=np.int32)

    def _room(self, n: int) -> Floats:
        """Memory for the contexts of n pulls, used again for the next ones."""
        if len(self._packed) < n:
            self._packed = norms.aligned_zeros(
                n, self._problem.dim, norms.pad(self._problem.n_arms)
            )
        return self._packed[:n]


def make_arrival(arrival: Any, parameters: Mapping[str, Any] | None = None) -> Any:
    """An arrival pattern by name, or the object itself; None stays None."""
    if isinstance(arrival, str):
        return plugins.create("arrivals", arrival, dict(parameters or {}))
    return None if arrival is None else check_plugin("arrivals", arrival)


def pick_arrival_parameters(arrival: Any, noise: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the keywords that an arrival pattern takes which is made by name; what the noise takes too is the noise's."""
    takes = (
        set(list_parameters(plugins.factory("arrivals", arrival)))
        if isinstance(arrival, str)
        else set()
    )
    if isinstance(noise, str):
        takes -= set(list_parameters(plugins.factory("noise_models", noise)))
    return {name: value for name, value in given.items() if name in takes}


def make_problem_from_spec(spec: Mapping[str, Any]) -> Any:
    """The problem that a specification describes, by its registered name."""
    if spec.get("parameters") is None:
        raise InvalidInput(
            f"a problem of kind {spec.get('problem')!r} can't be made again from its specification"
        )
    return plugins.create("problems", spec["problem"], spec["parameters"])
