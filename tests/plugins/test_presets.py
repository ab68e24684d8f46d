"""The practical presets learn, alone and attacked, with a margin, as docs/presets.md says."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput
from fedsuplin.registry import plugins
from fedsuplin_plugins.noise import ADVERSARIES

VARIANTS = ("async", "sync", "variance", "robust")
SMALL = {"dim": 5, "n_arms": 5, "n_clients": 10, "horizon": 20_000}
LOUD = {"dim": 8, "n_arms": 20, "n_clients": 4, "horizon": 40_000}
PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20, "horizon": 40_000}


def problem(
    variant: str, sizes: dict[str, int], sd: float, seed: int = 0, **attack: Any
) -> fsl.SyntheticProblem:
    """Noise within ±1 with known σ_t for `variance`, corrupted for an attack, else Gaussian."""
    noise: dict[str, Any] = (
        {"noise": "bounded", "R": 1.0, "sigma_high": sd}
        if variant == "variance"
        else {"noise_scale": sd}
    )
    return fsl.SyntheticProblem(
        **sizes, **(noise | ({"noise": "corrupted"} | attack if attack else {})), seed=seed
    )


@functools.cache
def share(
    variant: str, which: str, sd: float, seed: int = 0, *, attack: tuple = (), given: tuple = ()
) -> float:
    """Regret, as a share of uniform play's."""
    sizes = {"small": SMALL, "loud": LOUD, "paper": PAPER}[which]
    result = fsl.run(variant, problem(variant, sizes, sd, seed, **dict(attack)), **dict(given))
    return result.regret[-1] / result.uniform_regret[-1]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("which", "sd", "most"), [("small", 0.1, 0.02), ("small", 0.01, 0.02), ("loud", 1.0, 0.1)]
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_preset_keeps_a_small_share_of_the_regret_of_uniform_play(variant, which, sd, most, seed):
    assert share(variant, which, sd, seed) < most


@pytest.mark.parametrize("variant", VARIANTS)
def test_talking_with_the_preset_is_far_better_than_learning_alone(variant):
    assert share(variant, "paper", 0.1) < share("suplinucb", "paper", 0.1) / 2


@pytest.mark.parametrize("variant", ["async", "sync"])
def test_once_the_preset_has_learnt_its_regret_hardly_grows(variant):
    """Where a layer has thrown the best arm away, it grows by as much in every half."""
    result = fsl.run(
        variant, fsl.SyntheticProblem(16, 16, 4, noise_scale=0.1, seed=0), horizon=200_000
    )
    at_half = result.regret[np.searchsorted(result.pulls, 100_000)]
    assert result.regret[-1] < 1.25 * at_half


@pytest.mark.parametrize("variant", ["async", "sync"])
def test_a_fifth_of_the_presets_radii_is_over_the_cliff(variant):
    scale = plugins.create("variants", variant, {}).presets["practical"]["alpha_scale"] / 5
    fallen = [
        share(variant, "loud", 1.0, seed, given=(("alpha_scale", scale),)) for seed in range(3)
    ]
    assert max(fallen) > 2 * max(share(variant, "loud", 1.0, seed) for seed in range(3))


# --- robust ---------------------------------------------------------------------------------------
def test_robust_without_corruption_and_with_the_radii_of_async_is_async_pull_by_pull():
    quiet = problem("robust", SMALL, 0.1, corruption=0.0)
    robust, plain = (
        fsl.run(variant, quiet, record="all", alpha_scale=0.15) for variant in ("robust", "async")
    )
    assert (robust.arms == plain.arms).all() and (robust.communication == plain.communication).all()


@pytest.mark.parametrize(("which", "sd"), [("small", 0.1), ("loud", 1.0), ("paper", 0.1)])
def test_robust_without_corruption_is_no_worse_than_twice_async(which, sd):
    nothing = (("corruption", 0.0),)
    assert share("robust", which, sd, attack=nothing) < 2 * share(
        "async", which, sd, attack=nothing
    )


@pytest.mark.parametrize("budget", [20.0, 100.0])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_robust_learns_whatever_the_adversary_does(adversary, budget):
    attack = (("adversary", adversary), ("corruption", budget))
    assert share("robust", "small", 0.1, attack=attack) < 0.001 * budget
    assert share("robust", "paper", 0.1, attack=attack) < 0.0025 * budget


def test_robust_survives_what_async_does_not():
    attack = (("adversary", "early"), ("corruption", 100.0))
    assert share("async", "paper", 0.1, attack=attack) > 0.5
    assert share("robust", "paper", 0.1, attack=attack) < 0.25


def test_corruption_scale_multiplies_the_price_of_corruption_and_nothing_else():
    def radii(**given):
        return fsl.make("robust", **PAPER, preset="theory", **given).radii

    plain = radii(corruption=0.0)
    assert radii(corruption=50.0) - plain == pytest.approx(5.0)
    assert radii(corruption=50.0, corruption_scale=0.3) - plain == pytest.approx(1.5)
    assert radii(
        corruption=50.0, corruption_scale=0.3, alpha_scale=0.5
    ) - 0.5 * plain == pytest.approx(0.75)
    assert (radii(corruption=0.0, corruption_scale=0.3) == plain).all()
    with pytest.raises(InvalidInput, match="corruption_scale must be at least 0, not -1"):
        radii(corruption_scale=-1)


def test_less_than_the_price_of_corruption_leaves_the_theorem_where_there_is_corruption():
    def reasons(**given):
        return fsl.make("robust", **PAPER, preset="theory", **given).departures()

    assert reasons(corruption=50.0, corruption_scale=0.3) == ["corruption_scale is 0.3, below 1"]
    assert (
        reasons(corruption=50.0, corruption_scale=2.0)
        == reasons(corruption=0.0, corruption_scale=0.3)
        == []
    )
    assert any(
        "corruption_scale" in reason
        for reason in fsl.make("robust", **PAPER, corruption=50.0).departures()
    )


# --- theory ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_theory_preset_contains_no_tuned_constant(variant):
    algorithm = fsl.make(variant, **PAPER, preset="theory")
    assert plugins.create("variants", variant, {}).presets["theory"] == {}
    assert algorithm.guarantee and algorithm.setting.ridge == algorithm.noise.alpha_scale == 1.0
    assert math.isclose(algorithm.radii[1], fsl.make("async", **PAPER, preset="theory").radii[1])
