"""The shortcut that spares widths is taken, with and without directions, and changes nothing."""

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.reference.twin import run_reference
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine


def played(variant, sizes, horizon, n, **parameters):
    problem = fsl.SyntheticProblem(*sizes, noise_scale=0.1, seed=4)
    algorithm = fsl.make(
        variant, dim=sizes[0], n_arms=sizes[1], n_clients=sizes[2], horizon=horizon, **parameters
    )
    engine = Engine(algorithm)
    engine.play(problem.stream(horizon, choose_arrival(algorithm, problem, horizon)).take(n))
    return problem, algorithm, engine


@pytest.mark.parametrize(
    ("variant", "sizes", "parameters"),
    [
        ("async", (9, 8, 3), {"noise_scale": 0.1, "alpha_scale": 0.3}),
        ("sync", (9, 8, 3), {"noise_scale": 0.1, "alpha_scale": 0.3}),
        ("variance", (5, 8, 3), {"alpha_scale": 0.05}),
        ("async", (9, 8, 3), {"noise_scale": 0.1, "alpha_scale": 0.3, "C": 0.01, "lazy": False}),
    ],
)
def test_a_run_with_quiet_layers_is_the_references(variant, sizes, parameters):
    problem, algorithm, engine = played(variant, sizes, 6000, 6000, **parameters)
    known = [engine.server_layer(s)["quiet"] for s in range(1, algorithm.n_layers - 1)]
    assert "quiet" in known
    found, expected = fsl.run(algorithm, problem, record="all"), run_reference(algorithm, problem)
    np.testing.assert_array_equal(found.arms, expected.arms)
    np.testing.assert_array_equal(found.layers, expected.layers)
    np.testing.assert_array_equal(found.communication, expected.communication)


def test_a_quiet_layer_has_no_wide_context_but_along_its_directions():
    """All eigenvalues but those along the directions are below (w̄/α)², or 0.9 of it."""
    seen = set()
    for variant, n in [(variant, n) for variant in ("async", "sync") for n in (1000, 2000, 6000)]:
        _, algorithm, engine = played(variant, (25, 20, 20), 40_000, n, noise_scale=0.1)
        for s in range(1, algorithm.n_layers - 1):
            layer = engine.server_layer(s)
            if layer["quiet"] != "quiet":
                continue
            seen.add(layer["n_spikes"] > 0)
            shares = (
                np.linalg.eigvalsh(layer["inverse"])
                * (algorithm.radii[s] / algorithm.target_widths[s]) ** 2
            )
            assert (shares >= 1).sum() <= layer["n_spikes"]
            assert (shares >= 0.9).sum() <= layer["n_spikes"] or layer["n_spikes"] == 0
    assert seen == {True, False}
