"""Time a comparison of all policies for adversarial contexts, at the paper's setting.

pytest bench/test_compare.py --benchmark-enable
"""

from __future__ import annotations

import time

import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.suitable_variants import list_suitable_variants
from fedsuplin.registry import plugins

PROBLEM = fsl.SyntheticProblem(dim=25, n_arms=20, n_clients=20, noise_scale=0.1)


def time_comparison(seeds: int, horizon: int) -> tuple[fsl.Comparison, float]:
    """Compare all policies, and return the comparison and the seconds that it took."""
    began = time.perf_counter()
    found = fsl.compare(list_suitable_variants(PROBLEM), PROBLEM, seeds=seeds, horizon=horizon)
    return found, time.perf_counter() - began


def test_all_suitable_policies_are_compared():
    found, _ = time_comparison(seeds=2, horizon=2000)
    assert set(found.runs) == set(plugins.names("variants")) - {"pe", "fed-pe"}
    assert all(len(runs) == 2 for runs in found.runs.values())


@pytest.mark.timing
def test_ten_seeds_of_all_policies_take_less_than_a_minute(tell):
    found, seconds = time_comparison(seeds=10, horizon=40_000)
    assert (
        found.complete
        and found.last("async", "regret").mean() < 0.02 * found.last("uniform", "regret").mean()
    )
    tell(f"{len(found.runs)} policies, 10 seeds, T = 40,000: {seconds:.1f} s")
    assert seconds < 60
