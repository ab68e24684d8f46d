"""The NumPy twin of the compiled engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithm.algorithm import Algorithm
from ..contracts.variant import Variant
from ..simulation.preparing import choose_arrival, derive_decision_key, prepare_algorithm
from .communication import communicate_async, communicate_by_push, communicate_sync
from .decisions import (
    add_observation,
    choose_by_optimism,
    choose_by_plugin,
    choose_by_s_lucb,
    draw_uniform,
    weigh_observation,
)
from .pulls import Pull, Tally, iterate_pulls
from .state import Federation


@dataclass(frozen=True, eq=False)
class ReferenceResult:
    """A value for every pull; from regret on they are cumulative, that pull and the sync it led to included."""

    arms: np.ndarray
    layers: np.ndarray
    clients: np.ndarray
    regret: np.ndarray
    reward: np.ndarray
    communication: np.ndarray
    messages_up: np.ndarray
    messages_down: np.ndarray
    bytes_up: np.ndarray
    bytes_down: np.ndarray


def run_reference(
    algorithm: str | Variant | Algorithm,
    problem: Any,
    *,
    horizon: int | None = None,
    **parameters: Any,
) -> ReferenceResult:
    """Play an algorithm, or a variant by name with its parameters, on a problem: `fedsuplin.run`, every pull recorded.

    >>> import fedsuplin as fsl
    >>> run("async", fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0), horizon=50).arms.shape
    (50,)
    """
    algorithm, length = prepare_algorithm(algorithm, problem, horizon, parameters)
    stream = problem.stream(length, choose_arrival(algorithm, problem, length))
    ledger, play = Tally(stream.budget), play_pulls
    if algorithm.kernel == "phased":
        from .phased import play_phases as play  # here, since it is built on what is below
    play(algorithm, problem, iterate_pulls(stream, length, algorithm.n_arms), ledger)
    return ReferenceResult(*(np.array(column) for column in zip(*ledger.rows, strict=True)))


def play_pulls(algorithm: Algorithm, problem: Any, pulls: Iterator[Pull], ledger: Tally) -> None:
    """Decide, observe, communicate: every policy but the phased ones."""
    federation, key = Federation(algorithm), derive_decision_key(problem)
    decide = {"layered": choose_by_s_lucb, "optimism": choose_by_optimism, None: choose_by_plugin}[
        algorithm.kernel
    ]
    after_pull = {"one": communicate_async, "all": communicate_sync, "push": communicate_by_push}[
        algorithm.syncs
    ]
    for n, pull in enumerate(pulls):
        client = federation.clients[pull.client]
        choice, layer, norm = decide(
            algorithm, client, pull.contexts, pull.arms, draw_uniform(key, n)
        )
        x, reward = pull.contexts[choice], ledger.reward(pull, choice)
        add_observation(
            client,
            layer,
            x,
            reward,
            weigh_observation(algorithm, client, layer, x, reward, norm, pull.sigma),
        )
        after_pull(federation, client, layer, n)
        ledger.enter(pull, choice, layer, reward, federation.traffic)
