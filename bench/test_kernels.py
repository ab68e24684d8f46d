"""Check and time single kernels on each code path of this CPU, with their share of the FMA peak.

    pytest bench/test_kernels.py --benchmark-enable

A benchmark's time is that of `repeats` calls inside compiled code (extra_info has the number): one
call of a kernel is shorter than the Python around it.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.microbench.numpy_linucb import FixedRadius
from fedsuplin.microbench.timing import (
    count_width_flops,
    make_kernel_timing,
    make_peak_timing,
    take_best,
)
from fedsuplin_ext import measure, norms
from fedsuplin_ext.loop import Engine

DIMS = (5, 25, 64, 128, 256)
ARMS = (5, 20, 100, 1000)
PATIENCE = 10.0  # seconds, in which a busy machine must be quiet for a millisecond

on_each_path = pytest.mark.parametrize("kernels", norms.available())
over_dims = pytest.mark.parametrize("dim", DIMS)
over_arms = pytest.mark.parametrize("n_arms", ARMS)


def time_kernel(benchmark, kernel, data, flops, kernels):
    """Time a kernel in calls of about a million flops; extra_info has the best µs and Gflop/s."""
    repeats = max(1, int(1e6 / flops))
    benchmark.group = f"{kernel.__name__} d={data.d}"
    seen = []
    benchmark.pedantic(lambda: seen.append(kernel(data, repeats, kernels)), rounds=20)
    benchmark.extra_info |= {
        "repeats": repeats,
        "microseconds": 1e6 * min(seen),
        "gigaflops": flops / min(seen) / 1e9,
    }


@on_each_path
@over_dims
@over_arms
def test_widths(benchmark, dim, n_arms, kernels):
    data = measure.Data(dim, n_arms)
    width, estimate = norms.norms_and_estimates(
        data.inverse, data.theta_hat[:dim].copy(), data.contexts, kernels
    )
    inverse, x = data.inverse[:, :dim], data.contexts
    np.testing.assert_allclose(
        width, np.sqrt(np.einsum("ia,ia->a", x, inverse @ x)), rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(estimate, data.theta_hat[:dim] @ x, rtol=1e-11, atol=1e-11)
    time_kernel(benchmark, measure.widths, data, count_width_flops(dim, n_arms), kernels)


@on_each_path
@over_dims
@over_arms
def test_estimates(benchmark, dim, n_arms, kernels):
    data = measure.Data(dim, n_arms)
    theta = data.theta_hat[:dim].copy()
    estimate = norms.mean_rewards(data.contexts[None], theta, kernels)[0]
    np.testing.assert_allclose(estimate, theta @ data.contexts, rtol=1e-11, atol=1e-11)
    time_kernel(benchmark, measure.estimates, data, 2 * dim * n_arms, kernels)


@on_each_path
@over_dims
def test_rank_one(benchmark, dim, kernels):
    """An engine that never factorises has an inverse from rank-one updates alone."""
    assert_inverse_of_its_gram(dim, kernels, refresh=10**6)
    time_kernel(benchmark, measure.rank_one, measure.Data(dim, 1), 5 * dim * dim, kernels)


@on_each_path
@over_dims
def test_factorise(benchmark, dim, kernels):
    """An engine that factorises at every sync has a fresh inverse."""
    assert_inverse_of_its_gram(dim, kernels, refresh=1)
    time_kernel(benchmark, measure.factorise, measure.Data(dim, 1), dim**3, kernels)


def assert_inverse_of_its_gram(dim, kernels, *, refresh, pulls=40):
    problem = fsl.SyntheticProblem(dim, 4, 1, seed=dim)
    algorithm = fsl.make(
        "oful",
        dim=dim,
        n_arms=4,
        n_clients=1,
        horizon=pulls,
        noise=FixedRadius(),
        ridge=1.0,
        trigger="always",
        lazy=True,
    )
    engine = Engine(algorithm, kernels=kernels, refresh=refresh)
    assert engine.play(problem.stream(pulls, None).take(pulls)) == ("done", pulls)
    server = engine.server_layer(0)
    assert np.trace(server["gram"]) == pytest.approx(dim + pulls)  # every context has length 1
    np.testing.assert_allclose(server["inverse"], np.linalg.inv(server["gram"]), rtol=0, atol=1e-12)


# --- what must hold ---


@pytest.mark.timing
@pytest.mark.parametrize(
    "dim, n_arms, share", [(25, 20, 0.45), (64, 50, 0.70), (128, 100, 0.70), (256, 1000, 0.70)]
)
def test_widths_reach_their_share_of_the_fma_peak(dim, n_arms, share, tell):
    flops = count_width_flops(dim, n_arms)
    widths = make_kernel_timing(measure.widths, measure.Data(dim, n_arms), flops)

    def reached(seconds, flop):
        return flops * flop / seconds

    best = reached(*time_until(lambda times: reached(*times) >= share, widths, make_peak_timing()))
    tell(f"widths d={dim} K={n_arms}: {100 * best:.0f} % of the FMA peak")
    assert best >= share


@pytest.mark.timing
@pytest.mark.parametrize(
    "sizes, low, high",
    [(((64, 100), (128, 100)), 0.0, 4.5), (((64, 100), (64, 1000)), 8.0, 12.5)],
    ids=["in d", "in K"],
)
def test_the_cost_of_widths_grows_as_the_formula_does(sizes, low, high, tell):
    """Twice the dimension at most 4.5 times the time; ten times the arms about ten times."""
    small, large = (
        make_kernel_timing(measure.widths, measure.Data(*size), count_width_flops(*size))
        for size in sizes
    )
    before, after = time_until(lambda times: low <= times[1] / times[0] <= high, small, large)
    tell(f"widths from (d, K) = {sizes[0]} to {sizes[1]}: {after / before:.2f} times the time")
    assert low <= after / before <= high


def time_until(enough, *timings):
    """Return the best times over 300 turns, and more while they are not good enough."""
    end = time.perf_counter() + PATIENCE
    best = take_best(300, *timings)
    while not enough(best) and time.perf_counter() < end:
        best = np.minimum(best, take_best(20, *timings)).tolist()
    return best
