"""SyntheticProblem: random contexts, a random θ, noise from a noise model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsuplin_ext import norms
from fedsuplin_ext.draws import ContextSource

from .._shared.array_checks import check_array
from .._shared.arrays import Clients, Floats
from .._shared.checks import check_positive_integer, check_seed, check_size
from ..contracts.problem import Problem
from ..contracts.stream import Chunk, Stream
from ..errors import InvalidInput, PluginError, unknown
from ..registry import check_plugin, list_parameters, plugins
from .base import DrawnStream, make_arrival, pick_arrival_parameters

CONTEXT_LAWS = ("sphere", "ball")
GENERATORS = ("_lengths", "_noise", "_corruption")


class SyntheticProblem(Problem):
    """Random contexts on the unit sphere or in the unit ball, a random θ of length 1, noise from a noise model.

    `noise` is "gaussian", "bounded" (σ_t known to the client), "corrupted" (an adversary with a budget) or any noise model;
    keywords beyond those named are its parameters, or the arrival's where that is a name. `arrival=None` is round-robin for
    policies that sync all clients, else random.

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
        self.noise = self._noise_model(noise, noise_scale, of_noise)
        self.theta = self._theta(theta)
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
        """Parameters that make it again, unless a part was given as an object: then there are none, and it says so."""
        if all(isinstance(self._parameters[part], str | None) for part in ("arrival", "noise")):
            return {"problem": "synthetic", "parameters": dict(self._parameters)}
        return {"problem": "synthetic", "parameters": None, "shown": repr(self)}

    def _noise_model(
        self, noise: Any, noise_scale: float | None, parameters: Mapping[str, Any]
    ) -> Any:
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

    def _theta(self, given: Floats | None) -> Floats:
        if given is None:
            raw = np.random.default_rng(self._seeds()[0]).standard_normal(self.dim)
            return raw / np.linalg.norm(raw)
        return check_array("theta", given, (self.dim,))

    def _seeds(self) -> list[np.random.SeedSequence]:
        """One for each purpose: θ, contexts, lengths, noise, corruption, arrival."""
        return np.random.SeedSequence(self.seed).spawn(6)

    # What the algorithm's assumptions are checked against.
    noise_scale = property(lambda self: getattr(self.noise, "noise_scale", None))
    R = property(lambda self: getattr(self.noise, "R", None))
    corruption = property(lambda self: getattr(self.noise, "corruption", None))

    def stream(self, horizon: int, arrival: Any) -> Stream:
        return SyntheticStream(self, horizon, arrival)

    def __repr__(self) -> str:
        return (
            f"SyntheticProblem(dim={self.dim}, n_arms={self.n_arms}, n_clients={self.n_clients}, contexts={self.contexts!r}, "
            f"arrival={self.arrival}, noise={self.noise}, horizon={self.horizon}, seed={self.seed})"
        )


class SyntheticStream(DrawnStream):
    """Draws a SyntheticProblem; one generator for each purpose, so that no choice shifts another's numbers."""

    _problem: SyntheticProblem

    def __init__(self, problem: SyntheticProblem, horizon: int, arrival: Any) -> None:
        _, *seeds, arrival_seed = problem._seeds()
        super().__init__(problem, horizon, arrival, arrival_seed)
        self._contexts = ContextSource(seeds[0], problem.dim, problem.n_arms)
        self._lengths, self._noise, self._corruption = (
            np.random.default_rng(seed) for seed in seeds[1:]
        )
        self.budget = getattr(problem.noise, "budget", np.inf)

    def take(self, n: int) -> Chunk:
        problem, start = self._problem, self._start
        self._start += n
        clients = self._clients(start, n)
        contexts, rewards = self._contexts_of(clients), self._rewards_of(clients)
        noise, sigma = draw_noise(problem.noise, self._noise, n)
        return Chunk(
            contexts=contexts,
            clients=clients,
            noise=noise,
            sigma=sigma,
            theta=problem.theta,
            rewards=rewards,
            corruption=self._corrupt(contexts, rewards)
            if hasattr(problem.noise, "corrupt")
            else None,
        )

    def position(self) -> dict[str, Any]:
        generators = {name: getattr(self, name).bit_generator.state for name in GENERATORS}
        return {"start": self._start, "contexts": self._contexts.position, **generators}

    def resume(self, position: dict[str, Any]) -> None:
        self._start, self._contexts.position = int(position["start"]), position["contexts"]
        for name in GENERATORS:
            getattr(self, name).bit_generator.state = position[name]

    def _contexts_of(self, clients: Clients) -> Floats:
        """Of length 1, or of a length whose d-th power is uniform, which fills the ball evenly; whoever plays."""
        problem, n = self._problem, len(clients)
        lengths = (
            self._lengths.random((n, problem.n_arms)) ** (1 / problem.dim)
            if problem.contexts == "ball"
            else None
        )
        packed = self._room(n)
        self._contexts.fill(packed, lengths)
        return packed

    def _rewards_of(self, clients: Clients) -> Floats | None:
        """Mean rewards where they are not θᵀx."""
        return None

    def _corrupt(self, contexts: Floats, rewards: Floats | None) -> Floats:
        means = rewards
        if means is None:
            assert self._problem.theta is not None  # where there is none, rewards are given
            means = norms.mean_rewards(contexts, self._problem.theta)
        real = means[:, : self._problem.n_arms]
        noise, out = self._problem.noise, np.zeros_like(means)
        added = np.asarray(
            noise.corrupt(self._corruption, real, real.argmax(axis=1)), dtype=np.float64
        )
        if added.shape != real.shape or not np.isfinite(added).all():
            raise PluginError(
                f"noise model {noise!r}: corrupt must give finite numbers of shape {real.shape}"
            )
        out[:, : self._problem.n_arms] = added
        return out


def draw_noise(noise: Any, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """What a noise model draws, looked at: it may be anybody's."""
    values, sigma = (np.ascontiguousarray(array, dtype=np.float64) for array in noise.draw(rng, n))
    if (
        values.shape != (n,)
        or sigma.shape != (n,)
        or not np.isfinite(values).all()
        or not ((sigma >= 0) & (sigma < np.inf)).all()
    ):
        raise PluginError(
            f"noise model {noise!r}: draw must give {n} finite numbers and {n} noise levels of at least 0"
        )
    return values, sigma
