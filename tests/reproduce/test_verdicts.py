"""Verdicts follow the numbers: differences of means, and the claims of the paper."""

import math

import numpy as np

from fedsuplin.reproduce.arrivals import PRACTICAL, judge_setting
from fedsuplin.reproduce.clients import Clients
from fedsuplin.reproduce.experiment import Measured, Options
from fedsuplin.reproduce.formatting import format_mean_error
from fedsuplin.reproduce.tradeoff import Tradeoff
from fedsuplin.reproduce.verdicts import FAILS, HOLDS, OPEN, combine_outcomes, compute_difference


def test_a_difference_decides_unless_it_is_within_the_spread_over_seeds():
    rng = np.random.default_rng(1)
    low, high = 100 + rng.standard_normal(20), 110 + rng.standard_normal(20)
    assert (
        compute_difference(low, high).less == HOLDS and compute_difference(high, low).less == FAILS
    )
    assert compute_difference(low, low + rng.standard_normal(20)).less == OPEN
    for paired in (True, False):
        found = compute_difference(low, high, paired=paired)
        assert found.low < found.mean < found.high < 0 and math.isclose(
            found.mean, low.mean() - high.mean()
        )


def test_paired_seeds_show_what_the_spread_between_problems_hides():
    rng = np.random.default_rng(2)
    problems = 1000 * rng.random(10)
    better, worse = problems, problems + 1 + 0.1 * rng.standard_normal(10)
    assert (
        compute_difference(better, worse).less == HOLDS
        and compute_difference(better, worse, paired=False).less == OPEN
    )


def test_equal_differences_have_an_interval_of_no_width():
    assert compute_difference(np.array([3.0, 4.0]), np.array([1.0, 2.0])).less == FAILS
    assert compute_difference(np.array([1.0, 2.0]), np.array([1.0, 2.0])).less == OPEN


def test_a_claim_of_several_parts_fails_with_one_of_them():
    assert (
        combine_outcomes([HOLDS, HOLDS]) == HOLDS
        and combine_outcomes([HOLDS, OPEN]) == OPEN
        and combine_outcomes([HOLDS, OPEN, FAILS]) == FAILS
    )


def test_numbers_are_written_to_the_first_digit_of_their_error():
    assert format_mean_error(np.array([1230.0, 1250.0])) == "1,240 ± 10"
    assert format_mean_error(np.array([0.51, 0.53])) == "0.52 ± 0.01"
    assert format_mean_error(np.array([7.0, 7.0])) == "7"


def arrivals_with(**by_pattern):
    """Make results: regret and communication of each pattern, with a spread over five seeds."""
    spread = np.linspace(-1, 1, 5)
    rows = [
        {
            "setting": PRACTICAL,
            "pattern": name,
            "seed": seed,
            "regret": regret + shift,
            "communication": talk + shift,
        }
        for name, (regret, talk) in by_pattern.items()
        # not the same for all patterns: else their differences would be exact
        for seed, shift in enumerate(spread * (1 + 0.1 * len(name)))
    ]
    return Measured(rows, [None] * len(rows), ["setting", "pattern"])


def test_verdicts_on_arrivals_follow_what_was_measured():
    as_claimed = arrivals_with(
        **{
            "random": (100, 50),
            "round-robin": (101, 51),
            "click-leave": (80, 70),
            "sync": (60, 200),
        },
    )
    assert [verdict.outcome for verdict in judge_setting(as_claimed, PRACTICAL)] == [HOLDS] * 6
    opposite = arrivals_with(
        **{
            "random": (100, 250),
            "round-robin": (90, 150),
            "click-leave": (120, 70),
            "sync": (160, 20),
        },
    )
    assert [verdict.outcome for verdict in judge_setting(opposite, PRACTICAL)] == [FAILS] * 6
    assert "click-leave 120.0 ± 0.7" in judge_setting(opposite, PRACTICAL)[0].measured


def test_verdicts_on_clients_follow_what_was_measured(monkeypatch):
    monkeypatch.setattr(Clients, "counts", (2, 4))
    clients = Clients(Options(seeds=5))

    def measured(by_case):
        rows = [
            {"policy": policy, "M": m, "seed": seed, "regret": regret + 0.1 * seed}
            for (policy, m), regret in by_case.items()
            for seed in range(5)
        ]
        return Measured(rows, [None] * len(rows), ["policy", "M"])

    # per client: async 10, 5; sync 4, 8; alone 200 / 20 = 10
    verdicts = clients.judge_claims(
        measured(
            {
                ("async", 2): 20,
                ("async", 4): 20,
                ("sync", 2): 8,
                ("sync", 4): 32,
                ("suplinucb", 1): 200,
            }
        )
    )
    assert [verdict.outcome for verdict in verdicts] == [OPEN, HOLDS, HOLDS, FAILS]


def test_the_better_tradeoff_is_judged_at_equal_communication():
    tradeoff = Tradeoff(Options(seeds=4))

    def measured(sync_factor):
        rows = []
        for policy, factor in (("async", 1.0), ("sync", sync_factor)):
            for threshold in (1.0, 10.0, 100.0):
                for seed in range(4):
                    spent = 10_000 / threshold * (1 + 0.01 * seed)
                    # the same line for both, except for the factor
                    lost = factor * 1000 * spent**-0.3 * (1 + 0.01 * seed)
                    row = {
                        "policy": policy,
                        "threshold": threshold,
                        "seed": seed,
                        "communication": spent,
                        "regret": lost,
                    }
                    rows.append(row)
        return Measured(rows, [None] * len(rows), ["policy", "threshold"])

    *tradeoffs, better = tradeoff.judge_claims(measured(0.8))
    assert [verdict.outcome for verdict in tradeoffs] == [HOLDS, HOLDS] and better.outcome == HOLDS
    assert "-20 %" in better.measured
    assert tradeoff.judge_claims(measured(1.25))[-1].outcome == FAILS
