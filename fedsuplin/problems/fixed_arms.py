"""FixedArmsProblem: each client has the same arms in every round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.array_checks import as_array, check_array
from .._shared.arrays import Clients, Floats
from ..contracts.stream import pad_columns
from ..errors import InvalidInput
from .synthetic import SyntheticProblem, SyntheticStream

LONGEST_ARM = 1 + 1e-6


class FixedArmsProblem(SyntheticProblem):
    """Each client has the same contexts in every round: random ones on the unit sphere, or `arms` (K × d, or M × K × d).

    `own_arms` gives each client arms of its own. `own_thetas` gives each arm a θ of its own (or give `thetas`, K × d): the
    reward of arm a is θ_aᵀx_{i,a}, the setting of Fed-PE. Everything else is as in SyntheticProblem.

    >>> problem = FixedArmsProblem(dim=3, n_arms=6, n_clients=2, seed=1)
    >>> problem.fixed_arms.shape, problem.stream(10, None).take(4).contexts.shape
    ((2, 6, 3), (4, 3, 8))
    """

    fixed_arms: Floats

    def __init__(
        self,
        dim: int,
        n_arms: int,
        n_clients: int,
        *,
        own_arms: bool = False,
        own_thetas: bool = False,
        arms: Any = None,
        thetas: Any = None,
        arrival: Any = None,
        noise: Any = "gaussian",
        noise_scale: float | None = None,
        theta: Any = None,
        horizon: int | None = None,
        seed: int = 0,
        **noise_parameters: Any,
    ) -> None:
        usual = {
            "arrival": arrival,
            "noise": noise,
            "noise_scale": noise_scale,
            "theta": theta,
            "horizon": horizon,
            "seed": seed,
        }
        super().__init__(dim, n_arms, n_clients, **usual, **noise_parameters)
        if theta is not None and (own_thetas or thetas is not None):
            raise InvalidInput(
                "give one theta for all arms, or a theta for each (thetas= or own_thetas=True), not both"
            )
        self.fixed_arms = self._arms(arms, own_arms)
        if own_thetas or thetas is not None:
            self.arm_thetas, self.theta = self._thetas(thetas), None
        self._parameters.pop("contexts")
        self._parameters |= {"own_arms": bool(own_arms), "own_thetas": bool(own_thetas)}
        self._parameters |= {"arms": convert_to_lists(arms), "thetas": convert_to_lists(thetas)}

    @property
    def spec(self) -> dict[str, Any]:
        return super().spec | {"problem": "fixed-arms"}

    def _arms(self, given: Any, own: bool) -> Floats:
        """M × K × d. Clients with the same arms share the numbers."""
        size, whole = (self.n_arms, self.dim), (self.n_clients, self.n_arms, self.dim)
        if given is None:
            return np.broadcast_to(self._directions(1, whole if own else size), whole)
        arms = check_array("arms", given, whole if as_array("arms", given).ndim == 3 else size)
        lengths = np.linalg.norm(arms, axis=-1).reshape(-1, self.n_arms)
        for client, row in enumerate(lengths):
            if row.max() > LONGEST_ARM:
                raise InvalidInput(
                    f"arm {int(row.argmax())} of client {client} has length {row.max():.6g}; the theory needs at most 1"
                )
        return np.broadcast_to(arms, whole)

    def _thetas(self, given: Any) -> Floats:
        size = (self.n_arms, self.dim)
        return self._directions(0, size) if given is None else check_array("thetas", given, size)

    def _directions(self, purpose: int, shape: tuple[int, ...]) -> Floats:
        """Uniform on the unit sphere, from the problem's seed for this purpose."""
        raw = np.random.default_rng(self._seeds()[purpose]).standard_normal(shape)
        lengths: Floats = np.linalg.norm(raw, axis=-1, keepdims=True)
        return raw / lengths

    def stream(self, horizon: int, arrival: Any) -> FixedArmsStream:
        return FixedArmsStream(self, horizon, arrival)

    def __repr__(self) -> str:
        thetas = "a θ for each arm" if self.arm_thetas is not None else "one θ"
        return (
            f"FixedArmsProblem(dim={self.dim}, n_arms={self.n_arms}, n_clients={self.n_clients}, {thetas}, "
            f"arrival={self.arrival}, noise={self.noise}, horizon={self.horizon}, seed={self.seed})"
        )


class FixedArmsStream(SyntheticStream):
    """The arms of whoever plays, with noise and arrivals as in a SyntheticStream."""

    def __init__(self, problem: FixedArmsProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival)
        lanes = norms.pad(problem.n_arms)
        self._table = norms.aligned_zeros(problem.n_clients, problem.dim, lanes)
        norms.pack(np.ascontiguousarray(problem.fixed_arms), None, 1.0, self._table)
        means = None
        if problem.arm_thetas is not None:
            means = np.einsum("mkd,kd->mk", problem.fixed_arms, problem.arm_thetas)
        self._means = pad_columns(means, lanes)

    def _contexts_of(self, clients: Clients) -> Floats:
        return np.take(self._table, clients, axis=0, out=self._room(len(clients)), mode="clip")

    def _rewards_of(self, clients: Clients) -> Floats | None:
        return None if self._means is None else self._means[clients]


def convert_to_lists(values: Any) -> Any:
    """For a specification: plain data, or None."""
    return None if values is None else np.asarray(values, dtype=float).tolist()
