"""The shortcut that spares widths is taken, with and without directions, and changes nothing."""

import itertools

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.reference.twin import run_reference
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine

LONGEST = 1 + 1e-5  # FSL_LONGEST of proofs.h: no context is longer


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
    known = [engine.certificate(s)["spikes"] for s in range(1, algorithm.n_layers - 1)]
    assert any(spikes is not None for spikes in known)
    found, expected = fsl.run(algorithm, problem, record="all"), run_reference(algorithm, problem)
    np.testing.assert_array_equal(found.arms, expected.arms)
    np.testing.assert_array_equal(found.layers, expected.layers)
    np.testing.assert_array_equal(found.communication, expected.communication)


def test_a_quiet_layer_has_no_wide_context_but_along_its_directions():
    """The largest eigenvalue of P − Σ u uᵀ leaves the directions their room."""
    seen = set()
    for variant, scale, n in itertools.product(("async", "sync"), (0.1, 0.3), (1000, 6000)):
        _, algorithm, engine = played(
            variant, (25, 20, 20), 40_000, n, noise_scale=0.1, alpha_scale=scale
        )
        for s in range(1, algorithm.n_layers - 1):
            found = engine.certificate(s)
            wide = (algorithm.target_widths[s] / algorithm.radii[s]) ** 2
            assert 0.99 * wide < found["tau"] < wide
            if found["spikes"] is None:
                continue
            seen.add(len(found["spikes"]) > 0)
            rest = engine.server_layer(s)["inverse"] - found["spikes"].T @ found["spikes"]
            # `below` shows it in floating point, to about d² roundings
            rounding = 25**2 * np.finfo(float).eps * wide
            largest = np.linalg.eigvalsh(rest).max() * LONGEST**2
            assert largest <= found["tau"] - found["room"] + rounding
            assert len(found["spikes"]) or found["room"] == 0
    assert seen == {True, False}


def test_a_layer_has_no_certificate_before_it_is_examined_nor_with_shortcuts_off():
    problem = fsl.SyntheticProblem(9, 8, 3, noise_scale=0.1, seed=4)
    algorithm = fsl.make(
        "async", dim=9, n_arms=8, n_clients=3, horizon=6000, noise_scale=0.1, alpha_scale=0.3
    )
    arrival = choose_arrival(algorithm, problem, 6000)
    new, without, usual = Engine(algorithm), Engine(algorithm, shortcuts=()), Engine(algorithm)
    for engine in (without, usual):
        engine.play(problem.stream(6000, arrival).take(6000))
    for engine, some in ((new, False), (without, False), (usual, True)):
        found = [engine.certificate(s) for s in range(algorithm.n_layers)]
        assert any(each["spikes"] is not None for each in found) == some
        assert any(each["panel"] for each in found) == some
    for layer in (-1, algorithm.n_layers):
        with pytest.raises(IndexError, match=f"there is no layer {layer} of"):
            usual.certificate(layer)
