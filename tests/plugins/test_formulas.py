"""Radii, target widths, thresholds and weights are the specification's, computed here anew."""

from math import ceil, log, log2, sqrt

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin_plugins.weightings import CorruptionWeight, VarianceWeight

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20, "horizon": 40_000}


def test_the_papers_constants_at_the_papers_setting():
    algorithm = fsl.make("async", **PAPER, preset="theory")
    assert algorithm.n_layers == 1 + 5
    assert algorithm.radii[0] == pytest.approx(1 + sqrt(25 * log(2 * 400 * 40_000 / 0.05)))
    assert algorithm.radii[1:] == pytest.approx(
        1 + sqrt(2 * log(2 * 20 * 20 * 40_000 * log(25) / 0.05))
    )
    assert algorithm.target_widths == pytest.approx([25**1.5 / 200 / 2**s for s in range(6)])
    assert algorithm.trigger.C == 1 / 400
    assert algorithm.guarantee


def test_sync_has_the_same_radii_and_its_own_threshold():
    algorithm = fsl.make("sync", **PAPER, preset="theory")
    assert algorithm.radii == pytest.approx(fsl.make("async", **PAPER, preset="theory").radii)
    assert pytest.approx(2000 * log(2000) / (625 * 20)) == algorithm.trigger.D
    assert not algorithm.lazy and algorithm.syncs == "all"


@pytest.mark.parametrize("ridge", [0.25, 1.0, 4.0])
def test_noise_ridge_and_bound_enter_every_radius(ridge):
    algorithm = fsl.make(
        "async",
        **PAPER,
        preset="theory",
        noise_scale=0.3,
        ridge=ridge,
        theta_bound=2.0,
        alpha_scale=1.5,
    )
    pulls = 40_000 / min(ridge, 1)  # for λ < 1 the logarithm in α_0 takes T/λ
    assert algorithm.radii[0] == pytest.approx(
        1.5 * (sqrt(ridge) * 2 + 0.3 * sqrt(25 * log(2 * 400 * pulls / 0.05)))
    )
    later = 1.5 * (sqrt(ridge) * 2 + 0.3 * sqrt(2 * log(2 * 400 * 40_000 * log(25) / 0.05)))
    assert algorithm.radii[1:] == pytest.approx(later)


def test_robust_adds_root_d_to_every_radius_when_there_is_corruption():
    clean, corrupted = (
        fsl.make("robust", **PAPER, preset="theory", corruption=c) for c in (0.0, 100.0)
    )
    assert clean.radii == pytest.approx(fsl.make("async", **PAPER, preset="theory").radii)
    assert corrupted.radii - clean.radii == pytest.approx(5.0)
    assert corrupted.weighting.gamma == pytest.approx(5 / 100)
    assert clean.weighting.weight(1000.0, 1.0) == 1.0


def test_variance_uses_the_bernstein_radius_in_layer_zero():
    R, d, T = 0.5, 25, 40_000
    algorithm = fsl.make("variance", **PAPER, preset="theory", R=R)
    iota = log(32 * (log(R * sqrt(T)) + 1) * T**2 / 0.05)
    beta = 12 * sqrt(d * log(1 + T**2 / d) * iota) + 24 * iota * sqrt(d) + 6 * iota
    assert algorithm.radii[0] == pytest.approx(1 + beta)
    assert algorithm.radii[1:] == pytest.approx(1 + sqrt(2 * log(2 * 400 * T * log(d) / 0.05)))
    assert algorithm.n_layers == 1 + ceil(log2(R) + log2(T))
    assert algorithm.target_widths == pytest.approx(
        [d * R**2 / 2**s for s in range(algorithm.n_layers)]
    )
    assert (algorithm.weighting.gamma, algorithm.weighting.rho) == pytest.approx(
        (sqrt(R) / d**0.25, 1 / 200)
    )
    assert algorithm.guarantee


def test_practical_variance_says_that_its_radius_is_not_bernsteins():
    algorithm = fsl.make("variance", **PAPER)
    scale, ridge = algorithm.noise.alpha_scale, algorithm.setting.ridge
    assert algorithm.radii[0] == pytest.approx(
        scale * (sqrt(ridge) + sqrt(25 * log(2 * 400 * 40_000 / min(ridge, 1) / 0.05)))
    )
    assert any("Bernstein" in reason for reason in algorithm.departures())


def test_dimension_one_has_one_layer_except_for_variance():
    sizes = PAPER | {"dim": 1}
    assert [fsl.make(v, **sizes).n_layers for v in ("async", "sync", "robust")] == [1, 1, 1]
    assert fsl.make("variance", **sizes).n_layers == 1 + ceil(log2(40_000))
    radii = fsl.make("variance", **sizes, preset="theory").radii
    assert radii[1] == pytest.approx(
        1 + sqrt(2 * log(2 * 400 * 40_000 * log(2) / 0.05))
    )  # ln d counts as ln 2


