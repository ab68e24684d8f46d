"""Time rounds of each variant over sizes, clients and syncs, after comparing with the reference.

    pytest bench/test_variants.py --benchmark-enable

Contexts are drawn beforehand. A benchmark's time is that of `rounds` pulls (extra_info) by a new
engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.microbench.settings import HORIZON, NOISE, PAPER, VARIANTS
from fedsuplin.microbench.timing import make_loop_timing, take_best
from fedsuplin.reference.twin import run_reference
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine

SIZES = ((5, 5), (5, 100), (25, 20), (64, 20), (64, 100), (128, 100), (256, 20), (25, 1000))  # d, K
CLIENTS = (1, 20, 100_000)
BYTES = 16 << 20  # of contexts drawn beforehand
CHECKED = 120  # pulls against the reference
CHEAP = 64  # the largest d and K that are checked, for at most 20 clients: the reference is slow
SMALL_D = 1e-3


@dataclass(frozen=True)
class Case:
    """A variant with its sizes, and few or many syncs."""

    variant: str
    dim: int
    n_arms: int
    n_clients: int
    syncs: str  # few or many

    def __str__(self) -> str:
        return f"{self.variant}-d{self.dim}-K{self.n_arms}-M{self.n_clients}-{self.syncs}"

    def make_problem(self) -> fsl.SyntheticProblem:
        """Make the problem of the case."""
        sizes = {"dim": self.dim, "n_arms": self.n_arms, "n_clients": self.n_clients}
        return fsl.SyntheticProblem(**sizes, **NOISE.get(self.variant, {}), seed=0)

    @property
    def parameters(self) -> dict[str, float]:
        """The threshold for few or many syncs.

        C is 1 or the theorem's 1/M², D the theorem's or a small one; oful never syncs.
        """
        if self.variant == "oful":
            return {}
        if self.variant == "sync":
            return {"D": SMALL_D} if self.syncs == "many" else {}
        return {"C": 1.0 if self.syncs == "few" else 1 / self.n_clients**2}

    @property
    def rounds(self) -> int:
        """The pulls that are timed: what fits the memory, in whole rounds if all clients sync."""
        fits = min(2000, BYTES // (8 * self.dim * self.n_arms))
        return max(1, fits // self.n_clients) * self.n_clients if self.variant == "sync" else fits

    @property
    def horizon(self) -> int:
        """The horizon that the algorithm is made for."""
        return max(HORIZON, 2 * self.n_clients)

    @property
    def is_cheap(self) -> bool:
        """Whether the case can be compared with the reference."""
        return self.dim <= CHEAP and self.n_arms <= CHEAP and self.n_clients <= 20


def list_cases():
    """Yield each variant over all sizes at the paper's M, and over M at the paper's sizes."""
    for variant in VARIANTS:
        for syncs in ("few",) if variant == "oful" else ("few", "many"):
            for dim, n_arms in SIZES:
                yield Case(variant, dim, n_arms, PAPER["n_clients"], syncs)
            for n_clients in CLIENTS:
                if n_clients != PAPER["n_clients"] and not (variant == "sync" and n_clients > 1000):
                    yield Case(variant, PAPER["dim"], PAPER["n_arms"], n_clients, syncs)
    yield Case("sync", 5, 5, 100_000, "few")  # a round of all clients is 100 000 pulls


@pytest.mark.parametrize("case", list(list_cases()), ids=str)
def test_a_round(benchmark, case):
    problem = case.make_problem()
    algorithm = make_for(case.variant, problem, case.horizon, case.parameters)
    if case.is_cheap:
        assert_same_as_the_reference(algorithm, problem)
    stream = problem.stream(case.horizon, choose_arrival(algorithm, problem, case.horizon))
    chunk = stream.take(case.rounds)
    benchmark.group = f"a round d={case.dim} K={case.n_arms} M={case.n_clients}"
    benchmark.extra_info["rounds"] = case.rounds
    status, engine = benchmark.pedantic(
        lambda engine: (engine.play(chunk), engine),
        setup=lambda: ((Engine(algorithm, budget=stream.budget),), {}),
        rounds=10,
    )
    assert status == ("done", case.rounds)
    assert engine.layer_pulls.sum() == case.rounds


def assert_same_as_the_reference(algorithm, problem):
    ours = fsl.run(algorithm, problem, horizon=CHECKED, record="all")
    theirs = run_reference(algorithm, problem, horizon=CHECKED)
    np.testing.assert_array_equal(ours.arms, theirs.arms)
    np.testing.assert_array_equal(ours.layers, theirs.layers)
    np.testing.assert_array_equal(ours.communication, theirs.communication)


# --- what must hold ---


@pytest.mark.timing
def test_a_round_with_the_theorems_threshold_costs_at_most_2_5_times_one_with_few_syncs(tell):
    """At the paper's setting more than half of the pulls communicate with C = 1/M²."""
    problem = fsl.SyntheticProblem(**PAPER, seed=0)
    few, many = (
        make_for("async", problem, HORIZON, {"C": C}) for C in (1.0, PAPER["n_clients"] ** -2)
    )
    assert fsl.run(many, problem, horizon=HORIZON).communication[-1] > HORIZON / 2
    few_time, many_time = take_best(
        8, *(make_loop_timing(algorithm, problem, HORIZON) for algorithm in (few, many))
    )
    tell(
        f"C = 1: {1e6 * few_time / HORIZON:.2f} µs per round, "
        f"C = 1/M²: {1e6 * many_time / HORIZON:.2f} µs, {many_time / few_time:.2f} times"
    )
    assert many_time <= 2.5 * few_time


def test_a_hundred_thousand_clients_run_and_an_idle_one_costs_under_a_kilobyte():
    """Each pull has another client: 20 000 hold something, 80 000 share the first snapshot."""
    problem = fsl.SyntheticProblem(25, 20, 100_000, arrival="round-robin", seed=0)
    algorithm = make_for("async", problem, 100_000, {})
    result = fsl.run(algorithm, problem, horizon=20_000)
    assert (result.client_pulls[:20_000] == 1).all() and not result.client_pulls[20_000:].any()
    fewer = make_for("async", fsl.SyntheticProblem(25, 20, 1000), 100_000, {})
    assert (Engine(algorithm).memory_used - Engine(fewer).memory_used) / 99_000 < 1024
