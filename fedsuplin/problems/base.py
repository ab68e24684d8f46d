"""What problems share: streams that draw their pulls, arrivals by name, specifications."""

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
    """Base of streams that draw their pulls: draws the clients, and holds memory for contexts.

    `seed` is that of the arrival pattern.
    """

    checked = True
    _problem: Problem

    def __init__(
        self, problem: Problem, horizon: int, arrival: Any, seed: np.random.SeedSequence
    ) -> None:
        self._problem, self._horizon, self._start = problem, horizon, 0
        self._arrival = arrival or problem.arrival or make_arrival("random")
        self._arrival_seed = int(seed.generate_state(1, np.uint64)[0])
        self._packed = np.empty((0, 0, 0))

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
        """Return memory for the contexts of n pulls; the next pulls reuse it."""
        if len(self._packed) < n:
            self._packed = norms.aligned_zeros(
                n, self._problem.dim, norms.pad(self._problem.n_arms)
            )
        return self._packed[:n]


def make_arrival(arrival: Any, parameters: Mapping[str, Any] | None = None) -> Any:
    """Return the arrival pattern of this name, or the object itself; None stays None."""
    if isinstance(arrival, str):
        return plugins.create("arrivals", arrival, dict(parameters or {}))
    return None if arrival is None else check_plugin("arrivals", arrival)


def pick_arrival_parameters(arrival: Any, noise: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that belong to the arrival, if it is a name.

    A keyword that the noise model takes too belongs to the noise model.
    """
    takes = (
        set(list_parameters(plugins.factory("arrivals", arrival)))
        if isinstance(arrival, str)
        else set()
    )
    if isinstance(noise, str):
        takes -= set(list_parameters(plugins.factory("noise_models", noise)))
    return {name: value for name, value in given.items() if name in takes}


def build_spec(
    problem: Problem, name: str, parameters: Mapping[str, Any] | None, parts: tuple[str, ...]
) -> dict[str, Any]:
    """Return the spec of a problem with these parameters.

    If there are none, or one of the `parts` among them is an object and not a name, the problem
    can't be made from its spec: then the spec has its repr instead.
    """
    if parameters is not None and all(isinstance(parameters[part], str | None) for part in parts):
        return {"problem": name, "parameters": dict(parameters)}
    return {"problem": name, "parameters": None, "shown": repr(problem)}


def make_problem_from_spec(spec: Mapping[str, Any]) -> Problem:
    """Make the problem that a specification describes; it must be registered by name."""
    if spec.get("parameters") is None:
        raise InvalidInput(
            f"a problem of kind {spec.get('problem')!r} can't be made again from its specification"
        )
    problem: Problem = plugins.create("problems", spec["problem"], spec["parameters"])
    return problem
