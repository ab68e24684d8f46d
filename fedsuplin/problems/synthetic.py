"""SyntheticProblem: random contexts, a random θ, noise from a noise model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsuplin_ext import norms
from fedsuplin_ext.draws import ContextSource

from .._shared.array_checks import check_array
from .._shared.array_types import Clients, Floats
from .._shared.checks import check_positive_integer, check_seed, check_size
from ..contracts.problem import Problem
from ..contracts.stream import Chunk, Stream
from ..errors import InvalidInput, PluginError, unknown
from ..registry import check_plugin, list_parameters, plugins
from .arrivals import make_arrival, pick_arrival_parameters
from .drawn_stream import DrawnStream
from .specs import build_spec

CONTEXT_LAWS = ("sphere", "ball")
GENERATORS = ("_lengths", "_noise", "_corruption")  # attributes, and keys of a checkpoint


class SyntheticProblem(Problem):
    """A problem with random contexts and one θ for all clients.

    Parameters
    ----------
    dim : int
        The dimension of contexts and θ.
    n_arms : int
        The number of arms.
    n_clients : int
        The number of clients.
    arrival : str or arrival pattern, optional
        Which client plays when. Defaults to rounds for policies that sync all clients, and
        otherwise to a random client.
    noise : str or noise model, default "gaussian"
        How noise is drawn: ``"gaussian"``, ``"bounded"`` (the client sees σ_t), ``"corrupted"``
        (an adversary with a budget), or any other noise model.
    noise_scale : float, optional
        The noise level. Defaults to 0.1 if the noise model has one.
    contexts : {"sphere", "ball"}, default "sphere"
        Whether contexts are uniform on the unit sphere or in the unit ball.
    theta : array of float, optional
        The parameter θ. Defaults to a random one of length 1.
    horizon : int, optional
        The number of pulls. Defaults to as many as a run asks for.
    seed : int, default 0
        The seed of everything random.
    **noise_parameters : object
        Parameters of the noise model, or of an arrival that is given by name.

    Examples
    --------
    >>> from fedsuplin import SyntheticProblem
    >>> problem = SyntheticProblem(dim=5, n_arms=4, n_clients=3, seed=1)
    >>> problem.stream(12, None).take(2).contexts.shape
    (2, 5, 4)
    """

    def __init__(
        self,
        dim: int,
        n_arms: int,
        n_clients: int,
        *,
        arrival: Any = None,
        noise: Any = "gaussian",
        noise_scale: float | None = None,
        contexts: str = "sphere",
        theta: Floats | None = None,
        horizon: int | None = None,
        seed: int = 0,
        **noise_parameters: Any,
    ) -> None:
        self.dim, self.n_arms, self.n_clients = (
            check_size("dim", dim),
            check_size("n_arms", n_arms),
            check_size("n_clients", n_clients),
        )
        self.horizon = None if horizon is None else check_positive_integer("horizon", horizon)
        if contexts not in CONTEXT_LAWS:
            raise unknown("law of contexts", contexts, CONTEXT_LAWS)
        self.contexts, self.seed = contexts, check_seed(seed)
        of_arrival = pick_arrival_parameters(arrival, noise, noise_parameters)
        self.arrival = make_arrival(arrival, of_arrival)
        of_noise = {
            name: value for name, value in noise_parameters.items() if name not in of_arrival
        }
        self.noise = self._make_noise_model(noise, noise_scale, of_noise)
        # The assumptions of an algorithm are checked against these.
        self.noise_scale = getattr(self.noise, "noise_scale", None)
        self.R = getattr(self.noise, "R", None)
        self.corruption = getattr(self.noise, "corruption", None)
        self.theta = self._make_theta(theta)
        self._parameters = {
            "dim": self.dim,
            "n_arms": self.n_arms,
            "n_clients": self.n_clients,
            "horizon": self.horizon,
            "contexts": contexts,
            "arrival": arrival,
            "noise": noise,
            **({} if noise_scale is None else {"noise_scale": noise_scale}),
            **noise_parameters,
            "theta": None if theta is None else [float(value) for value in self.theta],
            "seed": self.seed,
        }

    @property
    def spec(self) -> dict[str, Any]:
        """The problem as plain data; `parameters` is None if it can't be made again from it."""
        return build_spec(self, "synthetic", self._parameters, ("arrival", "noise"))

    def _make_noise_model(
        self, noise: Any, noise_scale: float | None, parameters: Mapping[str, Any]
    ) -> Any:
        """Return the noise model of this name with these parameters, or the object itself."""
        if not isinstance(noise, str):
            if parameters or noise_scale is not None:
                raise InvalidInput(
                    "noise was given as an object, so its parameters belong in it, not in keywords"
                )
            return check_plugin("noise_models", noise)
        takes = list_parameters(plugins.factory("noise_models", noise))
        given = dict(parameters) | ({} if noise_scale is None else {"noise_scale": noise_scale})
        for name in given:
            if name not in takes:
                raise unknown(f"parameter of {noise!r} noise", name, takes)
        defaults = {"noise_scale": 0.1} if "noise_scale" in takes else {}
        return plugins.create("noise_models", noise, defaults | given)

    def _make_theta(self, given: Floats | None) -> Floats:
        """Return θ: the given one, or a random one of length 1."""
        if given is None:
            raw = np.random.default_rng(self._spawn_seeds()[0]).standard_normal(self.dim)
            return raw / np.linalg.norm(raw)
        return check_array("theta", given, (self.dim,))

    def _spawn_seeds(self) -> list[np.random.SeedSequence]:
        """Return a seed per purpose: θ, contexts, lengths, noise, corruption, arrival."""
        return np.random.SeedSequence(self.seed).spawn(6)

    def stream(self, horizon: int, arrival: Any) -> Stream:
        return SyntheticStream(self, horizon, arrival)

    def __repr__(self) -> str:
        return (
            f"SyntheticProblem(dim={self.dim}, n_arms={self.n_arms}, n_clients={self.n_clients}, "
            f"contexts={self.contexts!r}, arrival={self.arrival}, noise={self.noise}, "
            f"horizon={self.horizon}, seed={self.seed})"
        )


