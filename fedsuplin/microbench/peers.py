"""The LinUCB of other libraries, whose rounds are compared with those of `oful`.

contextualbandits (compiled, Sherman–Morrison) and coba can do the same job: choose among K contexts
with one θ for all arms. They must choose our arms. mabwiser has a θ for each arm and one context
per round, so it gets that: K widths of one context, then one arm's update. Its µs are for less
data, and its bounds are compared with their formula.

The extra `peers` installs all of them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any

import numpy as np

from ..algorithm.algorithm import Algorithm
from ..algorithm.making import make_for
from ..contracts.problem import Problem
from ..problems.synthetic import SyntheticProblem
from .numpy_linucb import FixedRadius, check_linucb_arms, play_rows, take_first_rows
from .timing import make_timing

RIDGE, RADIUS = 1.0, 0.5
PEER_ROUNDS = 300  # some take a millisecond for one
HOW_TO_INSTALL = "not installed: pip install 'fedsuplin[peers]'"


class ContextualBandits:
    """The compiled peer, in double precision like all others here."""

    def __init__(self, dim: int, n_arms: int) -> None:
        module = importlib.import_module("contextualbandits.linreg")
        self.model = module.LinearRegression(
            lambda_=RIDGE, fit_intercept=False, method="sm", use_float=False
        )

    def select(self, rows: np.ndarray) -> int:
        """Return the arm with the largest upper confidence bound."""
        return int(self.model.predict_ucb(rows, RADIUS).argmax())

    def update(self, x: np.ndarray, reward: float) -> None:
        """Learn from the reward of an arm with the context x."""
        self.model.partial_fit(x[None], np.array([reward]))


class Coba:
    """Actions are contexts; only the features of actions are used. The ridge is always 1."""

    def __init__(self, dim: int, n_arms: int) -> None:
        learners = importlib.import_module("coba.learners")
        self.learner = learners.LinUCBLearner(alpha=RADIUS, features=["a"])

    def select(self, rows: np.ndarray) -> int:
        """Return the arm with the largest upper confidence bound."""
        actions = rows.tolist()
        self.action, self.probability = self.learner.predict(None, actions)[:2]
        return int(actions.index(self.action))

    def update(self, x: np.ndarray, reward: float) -> None:
        """Learn from the reward of the action that was selected."""
        self.learner.learn(None, self.action, reward, self.probability)


class Mabwiser:
    """A θ for each arm; the round's first row is the context of all arms."""

    def __init__(self, dim: int, n_arms: int) -> None:
        module = importlib.import_module("mabwiser.mab")
        policy = module.LearningPolicy.LinUCB(alpha=RADIUS, l2_lambda=RIDGE)
        self.bandit = module.MAB(list(range(n_arms)), policy)
        # It needs a fit before the first prediction; this one teaches nothing.
        self.bandit.fit([0], [0.0], np.zeros((1, dim)))

    def select(self, rows: np.ndarray) -> int:
        """Return the arm with the largest upper confidence bound for the first row."""
        self.context = rows[:1]
        self.arm = self.bandit.predict(self.context)
        return int(self.arm)

    def update(self, x: np.ndarray, reward: float) -> None:
        """Learn from the reward of the arm that was selected, in the first row's context."""
        self.bandit.partial_fit([self.arm], [reward], self.context)


PEERS: dict[str, Callable[[int, int], Any]] = {
    "contextualbandits": ContextualBandits,
    "coba": Coba,
    "mabwiser": Mabwiser,
}
JOBS = {
    "contextualbandits": "the same",
    "coba": "the same",
    "mabwiser": "one context per round, θ for each arm",
}


def find_version(peer: str) -> str | None:
    """Return the installed version of a peer, or None if it is not installed."""
    try:
        return importlib.metadata.version(peer)
    except importlib.metadata.PackageNotFoundError:
        return None


def make_peer_problem(dim: int, n_arms: int) -> SyntheticProblem:
    """Return the problem that peers play: one client, in the unit ball, where no two arms tie."""
    return SyntheticProblem(dim, n_arms, 1, noise_scale=0.1, contexts="ball", seed=0)


def make_same_job(problem: Problem, horizon: int) -> Algorithm:
    """Make the algorithm that does what peers do: one layer, one radius, no communication."""
    parameters = {"noise": FixedRadius(RADIUS), "ridge": RIDGE, "trigger": "never"}
    return make_for("oful", problem, horizon, parameters)


def check_peer(peer: str, dim: int, n_arms: int, n: int) -> None:
    """Check the answers of a peer in n rounds, before it is timed."""
    player = PEERS[peer](dim, n_arms)
    if JOBS[peer] == "the same":
        check_linucb_arms(dim, n_arms, n, player, name=peer)
    else:
        check_bounds_of_each_arm(player, dim, n_arms, n)


def check_bounds_of_each_arm(player: Any, dim: int, n_arms: int, n: int) -> None:
    """Check mabwiser's upper confidence bounds after n rounds: a LinUCB for each arm."""
    problem = make_peer_problem(dim, n_arms)
    rows, noise = take_first_rows(problem, n + 1)
    assert problem.theta is not None  # it has one for all arms
    arms = np.array(play_rows(player, rows[:n], problem.theta, noise[:n]))
    rewards = np.einsum("td,d->t", rows[np.arange(n), arms], problem.theta) + noise[:n]
    context = rows[n, 0]
    bounds = player.bandit.predict_expectations(context[None])
    for arm in range(n_arms):
        mine = rows[:n, 0][arms == arm]
        inverse = np.linalg.inv(RIDGE * np.eye(dim) + mine.T @ mine)
        width = RADIUS * np.sqrt(context @ inverse @ context)
        expected = context @ inverse @ mine.T @ rewards[arms == arm] + width
        if not np.isclose(bounds[arm], expected, rtol=1e-9, atol=0):
            raise AssertionError(
                f"mabwiser's bound of arm {arm} is {bounds[arm]}, not {expected}, after {n} rounds "
                f"at d={dim}, K={n_arms}: nothing is timed unless it is a LinUCB for each arm"
            )


def time_peer_rounds(peer: str, dim: int, n_arms: int, n: int) -> float:
    """Return the CPU seconds of n rounds of a peer."""
    problem = make_peer_problem(dim, n_arms)
    theta, (rows, noise) = problem.theta, take_first_rows(problem, n)
    assert theta is not None  # it has one for all arms
    player = PEERS[peer](dim, n_arms)
    return make_timing(lambda: play_rows(player, rows, theta, noise))()
