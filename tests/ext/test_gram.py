"""What the engine keeps by rank-one updates equals a fresh factorisation of all observations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine


def played(algorithm, problem, horizon, **options):
    stream = problem.stream(horizon, choose_arrival(algorithm, problem, horizon))
    engine = Engine(algorithm, budget=stream.budget, **options)
    status, n = engine.play(stream.take(horizon))
    assert (status, n) == ("done", horizon)
    return engine


def assert_settled(layer, ridge):
    """Check that inverse, θ̂ and ln det agree with a fresh factorisation of the layer to 1e-9."""
    gram, d = layer["gram"], len(layer["gram"])
    np.testing.assert_array_equal(gram, gram.T)
    assert np.linalg.eigvalsh(gram).min() > 0
    fresh = np.linalg.inv(gram)
    np.testing.assert_allclose(layer["inverse"], fresh, rtol=0, atol=1e-9 * np.abs(fresh).max())
    expected = np.linalg.solve(gram, layer["moment"])
    np.testing.assert_allclose(
        layer["theta_hat"], expected, rtol=0, atol=1e-9 * max(1, np.abs(expected).max())
    )
    assert layer["log_det"] == pytest.approx(
        np.linalg.slogdet(gram)[1] - d * np.log(ridge), rel=1e-9, abs=1e-9
    )


VARIANTS = ["async", "sync", "variance", "robust", "oful"]


@settings(max_examples=60)
@given(
    variant=st.sampled_from(VARIANTS),
    d=st.integers(1, 20),
    n_arms=st.integers(1, 10),
    n_clients=st.integers(1, 5),
    ridge=st.sampled_from([0.01, 1.0, 7.0]),
    refresh=st.sampled_from([1, 3, 256]),
    seed=st.integers(0, 1000),
)
def test_every_layer_stays_symmetric_positive_definite_and_settled(
    variant, d, n_arms, n_clients, ridge, refresh, seed
):
    horizon = 60 * n_clients
    problem = fsl.SyntheticProblem(d, n_arms, n_clients, seed=seed)
    algorithm = fsl.make(
        variant, dim=d, n_arms=n_arms, n_clients=n_clients, horizon=horizon, ridge=ridge
    )
    engine = played(algorithm, problem, horizon, refresh=refresh)
    for s in range(algorithm.n_layers):
        assert_settled(engine.server_layer(s), ridge)
        for client in range(n_clients):
            mine = engine.client_layer(client, s)
            assert_settled(mine, ridge)
            together = mine["gram"] + mine["delta_gram"]
            gain = np.linalg.slogdet(together)[1] - np.linalg.slogdet(mine["gram"])[1]
            assert mine["gain"] == pytest.approx(gain, rel=1e-9, abs=1e-10)
            if "inverse_with_delta" in mine:
                np.testing.assert_allclose(
                    mine["inverse_with_delta"], np.linalg.inv(together), atol=1e-9 / ridge
                )


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_lost_between_clients_and_server(variant):
    """The server's and the clients' sums add up to λI and all observations, by their trace."""
    d, n_clients, horizon, ridge = 6, 4, 2000, 0.5
    problem = fsl.SyntheticProblem(
        d, 5, n_clients, seed=3
    )  # unit contexts: each adds its weight to the trace
    weighting = {} if variant != "variance" else {"weighting": "unit"}
    algorithm = fsl.make(
        variant, dim=d, n_arms=5, n_clients=n_clients, horizon=horizon, ridge=ridge, **weighting
    )
    engine = played(algorithm, problem, horizon)
    for s in range(algorithm.n_layers):
        held = np.trace(engine.server_layer(s)["gram"]) - d * ridge
        held += sum(np.trace(engine.client_layer(c, s)["delta_gram"]) for c in range(n_clients))
        assert held == pytest.approx(engine.layer_pulls[s], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("trigger", ["never", "always"])
@pytest.mark.parametrize("lazy", [True, False])
def test_drift_stays_below_1e9_after_many_rank_one_steps(trigger, lazy):
    d, horizon = 12, 200_000
    problem = fsl.SyntheticProblem(d, 4, 1, seed=5, noise_scale=0.5)
    algorithm = fsl.make(
        "async", dim=d, n_arms=4, n_clients=1, horizon=horizon, trigger=trigger, lazy=lazy
    )
    engine = played(algorithm, problem, horizon)
    for s in range(algorithm.n_layers):
        assert_settled(engine.server_layer(s), algorithm.setting.ridge)
        mine = engine.client_layer(0, s)
        if "inverse_with_delta" in mine:
            fresh = np.linalg.inv(mine["gram"] + mine["delta_gram"])
            np.testing.assert_allclose(
                mine["inverse_with_delta"], fresh, rtol=0, atol=1e-9 * np.abs(fresh).max()
            )


def test_an_idle_client_costs_under_a_kilobyte():
    """Clients that never play share the first snapshot, whatever the dimension."""

    def used(n_clients):
        algorithm = fsl.make("async", dim=25, n_arms=20, n_clients=n_clients, horizon=100_000)
        return Engine(algorithm).memory_used

    assert (used(100_000) - used(1000)) / 99_000 < 1024


def test_memory_grows_only_with_clients_that_hold_something():
    problem = fsl.SyntheticProblem(10, 5, 50_000, arrival="round-robin", seed=0)
    algorithm = fsl.make("async", dim=10, n_arms=5, n_clients=50_000, horizon=40_000, C=0.0)
    engine = played(
        algorithm, problem, 40_000
    )  # 40 000 clients sync once each: the pool has to grow in mid-chunk
    assert engine.totals_now["communication"] == 40_000
    assert engine.layer_pulls.sum() == 40_000
    assert_settled(engine.server_layer(0), algorithm.setting.ridge)


@pytest.mark.parametrize(("trigger", "lazy"), [("always", True), ("never", True), ("never", False)])
@pytest.mark.parametrize("ridge", [1.0, 1e-8])
def test_inverses_are_refreshed_and_right_before_and_after(trigger, lazy, ridge):
    """A refresh measures the drift. From P = 10⁸ I the first steps would cancel eight digits."""
    problem = fsl.SyntheticProblem(6, 4, 1, seed=5, noise_scale=0.5)
    algorithm = fsl.make(
        "async", dim=6, n_arms=4, n_clients=1, horizon=3000, trigger=trigger, lazy=lazy, ridge=ridge
    )

    def error(engine):
        layer = engine.client_layer(0, int(engine.layer_pulls.argmax()))
        fresh = np.linalg.inv(layer["gram"] + layer["delta_gram"])
        return (
            np.abs(layer.get("inverse_with_delta", layer["inverse"]) - fresh).max()
            / np.abs(fresh).max()
        )

    refreshed, left = (
        played(algorithm, problem, 3000),
        played(algorithm, problem, 3000, refresh=10**9),
    )
    assert 0 < refreshed.drift < 1e-9 and left.drift == 0
    assert error(refreshed) < 1e-13 and error(left) < 1e-9