class SyntheticStream(DrawnStream):
    """Draw the pulls of a SyntheticProblem.

    Each purpose has its own generator, so that no choice shifts the random numbers of another.
    """

    _problem: SyntheticProblem

    def __init__(self, problem: SyntheticProblem, horizon: int, arrival: Any) -> None:
        _, *seeds, arrival_seed = problem._spawn_seeds()
        super().__init__(problem, horizon, arrival, arrival_seed)
        self._contexts = ContextSource(seeds[0], problem.dim, problem.n_arms)
        self._lengths, self._noise, self._corruption = (
            np.random.default_rng(seed) for seed in seeds[1:]
        )
        self.budget = getattr(problem.noise, "budget", np.inf)

    def take(self, n: int) -> Chunk:
        """Draw the next n pulls."""
        problem, start = self._problem, self._start
        self._start += n
        clients = self._draw_clients(start, n)
        contexts, rewards = self._draw_contexts(clients), self._look_up_rewards(clients)
        noise, sigma = draw_noise(problem.noise, self._noise, n)
        corrupts = hasattr(problem.noise, "corrupt")
        corruption = self._draw_corruption(contexts, rewards) if corrupts else None
        return Chunk(
            contexts=contexts,
            clients=clients,
            noise=noise,
            sigma=sigma,
            theta=problem.theta,
            rewards=rewards,
            corruption=corruption,
        )

    def position(self) -> dict[str, Any]:
        """Return the number of the next pull and the state of each generator, for a checkpoint."""
        generators = {name: getattr(self, name).bit_generator.state for name in GENERATORS}
        return {"start": self._start, "contexts": self._contexts.position, **generators}

    def resume(self, position: dict[str, Any]) -> None:
        """Continue from a position."""
        self._start, self._contexts.position = int(position["start"]), position["contexts"]
        for name in GENERATORS:
            getattr(self, name).bit_generator.state = position[name]

    def _draw_contexts(self, clients: Clients) -> Floats:
        """Draw contexts on the sphere, or in the ball: the d-th power of the length is uniform."""
        problem, n = self._problem, len(clients)
        lengths = (
            self._lengths.random((n, problem.n_arms)) ** (1 / problem.dim)
            if problem.contexts == "ball"
            else None
        )
        packed = self._reserve_contexts(n)
        self._contexts.fill(packed, lengths)
        return packed

    def _look_up_rewards(self, clients: Clients) -> Floats | None:
        """Return the mean rewards, if they are not θᵀx."""
        return None

    def _draw_corruption(self, contexts: Floats, rewards: Floats | None) -> Floats:
        """Return what the noise model adds to each reward, after checking it."""
        means = rewards
        if means is None:
            assert self._problem.theta is not None  # where there is none, rewards are given
            means = norms.mean_rewards(contexts, self._problem.theta)
        noise = self._problem.noise
        added = np.asarray(
            noise.corrupt(self._corruption, means, means.argmax(axis=1)), dtype=np.float64
        )
        if added.shape != means.shape or not np.isfinite(added).all():
            raise PluginError(
                f"noise model {noise!r}: corrupt must give finite numbers of shape {means.shape}"
            )
        return np.ascontiguousarray(added)


def draw_noise(noise: Any, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return noise and noise levels for a synthetic problem, after checking its noise model."""
    values, sigma = (np.ascontiguousarray(array, dtype=np.float64) for array in noise.draw(rng, n))
    if (
        values.shape != (n,)
        or sigma.shape != (n,)
        or not np.isfinite(values).all()
        or not ((sigma >= 0) & (sigma < np.inf)).all()
    ):
        raise PluginError(
            f"noise model {noise!r}: draw must give {n} finite numbers "
            f"and {n} noise levels of at least 0"
        )
    return values, sigma
