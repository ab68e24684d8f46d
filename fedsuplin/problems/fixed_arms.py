"""FixedArmsProblem: each client has the same arms in every round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.array_checks import as_array, check_array
from .._shared.array_types import Clients, Floats
from .._shared.plain_data import convert_to_lists
from ..contracts.stream import NORM_TOLERANCE
from ..errors import InvalidInput
from .synthetic import SyntheticProblem, SyntheticStream


class FixedArmsProblem(SyntheticProblem):
    """A synthetic problem in which each client has the same contexts in every round.

    The contexts are random on the unit sphere unless `arms` are given. M is the number of clients,
    K that of arms, d the dimension.

    Parameters
    ----------
    dim : int
        The dimension of contexts and θ.
    n_arms : int
        The number of arms.
    n_clients : int
        The number of clients.
    own_arms : bool, default False
        Draw different arms for each client.
    own_thetas : bool, default False
        Draw a θ for each arm: the reward of arm a is θ_aᵀx_{i,a}, as in the setting of Fed-PE.
    arms : array of float, K × d or M × K × d, optional
        The contexts, instead of random ones.
    thetas : array of float, K × d, optional
        A θ for each arm, instead of random ones.
    arrival : str or arrival pattern, optional
        Which client plays when. Defaults to rounds for policies that sync all clients, and
        otherwise to a random client.
    noise : str or noise model, default "gaussian"
        How noise is drawn.
    noise_scale : float, optional
        The noise level.
    theta : array of float, d, optional
        One θ for all arms. Defaults to a random one of length 1.
    horizon : int, optional
        The number of pulls. Defaults to as many as a run asks for.
    seed : int, default 0
        The seed of everything random.
    **noise_parameters : object
        Parameters of the noise model, or of an arrival that is given by name.

    Examples
    --------
    >>> from fedsuplin import FixedArmsProblem
    >>> problem = FixedArmsProblem(dim=3, n_arms=6, n_clients=2, seed=1)
    >>> problem.fixed_arms.shape, problem.stream(10, None).take(4).contexts.shape
    ((2, 6, 3), (4, 3, 6))
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
                "give one theta for all arms, or a theta for each arm "
                "(thetas= or own_thetas=True), not both"
            )
        self.fixed_arms = self._make_arms(arms, own_arms)
        if own_thetas or thetas is not None:
            self.arm_thetas, self.theta = self._make_thetas(thetas), None
        self._parameters.pop("contexts")
        self._parameters |= {"own_arms": bool(own_arms), "own_thetas": bool(own_thetas)}
        self._parameters |= {"arms": convert_to_lists(arms), "thetas": convert_to_lists(thetas)}

    @property
    def spec(self) -> dict[str, Any]:
        """The problem as plain data; `parameters` is None if it can't be made again from it."""
        return super().spec | {"problem": "fixed-arms"}

    def _make_arms(self, given: Any, own: bool) -> Floats:
        """Return the arms as M × K × d; clients with the same arms share the memory."""
        size, whole = (self.n_arms, self.dim), (self.n_clients, self.n_arms, self.dim)
        if given is None:
            return np.broadcast_to(self._draw_directions(1, whole if own else size), whole)
        arms = check_array("arms", given, whole if as_array("arms", given).ndim == 3 else size)
        lengths = np.linalg.norm(arms, axis=-1).reshape(-1, self.n_arms)
        for client, row in enumerate(lengths):
            if row.max() > 1 + NORM_TOLERANCE:
                raise InvalidInput(
                    f"arm {int(row.argmax())} of client {client} has length {row.max():.6g}; "
                    "the theory needs at most 1"
                )
        return np.broadcast_to(arms, whole)

    def _make_thetas(self, given: Any) -> Floats:
        """Return the θ of each arm, K × d."""
        size = (self.n_arms, self.dim)
        if given is None:
            return self._draw_directions(0, size)
        return check_array("thetas", given, size)

    def _draw_directions(self, purpose: int, shape: tuple[int, ...]) -> Floats:
        """Draw vectors uniformly from the unit sphere, with the problem's seed for this purpose."""
        raw = np.random.default_rng(self._spawn_seeds()[purpose]).standard_normal(shape)
        lengths: Floats = np.linalg.norm(raw, axis=-1, keepdims=True)
        return raw / lengths

    def stream(self, horizon: int, arrival: Any) -> FixedArmsStream:
        return FixedArmsStream(self, horizon, arrival)

    def __repr__(self) -> str:
        thetas = "a θ for each arm" if self.arm_thetas is not None else "one θ"
        return (
            f"FixedArmsProblem(dim={self.dim}, n_arms={self.n_arms}, n_clients={self.n_clients}, "
            f"{thetas}, arrival={self.arrival}, noise={self.noise}, horizon={self.horizon}, "
            f"seed={self.seed})"
        )


class FixedArmsStream(SyntheticStream):
    """Yield the fixed arms of each client, with noise and arrivals as in a SyntheticStream."""

    def __init__(self, problem: FixedArmsProblem, horizon: int, arrival: Any) -> None:
        super().__init__(problem, horizon, arrival)
        self._table = norms.aligned_zeros(problem.n_clients, problem.dim, problem.n_arms)
        norms.pack(np.ascontiguousarray(problem.fixed_arms), None, 1.0, self._table)
        means = None
        if problem.arm_thetas is not None:
            means = np.einsum("mkd,kd->mk", problem.fixed_arms, problem.arm_thetas)
        self._means = means

    def _draw_contexts(self, clients: Clients) -> Floats:
        """Copy the arms of these clients."""
        packed = self._reserve_contexts(len(clients))
        return np.take(self._table, clients, axis=0, out=packed, mode="clip")

    def _look_up_rewards(self, clients: Clients) -> Floats | None:
        """Return the mean rewards of these clients, if each arm has a θ of its own."""
        return None if self._means is None else self._means[clients]
