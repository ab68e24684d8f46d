"""From options to a problem and an algorithm."""

import json

import pytest

import fedsuplin as fsl
from fedsuplin.algorithm import composing, doubling, making
from fedsuplin.cli import build
from fedsuplin.cli.build import (
    build_comparison,
    build_live_algorithm,
    build_problem_and_algorithm,
    read_build_defaults,
)
from fedsuplin.errors import InvalidInput

SMALL = {"dim": 4, "arms": 5, "clients": 2, "horizon": 400}
LIVE = {"first_horizon": None, "sigma": None, "R": None, "corruption": None}


def options(**given):
    """Every option that a build reads: its default, unless given here."""
    return read_build_defaults() | SMALL | LIVE | given


@pytest.fixture
def compositions(monkeypatch):
    """Record every composition of a recipe, whichever module asks for it."""
    composed = []

    def compose(variant, parts):
        composed.append(variant)
        return composing.compose_recipe(variant, parts)

    for module in (build, making, doubling):
        monkeypatch.setattr(module, "compose_recipe", compose)
    return composed


@pytest.mark.parametrize("preset", ["practical", "theory"])
def test_a_run_composes_its_recipe_once(compositions, preset):
    problem, algorithm = build_problem_and_algorithm("sync+robust", options(preset=preset))
    assert compositions == ["sync+robust"]
    assert (algorithm.name, algorithm.preset) == ("sync+robust", preset)
    assert algorithm.noise.noise_scale == (0.1 if preset == "practical" else 1.0)
    assert problem.corruption == algorithm.weighting.corruption == 50


def test_a_server_with_a_horizon_composes_its_recipe_once(compositions):
    algorithm = build_live_algorithm("async", options(trigger="periodic"))
    assert compositions == ["async"]
    same = fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=400, trigger="periodic")
    assert algorithm.spec == same.spec


def test_a_server_without_a_horizon_doubles_as_make_does():
    built = build_live_algorithm("async", options(horizon=None, trigger="periodic", ridge=0.5))
    same = fsl.make(
        "async", dim=4, n_arms=5, n_clients=2, horizon=None, trigger="periodic", ridge=0.5
    )
    assert json.dumps(built.spec) == json.dumps(same.spec)
    assert build_live_algorithm("async", options(horizon=None, first_horizon=64)).first == 64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"first_horizon": 64}, "--first-horizon is for a horizon that is unknown"),
        ({"horizon": None, "first_horizon": 0}, "--first-horizon must be a whole number"),
        ({"extra": {"n_arms": 3}}, "--set n_arms is not needed: use --arms"),
    ],
)
def test_a_server_refuses_options_that_contradict_each_other(given, message):
    with pytest.raises(InvalidInput, match=message):
        build_live_algorithm("async", options(**given))


def test_a_comparison_gets_all_policies_that_suit_its_problem_and_a_problem_per_seed():
    names, make_problem, keywords = build_comparison((), options(ridge=0.5))
    assert "async" in names and "pe" not in names
    assert [make_problem(seed).seed for seed in (3, 5)] == [3, 5]
    assert keywords == {"ridge": 0.5, "preset": "practical"}
    names, make_problem, _ = build_comparison((), options(problem="fixed-arms"))
    assert "pe" in names and make_problem(0).fixed_arms is not None
