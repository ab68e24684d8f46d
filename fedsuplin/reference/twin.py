"""run_reference: play an algorithm with NumPy alone, pull by pull, as the paper states it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..contracts.variant import Variant
from ..simulation.preparing import choose_arrival, derive_decision_key, prepare_algorithm
from .communication import communicate_async, communicate_by_push, communicate_sync
from .decisions import (
    choose_by_optimism,
    choose_by_plugin,
    choose_by_s_lucb,
    draw_uniform,
)
from .observations import add_observation, weigh_observation
from .phased import play_phases
from .pulls import Pull, Tally, iterate_pulls
from .state import Federation


@dataclass(frozen=True, eq=False)
class ReferenceResult:
    """The result of the NumPy twin: one value per pull in every array.

    From `regret` on values are cumulative, with this pull and the sync that it led to.

    Parameters
    ----------
    arms : array of int
        The arm of each pull.
    layers : array of int
        The layer that chose it.
    clients : array of int
        The client that played.
    regret : array of float
        Expected reward of the best arms minus that of the arms played.
    reward : array of float
        Rewards received.
    communication : array of int
        The paper's count of communication.
    messages_up : array of int
        Messages from clients to the server.
    messages_down : array of int
        Messages from the server to clients.
    bytes_up : array of int
        Payload of the uploads in bytes.
    bytes_down : array of int
        Payload of the downloads in bytes.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> from fedsuplin.reference import run_reference
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0)
    >>> result = run_reference("async", problem, horizon=50)
    >>> bool((result.arms == fsl.run("async", problem, horizon=50, record="all").arms).all())
    True
    """

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
    problem: Problem,
    *,
    horizon: int | None = None,
    **parameters: Any,
) -> ReferenceResult:
    """Play an algorithm on a problem with the NumPy twin, recording every pull.

    It plays what :func:`fedsuplin.run` plays, slowly, in code to be read beside the paper.

    Parameters
    ----------
    algorithm : str, Variant or Algorithm
        What to play: the name of a variant, a :class:`Variant`, or what :func:`make` returns.
    problem : Problem
        What to play it on.
    horizon : int, optional
        The number of pulls. Defaults to the problem's, or else the algorithm's.
    **parameters : object
        Further keywords of :func:`make`, if the algorithm is a name or a variant.

    Returns
    -------
    ReferenceResult
        Arms, regret and communication of every pull.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> from fedsuplin.reference import run_reference
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0)
    >>> run_reference("async", problem, horizon=50).arms.shape
    (50,)
    """
    algorithm, length = prepare_algorithm(algorithm, problem, horizon, parameters)
    stream = problem.stream(length, choose_arrival(algorithm, problem, length))
    tally = Tally(stream.budget)
    play = play_phases if algorithm.kernel == "phased" else play_twin
    play(algorithm, problem, iterate_pulls(stream, length, algorithm.n_arms), tally)
    return ReferenceResult(*(np.array(column) for column in zip(*tally.rows, strict=True)))


def play_twin(algorithm: Algorithm, problem: Problem, pulls: Iterator[Pull], tally: Tally) -> None:
    """Play the twin with any policy but the phased ones: decide, observe, communicate."""
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
        x, reward = pull.contexts[choice], tally.draw_reward(pull, choice)
        weight = weigh_observation(algorithm, client, layer, x, reward, norm, pull.sigma)
        add_observation(client, layer, x, reward, weight)
        after_pull(federation, client, layer, n)
        tally.add_row(pull, choice, layer, reward, federation.traffic)
