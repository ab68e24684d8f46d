"""A whole round of the engine against a good hand-written NumPy LinUCB, side by side in one run.

    pytest bench --benchmark-enable

Each benchmark checks its answer before it times it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin import reference
from fedsuplin.run import arrival_for
from fedsuplin_ext.loop import Engine

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20}
HORIZON = 40_000
ROUNDS = 2000
RADIUS = 0.5


class NumpyLinUCB:
    """One layer, one player, Sherman–Morrison, no copies: the LinUCB that a careful NumPy user writes."""

    def __init__(self, dim: int, n_arms: int, ridge: float, radius: float) -> None:
        self.inverse, self.moment, self.theta_hat = np.eye(dim) / ridge, np.zeros(dim), np.zeros(dim)
        self.radius = radius
        self._projected, self._outer = np.empty((n_arms, dim)), np.empty((dim, dim))
        self._scores, self._widths = np.empty(n_arms), np.empty(n_arms)

    def select(self, contexts: np.ndarray) -> int:
        np.dot(contexts, self.inverse, out=self._projected)
        np.einsum("kd,kd->k", self._projected, contexts, out=self._widths)
        np.sqrt(self._widths, out=self._widths)
        np.dot(contexts, self.theta_hat, out=self._scores)
        self._widths *= self.radius
        self._scores += self._widths
        return int(self._scores.argmax())

    def update(self, x: np.ndarray, reward: float) -> None:
        y = self.inverse @ x
        np.multiply(y[:, None], y, out=self._outer)
        self._outer /= 1 + x @ y
        self.inverse -= self._outer
        self.moment += reward * x
        np.dot(self.inverse, self.moment, out=self.theta_hat)


def play_numpy(player: NumpyLinUCB, contexts: np.ndarray, theta: np.ndarray, noise: np.ndarray) -> list[int]:
    """The loop around it, with what a simulation must compute: the reward, and the regret against the best arm."""
    arms, regret = [], 0.0
    for t in range(len(contexts)):
        rows = contexts[t]
        arm = player.select(rows)
        means = rows @ theta
        player.update(rows[arm], means[arm] + noise[t])
        regret += means.max() - means[arm]
        arms.append(arm)
    return arms


@dataclass(frozen=True)
class FixedRadius:
    """A noise model with one layer and one radius, which makes the engine the very LinUCB above."""

    def n_layers(self, setting):
        return 1

    def radii(self, setting):
        return [RADIUS]

    def target_widths(self, setting):
        return [0.0]

    def draw(self, rng, n):
        return np.zeros(n), np.zeros(n)


@pytest.fixture(scope="module")
def rounds():
    """The first rounds of the paper's setting: as NumPy wants them, and as the engine does."""
    problem = fsl.SyntheticProblem(**PAPER, noise_scale=0.1, seed=0)
    return problem, *first_rounds(problem)


def first_rounds(problem):
    chunk = problem.stream(HORIZON, None).take(ROUNDS)
    return chunk, np.ascontiguousarray(chunk.contexts[:, :, : PAPER["n_arms"]].transpose(0, 2, 1))


def linucb() -> NumpyLinUCB:
    return NumpyLinUCB(PAPER["dim"], PAPER["n_arms"], 1.0, RADIUS)


def algorithm_for(variant: str, **parameters) -> fsl.Algorithm:
    return fsl.make(variant, **PAPER, horizon=HORIZON, **parameters)


def best_of(n: int, *calls) -> list[float]:
    """The best time of each call over n turns, the calls taking turns, so that a noisy moment hits them alike."""
    times = [[] for _ in calls]
    for _ in range(n):
        for call, seen in zip(calls, times, strict=True):
            before = time.perf_counter()
            call()
            seen.append(time.perf_counter() - before)
    return [min(seen) for seen in times]


def test_the_numpy_linucb_is_right():
    """One client, the same radius, no trigger: the engine's optimism chooses the same arms (in the ball, where none tie)."""
    problem = fsl.SyntheticProblem(**PAPER, noise_scale=0.1, contexts="ball", seed=0)
    chunk, rows = first_rounds(problem)
    alone = fsl.ArrayProblem(rows, np.zeros(ROUNDS, int), theta=problem.theta, noise=chunk.noise)
    result = fsl.run("oful", alone, noise=FixedRadius(), ridge=1.0, record="all")
    assert play_numpy(linucb(), rows, problem.theta, chunk.noise) == result.arms.tolist()


@pytest.mark.parametrize("variant", ["async", "sync"])
def test_a_round_of_the_engine_costs_less_than_a_fifth_of_a_numpy_linucb_round(rounds, variant, capsys):
    """At the paper's setting with the default preset, contexts drawn beforehand for both."""
    problem, _, rows = rounds
    algorithm = algorithm_for(variant, noise_scale=0.1)
    chunk = problem.stream(HORIZON, arrival_for(algorithm, problem, HORIZON)).take(ROUNDS)
    engine_time, numpy_time = best_of(
        7,
        lambda: Engine(algorithm).play(chunk),
        lambda: play_numpy(linucb(), rows, problem.theta, chunk.noise),
    )
    with capsys.disabled():
        print(
            f"\n{variant}: {1e6 * engine_time / ROUNDS:.2f} µs a round (six layers, {PAPER['n_clients']} clients), NumPy LinUCB "
            f"{1e6 * numpy_time / ROUNDS:.2f} µs: {numpy_time / engine_time:.1f} times faster"
        )
    assert engine_time < numpy_time / 5


@pytest.mark.parametrize("variant", ["async", "sync", "variance", "robust", "oful"])
def test_benchmark_a_round(benchmark, rounds, variant):
    problem, _, _ = rounds
    algorithm = algorithm_for(variant)
    arrival = arrival_for(algorithm, problem, HORIZON)
    chunk = problem.stream(HORIZON, arrival).take(ROUNDS)
    small = fsl.run(algorithm, problem, horizon=200, record="all")
    np.testing.assert_array_equal(small.arms, reference.run(algorithm, problem, horizon=200).arms)
    benchmark.group = "a round at the paper's setting"
    benchmark.extra_info["rounds"] = ROUNDS
    status = benchmark.pedantic(lambda engine: engine.play(chunk), setup=lambda: ((Engine(algorithm),), {}), rounds=20)
    assert status == ("done", ROUNDS)


def test_benchmark_a_numpy_linucb_round(benchmark, rounds):
    problem, chunk, rows = rounds
    benchmark.group = "a round at the paper's setting"
    arms = benchmark.pedantic(
        lambda player: play_numpy(player, rows, problem.theta, chunk.noise), setup=lambda: ((linucb(),), {}), rounds=5
    )
    assert len(arms) == ROUNDS
