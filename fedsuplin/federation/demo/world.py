"""The small problem that the demo plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._shared.array_types import Floats
from ...algorithm.algorithm import Algorithm
from ...algorithm.composing import compose_recipe, list_keywords
from ...algorithm.making import make
from ...errors import InvalidInput
from ...live.algorithm_checks import check_live_algorithm

DIM, ARMS, NOISE = 10, 10, 0.5


@dataclass(frozen=True)
class World:
    """Contexts on the unit sphere and rewards θᵀx + noise, functions of seed, client and pull.

    >>> world = World("async", n_clients=2, n_pulls=100, seed=0)
    >>> bool((world.draw_pull(1, 7)[0] == world.draw_pull(1, 7)[0]).all())
    True
    """

    variant: str
    n_clients: int
    n_pulls: int
    """Per client."""
    seed: int

    @property
    def theta(self) -> Floats:
        """The parameter of the demo's problem, which the clients learn."""
        drawn = np.random.default_rng([self.seed]).standard_normal(DIM)
        return drawn / np.linalg.norm(drawn)

    def draw_pull(self, client_id: int, pull: int) -> tuple[Floats, float]:
        """Return contexts and noise of a pull."""
        rng = np.random.default_rng([self.seed, client_id, pull])
        contexts = rng.standard_normal((ARMS, DIM))
        lengths = np.linalg.norm(contexts, axis=1, keepdims=True)
        return contexts / lengths, NOISE * rng.standard_normal()

    @property
    def constants(self) -> dict[str, Any]:
        """Keywords of `make`: the noise level, if the variant takes it."""
        return (
            {"noise_scale": NOISE}
            if "noise_scale" in list_keywords(compose_recipe(self.variant, {})[1])
            else {}
        )

    def make_lone_algorithm(self) -> Algorithm:
        """Return the same algorithm for a single client that never syncs."""
        alone: dict[str, Any] = {"n_clients": 1, "trigger": "never", "syncs": "one", "lazy": False}
        return make(
            self.variant, dim=DIM, n_arms=ARMS, horizon=self.n_pulls, **alone, **self.constants
        )


def check_world(world: World) -> None:
    """Check that live clients can play the world's variant, and that it weighs all pulls alike."""
    algorithm = make(
        world.variant,
        dim=DIM,
        n_arms=ARMS,
        n_clients=world.n_clients,
        horizon=world.n_pulls,
        **world.constants,
    )
    check_live_algorithm(algorithm)
    if algorithm.spec["weighting"]["name"] != "unit":
        raise InvalidInput(
            f"{world.variant} weighs observations, and the demo's own sums do not: "
            "use async, sync or fedlinucb"
        )
