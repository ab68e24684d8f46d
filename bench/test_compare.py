"""What a comparison of everything takes: all policies that suit adversarial contexts, at the paper's setting.

pytest bench/test_compare.py --benchmark-enable
"""

from __future__ import annotations

import time

import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.making import list_suitable_variants

PROBLEM = fsl.SyntheticProblem(dim=25, n_arms=20, n_clients=20, noise_scale=0.1)


def compared(seeds: int, horizon: int) -> tuple[fsl.Comparison, float]:
    began = time.perf_counter()
    found = fsl.compare(list_suitable_variants(PROBLEM), PROBLEM, seeds=seeds, horizon=horizon)
    return found, time.perf_counter() - began


def test_everything_that_suits_is_compared():
    found, _ = compared(seeds=2, horizon=2000)
    assert set(found.runs) == set(fsl.registry.plugins.names("variants")) - {"pe", "fed-pe"}
    assert all(len(runs) == 2 for runs in found.runs.values())


@pytest.mark.timing
def test_ten_seeds_of_everything_take_less_than_a_minute(tell):
    found, seconds = compared(seeds=10, horizon=40_000)
    assert (
        found.complete
        and found.last("async", "regret").mean() < 0.02 * found.last("uniform", "regret").mean()
    )
    tell(f"{len(found.runs)} policies, 10 seeds, T = 40,000: {seconds:.1f} s")
    assert seconds < 60
