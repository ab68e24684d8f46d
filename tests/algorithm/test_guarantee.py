"""The guarantee holds for what a theorem covers, and for no parameter that it fixes otherwise."""

from __future__ import annotations

import pytest

import fedsuplin as fsl
from fedsuplin_plugins.noise import Bounded, Corrupted
from fedsuplin_plugins.weightings import CorruptionWeight, VarianceWeight

SIZES = {"dim": 25, "n_arms": 4, "n_clients": 3, "horizon": 600, "preset": "theory"}
COVERED = {
    "async": {},
    "sync": {},
    "variance": {"R": 0.5},
    "robust": {"corruption": 20},
    "robust without corruption": {},
}
OVERRIDDEN = [
    ("async", {"C": 0.5}, "the trigger is Determinant"),
    ("sync", {"D": 3.0}, "the trigger is TimedDeterminant"),
    ("variance", {"C": 0.5}, "the trigger is Determinant"),
    ("robust", {"C": 0.5}, "the trigger is Determinant"),
    ("async", {"alpha_scale": 0.9}, "alpha_scale is 0.9"),
    ("robust", {"corruption": 20, "corruption_scale": 0.5}, "corruption_scale is 0.5"),
    ("variance", {"layer_zero": "square-root"}, "not the Bernstein theorem's"),
    ("robust", {"corruption": 20, "gamma": 10}, "the weighting is CorruptionWeight"),
    ("robust", {"corruption": 20, "gamma": 0.01}, "the weighting is CorruptionWeight"),
    ("robust", {"gamma": 0.1}, "the weighting is CorruptionWeight"),
    ("variance", {"gamma": 2.0}, "the weighting is VarianceWeight"),
    ("variance", {"rho": 0.5}, "the weighting is VarianceWeight"),
]


@pytest.mark.parametrize("name", COVERED)
def test_a_theorem_covers_its_variant_with_the_constants_that_it_fixes(name: str) -> None:
    algorithm = fsl.make(name.split()[0], **SIZES, **COVERED[name])
    assert algorithm.guarantee and algorithm.departures() == []


@pytest.mark.parametrize(("name", "parameters", "reason"), OVERRIDDEN, ids=str)
def test_a_parameter_that_the_theorem_fixes_voids_it(
    name: str, parameters: dict[str, object], reason: str
) -> None:
    algorithm = fsl.make(name, **SIZES, **parameters)
    (departure,) = algorithm.departures()
    assert not algorithm.guarantee and reason in departure


def test_weighting_and_noise_model_must_assume_the_same_corruption() -> None:
    parts = {"weighting": CorruptionWeight(10.0), "noise": Corrupted(corruption=20.0)}
    recipe = fsl.Variant(syncs="one", theorem="Theorem 4", **parts)
    (departure,) = fsl.make(recipe, **SIZES, C=1 / 9).departures()
    assert "gamma=0.5" in departure and "gamma=0.25" in departure


def test_weighting_and_noise_model_must_assume_the_same_bound() -> None:
    parts = {"weighting": VarianceWeight(R=0.5), "noise": Bounded(R=1.0)}
    recipe = fsl.Variant(syncs="one", theorem="Theorem 3", **parts)
    (departure,) = fsl.make(recipe, **SIZES, C=1 / 9).departures()
    assert "R=0.5" in departure and "R=1.0" in departure