@pytest.mark.parametrize(
    ("dim", "layers"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (64, 7), (65, 8)]
)
def test_the_number_of_layers_is_the_ceiling_of_the_binary_logarithm(dim, layers):
    assert fsl.make("async", **(PAPER | {"dim": dim})).n_layers == layers


def test_variance_always_has_a_second_layer():
    assert fsl.make("variance", dim=3, n_arms=2, n_clients=1, horizon=1, R=0.1).n_layers == 2


def test_weights_are_the_specifications():
    assert CorruptionWeight(corruption=10, gamma=0.5).weight(2.0, 9.0) == 0.25
    assert CorruptionWeight(corruption=10, gamma=0.5).weight(0.1, 9.0) == 1.0
    weight = VarianceWeight(R=1, gamma=0.5, rho=0.1).weight
    assert weight(0.0001, 0.2) == pytest.approx(1 / 0.2**2)
    assert weight(0.0001, 0.0) == pytest.approx(1 / 0.1**2)
    assert weight(4.0, 0.2) == pytest.approx(1 / (0.5 * 2) ** 2)


def test_oful_has_one_layer_and_a_radius_that_grows():
    algorithm = fsl.make(
        "oful", **PAPER, preset="theory", noise_scale=0.3, ridge=4.0, theta_bound=2.0
    )
    assert algorithm.radii == pytest.approx([4.0])
    assert algorithm.radius_growth == pytest.approx((0.3, 2 * log(1 / 0.05)))


def test_what_leaves_the_theorem_is_said():
    def reasons(**keywords):
        return "; ".join(fsl.make("async", **PAPER, preset="theory", **keywords).departures())

    assert reasons() == ""
    assert "alpha_scale is 0.5" in reasons(alpha_scale=0.5)
    assert "the theorem's is Determinant(C=0.0025)" in reasons(C=1.0)
    assert "no theorem of the paper covers" in reasons(trigger="periodic")
    assert "no theorem of the paper covers" in reasons(lazy=False)
    assert reasons(trigger="determinant") == ""
    assert "no theorem" in "; ".join(fsl.make("oful", **PAPER, preset="theory").departures())


def test_a_problem_that_breaks_the_assumptions_is_said():
    algorithm = fsl.make(
        "robust",
        dim=4,
        n_arms=3,
        n_clients=2,
        horizon=100,
        preset="theory",
        noise_scale=0.1,
        corruption=5,
    )
    problem = fsl.SyntheticProblem(
        4, 3, 2, noise="corrupted", noise_scale=0.2, corruption=9, theta=np.full(4, 0.9)
    )
    said = "; ".join(algorithm.departures(problem))
    assert "noise scale is 0.2, the algorithm assumes 0.1" in said
    assert "corruption C_p is 9, the algorithm assumes 5" in said
    assert "‖θ‖ is 1.8" in said
    assert fsl.run(algorithm, problem).departures == tuple(algorithm.departures(problem))


@pytest.mark.parametrize(
    ("variant", "noise", "said"),
    [
        (
            "async",
            {"noise": "corrupted", "corruption": 50.0},
            "corruption C_p is 50, the algorithm assumes 0",
        ),
        ("async", {"noise": "bounded", "R": 5.0}, "noise scale is 5, the algorithm assumes 1"),
        ("variance", {"noise_scale": 0.1}, "noise has no bound, the algorithm assumes R = 1"),
        ("variance", {"noise": "bounded", "R": 2.0}, "noise bound R is 2, the algorithm assumes 1"),
    ],
)
def test_a_guarantee_is_not_claimed_on_a_problem_of_another_kind(variant, noise, said):
    algorithm = fsl.make(variant, dim=4, n_arms=3, n_clients=2, horizon=100, preset="theory")
    assert algorithm.departures(fsl.SyntheticProblem(4, 3, 2, noise="bounded", R=1.0)) == []
    assert any(
        said in reason for reason in algorithm.departures(fsl.SyntheticProblem(4, 3, 2, **noise))
    )


def test_the_needed_horizon_is_where_the_bound_falls_below_the_loss():
    algorithm = fsl.make("async", **PAPER, preset="theory")
    assert algorithm.regret_bound() > 0.37 * 40_000  # too short: the bound says nothing
    needed = algorithm.needed_horizon(0.37)
    assert algorithm.regret_bound(needed) < 0.37 * needed
    assert algorithm.regret_bound(int(needed / 1.02)) >= 0.37 * int(needed / 1.02)
    assert fsl.make("oful", **PAPER).needed_horizon(0.37) is None
    assert algorithm.needed_horizon(1e-9) is None


def test_the_numbers_are_printed():
    text = str(fsl.make("async", **PAPER, preset="theory"))
    for part in (
        "d=25 K=20 M=20 T=40000",
        "S = 5",
        "Determinant(C=0.0025)",
        "noise_scale=1.0",
        "radius 23.515",
        "holds (Theorem 1)",
    ):
        assert part in text
