"""Theorems that the paper does not measure: verdicts follow the numbers, figures have labels."""

import csv
import math

import numpy as np
import pytest

from fedsuplin.reproduce import corruption, variance
from fedsuplin.reproduce.corruption import ADVERSARIES, NO_ADVERSARY, Corruption
from fedsuplin.reproduce.experiment import Measured, Options
from fedsuplin.reproduce.reproduction import EXPERIMENTS, reproduce
from fedsuplin.reproduce.theorem import POLICIES, SIGMAS, Theorem
from fedsuplin.reproduce.variance import (
    BLIND,
    INFORMED,
    VARIANCE,
    VarianceAdaptive,
    compute_total_variance,
)
from fedsuplin.reproduce.verdicts import FAILS, HOLDS, OPEN

SMALL = {"dim": 4, "n_arms": 5, "n_clients": 4, "noise_scale": 0.1, "horizon": 400}
NAMES = ("variance", "corruption", "theorem")
SEEDS = 4


@pytest.fixture(scope="module", params=NAMES)
def outcome(request, tmp_path_factory):
    """Run each experiment at sizes that take milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (corruption, variance):
            patch.setattr(module, "PAPER", SMALL)
        patch.setattr(Theorem, "choose_horizons", lambda self: [40, 400, 1200, 4000])
        (outcome,) = reproduce(
            request.param, tmp_path_factory.mktemp("reproduced"), size="quick", seeds=2
        )
        yield outcome


def made_up(labels, cases, spread=0.01):
    """Make results with a relative spread over the seeds, which differs from case to case."""
    rows = []
    for at, (case, values) in enumerate(cases):
        rng = np.random.default_rng(at)
        for seed in range(SEEDS):
            shift = 1 + spread * rng.standard_normal()
            rows.append(
                dict(zip(labels, case, strict=True))
                | {"seed": seed, **{k: v * shift for k, v in values.items()}}
            )
    return Measured(rows, [None] * len(rows), labels)


def outcomes(verdicts, words, setting=""):
    """Return the outcomes of the verdicts whose claim has these words."""
    found = [
        verdict.outcome
        for verdict in verdicts
        if words in verdict.claim and setting in verdict.setting
    ]
    assert found, f"no verdict on {words!r}"
    return found


# --- Theorems 1 and 2 ---------------------------------------------------------------------


def theorem_with(power, talk_async, talk_sync, horizons=(10**4, 10**5, 10**6, 10**7)):
    """Judge made-up results: regret like T^power, communication as functions of ln T."""
    cases = [
        (
            (policy, sigma, T),
            {
                "regret": 10 * T**power,
                "communication": (talk_async if policy == "async" else talk_sync)(math.log(T)),
                "guarantee": 1,
            },
        )
        for sigma in SIGMAS
        for policy in POLICIES
        for T in horizons
    ]
    return Theorem(Options()).judge_claims(
        made_up(["policy", "sigma", "horizon"], cases, spread=0.002)
    )


def test_the_claims_hold_where_regret_and_communication_are_as_the_theorems_state():
    verdicts = theorem_with(0.3, lambda log: 100 * log - 300, lambda log: 150)
    assert set(outcomes(verdicts, "no faster than √T")) == {HOLDS}
    assert set(outcomes(verdicts, "grows like log T")) == {HOLDS}
    assert set(outcomes(verdicts, "does not depend on T")) == {HOLDS}
    assert set(outcomes(verdicts, "with the constant 1")) == {HOLDS}
    assert outcomes(verdicts, "every condition") == [HOLDS]
    assert "p = 0.30" in next(verdict.measured for verdict in verdicts if "√T" in verdict.claim)


def test_the_claims_fail_where_regret_and_communication_grow_too_fast():
    verdicts = theorem_with(0.8, lambda log: 100 * log**3, lambda log: 30 * log**2)
    assert set(outcomes(verdicts, "no faster than √T")) == {FAILS}
    assert set(outcomes(verdicts, "grows like log T")) == {FAILS}
    assert set(outcomes(verdicts, "does not depend on T")) == {FAILS}
    assert set(outcomes(verdicts, "communication is below d M²")) == {FAILS}
    assert OPEN in outcomes(theorem_with(0.5, lambda log: log, lambda log: 1), "no faster than √T")


def test_with_much_noise_the_layers_past_the_first_are_out_of_reach():
    verdicts = theorem_with(0.3, lambda log: log, lambda log: 1)
    assert outcomes(verdicts, "layers past the first", "σ = 0.1") == [HOLDS]
    assert outcomes(verdicts, "layers past the first", "σ = 1") == [FAILS]


def test_long_horizons_have_fewer_seeds_unless_the_user_gives_a_number():
    normal, asked = Theorem(Options()), Theorem(Options(size="full", seeds=7))
    seeds = {case.labels["horizon"]: len(normal.list_seeds(case)) for case in normal.list_cases()}
    assert seeds[10**4] == 20 and 4 <= seeds[10**7] < 10
    assert {len(asked.list_seeds(case)) for case in asked.list_cases()} == {7}
    assert max(case.labels["horizon"] for case in asked.list_cases()) == 10**8


def test_verdicts_across_horizons_use_the_seeds_that_both_have():
    rows = [
        {
            "policy": policy,
            "sigma": sigma,
            "horizon": T,
            "seed": seed,
            "communication": 9.0,
            "guarantee": True,
        }
        # each seed has a level of its own, the same at every T
        | {"regret": 10 * (1 + seed) * T ** (0.25 + 0.01 * seed)}
        for sigma in SIGMAS
        for policy in POLICIES
        for T, n in ((10**4, 9), (10**5, 5), (10**6, 3))
        for seed in range(n)
    ]
    measured = Measured(rows, [None] * len(rows), ["policy", "sigma", "horizon"])
    verdict = next(each for each in Theorem(Options()).judge_claims(measured) if "√T" in each.claim)
    assert "p = 0.260 ± 0.006 from T = 100k to 1M" in verdict.measured and verdict.outcome == HOLDS


# --- Theorem 3: known noise levels --------------------------------------------------------


def variance_with(adaptive, blind, informed, talk=(100, 50)):
    """Judge made-up results: regret as functions of Σσ_t²."""
    players = {
        VARIANCE: (adaptive, talk[0]),
        BLIND: (blind, talk[1]),
        INFORMED: (informed, talk[1]),
    }
    cases = [
        ((player, level), {"regret": regret(compute_total_variance(level)), "communication": sent})
        for level in (1.0, 0.1, 0.01)
        for player, (regret, sent) in players.items()
    ]
    return VarianceAdaptive(Options()).judge_claims(made_up(["player", "sigma_max"], cases))


def test_the_claims_hold_where_variance_is_as_its_theorem_states():
    verdicts = variance_with(
        lambda total: total**0.6, lambda total: 4000, lambda total: 2 * total**0.6, talk=(50, 100)
    )
    assert {verdict.outcome for verdict in verdicts} == {HOLDS}


def test_the_claims_fail_where_variance_stops_gaining():
    verdicts = variance_with(
        lambda total: 300 + total**0.5, lambda total: 10 * total**0.2, lambda total: 40
    )
    assert set(outcomes(verdicts, "as fast as √Σσ_t²")) == {FAILS}
    assert outcomes(verdicts, "falls as Σσ_t² shrinks") == [HOLDS]
    assert outcomes(verdicts, "gains nothing") == [FAILS]
    assert set(outcomes(verdicts, f"lower regret than {BLIND}")) == {FAILS}
    assert set(outcomes(verdicts, f"lower regret than {INFORMED}")) == {FAILS}
    assert outcomes(verdicts, "communicates less") == [FAILS]
    level = outcomes(
        variance_with(lambda total: 300, lambda total: 300, lambda total: 300),
        "falls as Σσ_t² shrinks",
    )
    assert level == [OPEN]


def test_the_sum_of_variances_is_what_the_problem_draws():
    import fedsuplin as fsl

    problem = fsl.SyntheticProblem(3, 4, 2, noise="bounded", R=1.0, sigma_high=0.5)
    drawn = problem.stream(40_000, None).take(40_000)
    assert (drawn.sigma**2).sum() == pytest.approx(compute_total_variance(0.5), rel=0.02)
    assert (drawn.noise**2).sum() == pytest.approx(compute_total_variance(0.5), rel=0.05)


# --- Theorem 4: corrupted rewards ---------------------------------------------------------


def corruption_with(robust, plain, ready):
    """Judge made-up results: regret as functions of C_p."""
    budgets = (0, 10, 100, 1000)
    lines = [
        (who, policy, regret)
        for who in ADVERSARIES
        for policy, regret in (("robust", robust), ("async", plain))
    ]
    cases = [
        (
            (who, policy, budget),
            {"regret": regret(budget), "percent_of_uniform": 10, "uniform_regret": 1e4},
        )
        for who, policy, regret in [*lines, (NO_ADVERSARY, "robust", ready)]
        for budget in budgets
    ]
    return Corruption(Options()).judge_claims(made_up(["adversary", "policy", "budget"], cases))


def test_the_claims_hold_where_robust_withstands_the_largest_budget():
    verdicts = corruption_with(lambda c: 200 + c, lambda c: 100 + 2 * c, lambda c: 50)
    assert outcomes(verdicts, "at the largest C_p") == [HOLDS] * 3
    assert all(
        verdict.measured.endswith("lower at C_p = 1000")
        for verdict in verdicts
        if "largest" in verdict.claim
    )
    assert outcomes(verdicts, "no faster than C_p") == [HOLDS] * 3
    assert outcomes(verdicts, "given") == [HOLDS, HOLDS]


def test_the_claims_fail_where_robust_does_not_withstand():
    verdicts = corruption_with(lambda c: 200 + c**1.5, lambda c: 100 + c / 10, lambda c: 500)
    assert outcomes(verdicts, "at the largest C_p") == [FAILS] * 3
    assert outcomes(verdicts, "no faster than C_p") == [FAILS] * 3
    assert outcomes(verdicts, "given") == [FAILS, FAILS]
    level = corruption_with(lambda c: 200 + c, lambda c: 200 + c, lambda c: 200)
    assert OPEN in outcomes(level, "at the largest C_p")


def test_without_a_budget_every_adversary_is_the_same_run():
    cases = [case for case in Corruption(Options()).list_cases() if case.labels["budget"] == 0]
    assert len(cases) == 7 and len({case.make_point(0, None).key for case in cases}) == 2


# --- running ------------------------------------------------------------------------------


def test_an_experiment_writes_all_of_its_files(outcome):
    name, by_name = outcome.experiment.name, {file.name: file for file in outcome.files}
    assert set(by_name) == {"runs.csv", "means.csv", "verdicts.csv", f"{name}.png", f"{name}.svg"}
    assert all(file.stat().st_size for file in outcome.files)
    with by_name["runs.csv"].open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 2 * len(outcome.experiment.list_cases())
    assert outcome.verdicts and {verdict.outcome for verdict in outcome.verdicts} <= {
        HOLDS,
        FAILS,
        OPEN,
    }
    assert "nan" not in " ".join(verdict.measured for verdict in outcome.verdicts)


def test_every_panel_has_title_labels_and_legend(outcome):
    for axes in outcome.experiment.draw(outcome.measured).axes:
        assert axes.get_title() and axes.get_xlabel() and axes.get_ylabel() and axes.get_legend()
        looks = [
            (line.get_color(), line.get_linestyle())
            for line in axes.lines
            if not line.get_label().startswith("_")
        ]
        assert len(set(looks)) == len(looks)


def test_the_guarantee_holds_where_a_theorem_is_measured(outcome):
    assert outcome.experiment.name != "theorem" or all(
        row["guarantee"] is True for row in outcome.measured.rows
    )


@pytest.mark.parametrize("name", NAMES)
def test_settings_list_what_each_policy_is_given(name):
    text = " ".join(EXPERIMENTS[name](Options()).describe_settings().values())
    assert "given" in text and "preset" in text and "T" in text
