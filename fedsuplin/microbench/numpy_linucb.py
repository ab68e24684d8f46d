"""The LinUCB in NumPy that everything is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..problems.arrays import ArrayProblem
from ..problems.synthetic import SyntheticProblem
from ..simulation.runner import run
from .settings import HORIZON
from .timing import make_timing


class NumpyLinUCB:
    """The LinUCB that a careful NumPy user writes: one layer, Sherman–Morrison, no copies."""

    def __init__(self, dim: int, n_arms: int, ridge: float, radius: float) -> None:
        self.inverse = np.eye(dim) / ridge
        self.moment, self.theta_hat = np.zeros(dim), np.zeros(dim)
        self.radius = radius
        self._projected, self._outer = np.empty((n_arms, dim)), np.empty((dim, dim))
        self._scores, self._widths = np.empty(n_arms), np.empty(n_arms)

    def select(self, contexts: np.ndarray) -> int:
        """Return the arm with the largest upper confidence bound."""
        np.dot(contexts, self.inverse, out=self._projected)
        np.einsum("kd,kd->k", self._projected, contexts, out=self._widths)
        np.sqrt(self._widths, out=self._widths)
        np.dot(contexts, self.theta_hat, out=self._scores)
        self._widths *= self.radius
        self._scores += self._widths
        return int(self._scores.argmax())

    def update(self, x: np.ndarray, reward: float) -> None:
        """Learn from the reward of an arm with the context x."""
        y = self.inverse @ x
        np.multiply(y[:, None], y, out=self._outer)
        self._outer /= 1 + x @ y
        self.inverse -= self._outer
        self.moment += reward * x
        np.dot(self.inverse, self.moment, out=self.theta_hat)


def play_rows(player: Any, contexts: np.ndarray, theta: np.ndarray, noise: np.ndarray) -> list[int]:
    """Play the NumPy LinUCB on contexts, with rewards and regret, and return the arms chosen."""
    arms, regret = [], 0.0
    for t in range(len(contexts)):
        rows = contexts[t]
        arm = player.select(rows)
        means = rows @ theta
        player.update(rows[arm], means[arm] + noise[t])
        regret += means.max() - means[arm]
        arms.append(arm)
    return arms


def take_first_rows(problem: SyntheticProblem, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a problem's first contexts for the NumPy LinUCB, rounds × arms × dim, and noise."""
    chunk = problem.stream(HORIZON, None).take(n)
    rows = np.ascontiguousarray(chunk.contexts[:, :, : problem.n_arms].transpose(0, 2, 1))
    return rows, chunk.noise.copy()


@dataclass(frozen=True)
class FixedRadius:
    """A noise model with one layer and one radius, with which `oful` is the LinUCB above."""

    radius: float = 0.5

    def n_layers(self, setting: Any) -> int:
        """Return 1, since the NumPy LinUCB has one layer."""
        return 1

    def radii(self, setting: Any) -> list[float]:
        """Return the radius of the NumPy LinUCB, for its only layer."""
        return [self.radius]

    def target_widths(self, setting: Any) -> list[float]:
        """Return a width that no arm reaches: as in the NumPy LinUCB, no layer is passed."""
        return [0.0]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return no noise: it only makes `oful` the same as the NumPy LinUCB."""
        return np.zeros(n), np.zeros(n)


def check_linucb_arms(
    dim: int, n_arms: int, n: int, player: Any = None, name: str = "the NumPy LinUCB"
) -> None:
    """Check that the NumPy LinUCB, or a peer that does the same, chooses the arms of `oful`.

    There is one client; ridge and radius are those of the NumPy LinUCB.
    """
    problem = SyntheticProblem(dim, n_arms, 1, contexts="ball", seed=0)  # where no two arms tie
    rows, noise = take_first_rows(problem, n)
    assert problem.theta is not None  # it has one for all arms
    alone = ArrayProblem(rows, np.zeros(n, int), theta=problem.theta, noise=noise)
    parameters: dict[str, Any] = {"noise": FixedRadius(0.5), "ridge": 1.0, "trigger": "never"}
    ours = run("oful", alone, record="all", **parameters).arms
    player = NumpyLinUCB(dim, n_arms, 1.0, 0.5) if player is None else player
    theirs = play_rows(player, rows, problem.theta, noise)
    if ours is None or ours.tolist() != theirs:
        raise AssertionError(
            f"oful and {name} differ within {n} pulls at d={dim}, K={n_arms}: "
            "nothing is timed unless both choose the same arms"
        )


def time_numpy_rounds(dim: int, n_arms: int, n_clients: int, n: int) -> float:
    """Return the CPU seconds of n rounds of the NumPy LinUCB, which has one client."""
    problem = SyntheticProblem(dim, n_arms, 1)
    theta, (rows, noise) = problem.theta, take_first_rows(problem, n)
    assert theta is not None  # it has one for all arms
    return make_timing(lambda: play_rows(NumpyLinUCB(dim, n_arms, 1.0, 0.5), rows, theta, noise))()
