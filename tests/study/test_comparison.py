"""fsl.compare: the same problem and seeds for several policies."""

import csv
import math
import sys
import time

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin._shared.statistics import compute_standard_error
from fedsuplin.algorithm.suitable_variants import list_suitable_variants
from fedsuplin.errors import InvalidInput, MissingExtra, PluginError, UnknownName
from fedsuplin.study import backends

PROBLEM = fsl.SyntheticProblem(4, 5, 4, noise_scale=0.1)
NAMES = ["async", "sync", "oful", "uniform"]


@pytest.fixture(scope="module")
def found():
    return fsl.compare(NAMES, PROBLEM, seeds=4, horizon=2000)


def test_each_run_is_the_run_one_gets_alone(found):
    for name in NAMES:
        for seed, result in enumerate(found.runs[name]):
            alone = fsl.run(
                name, fsl.SyntheticProblem(4, 5, 4, noise_scale=0.1, seed=seed), horizon=2000
            )
            assert (alone.regret == result.regret).all() and (
                alone.communication == result.communication
            ).all()
            assert result.seed == seed


def test_threads_change_nothing(found):
    one = fsl.compare(NAMES, PROBLEM, seeds=4, horizon=2000, threads=1)
    for name in NAMES:
        assert (one.last(name, "regret") == found.last(name, "regret")).all()


def test_means_and_standard_errors_are_over_the_seeds(found):
    row = next(row for row in found.rows() if row["policy"] == "async")
    values = np.array([result.regret[-1] for result in found.runs["async"]])
    assert row["regret"] == pytest.approx(values.mean())
    assert row["regret_error"] == pytest.approx(values.std(ddof=1) / 2)
    assert row["percent_of_uniform"] == pytest.approx(
        100 * values.mean() / np.mean([r.uniform_regret[-1] for r in found.runs["async"]])
    )
    assert math.isnan(compute_standard_error(np.array([1.0])))


def test_the_band_is_students_95_percent_interval(found):
    from scipy import stats

    pulls, mean, half = found.curve("oful", "regret")
    values = np.array([result.regret for result in found.runs["oful"]])
    low, high = stats.t.interval(0.95, 3, values.mean(axis=0), stats.sem(values, axis=0))
    np.testing.assert_allclose((mean - half)[50:], low[50:])
    np.testing.assert_allclose((mean + half)[50:], high[50:])
    assert len(pulls) == len(mean)


def test_bounds_grow_with_the_pulls_of_the_curve(found):
    pulls = np.array([100, 1000])
    np.testing.assert_allclose(
        found.bound_curve("oful", "regret", pulls), 4 * np.sqrt(pulls * np.log(pulls))
    )
    assert (
        found.bound_curve("oful", "communication", pulls) is None
        and found.bound_curve("uniform", "regret", pulls) is None
    )


def test_constants_go_to_the_policies_that_take_them():
    found = fsl.compare(
        ["async", "oful", "uniform"],
        PROBLEM,
        seeds=1,
        horizon=200,
        C=0.3,
        alpha_scale=0.7,
        preset="theory",
    )
    assert found.algorithms["async"].trigger.C == 0.3
    assert (
        found.algorithms["async"].noise.alpha_scale
        == found.algorithms["oful"].noise.alpha_scale
        == 0.7
    )
    with pytest.raises(UnknownName, match="unknown keyword for oful, uniform 'C'"):
        fsl.compare(["oful", "uniform"], PROBLEM, seeds=1, horizon=200, C=0.3)


def test_labels_compositions_and_objects_may_be_compared():
    gossip = fsl.Variant(trigger="periodic", lazy=False)
    found = fsl.compare({"a": "async+robust", "b": gossip}, PROBLEM, seeds=[3, 5], horizon=300)
    assert list(found.runs) == ["a", "b"] and [result.seed for result in found.runs["b"]] == [3, 5]


def test_a_single_policy_may_be_given_by_name():
    assert list(fsl.compare("async+robust", PROBLEM, seeds=1, horizon=50).runs) == ["async+robust"]


def test_a_problem_may_be_a_function_of_the_seed():
    found = fsl.compare(
        ["pe"], lambda seed: fsl.FixedArmsProblem(2, 4, 2, seed=seed + 10), seeds=2, horizon=300
    )
    assert [result.seed for result in found.runs["pe"]] == [10, 11]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fsl.compare([], PROBLEM, horizon=10), "name at least one policy"),
        (
            lambda: fsl.compare(["oful"], PROBLEM, seeds=0, horizon=10),
            "seeds must be a whole number of at least 1",
        ),
        (lambda: fsl.compare(["oful"], PROBLEM, seeds=[], horizon=10), "at least one seed"),
        (
            lambda: fsl.compare(["oful"], PROBLEM, seeds=[1, 2, 1], horizon=10),
            "runs are in the comparison twice",
        ),
        (
            lambda: fsl.compare(["oful"], "synthetic", horizon=10),
            r"such as fsl.SyntheticProblem.*, not 'synthetic'",
        ),
        (
            lambda: fsl.compare(["oful"], lambda seed: seed, horizon=10),
            r"a function from a seed to one, not 0",
        ),
        (
            lambda: fsl.compare([fsl.Variant()], PROBLEM, horizon=10),
            r"labels with .* a Variant each.*not Variant\(",
        ),
        (
            lambda: fsl.compare(fsl.Variant(), PROBLEM, horizon=10),
            r"labels with .* a Variant each.*not Variant\(",
        ),
        (lambda: fsl.compare(3, PROBLEM, horizon=10), "policies are names, .*, not 3"),
        (lambda: fsl.compare({"a": 3}, PROBLEM, horizon=10), "a variant is a name.*, not 3"),
        (
            lambda: fsl.compare(["oful"], PROBLEM),
            "the problem has no horizon: give the number of pulls as horizon=",
        ),
        (
            lambda: fsl.compare(["oful"], PROBLEM, horizon=0),
            "horizon must be a whole number of at least 1, not 0",
        ),
        (
            lambda: fsl.compare(["oful"], PROBLEM, horizon=10, threads=0),
            "threads must be a whole number of at least 1, not 0",
        ),
        (lambda: fsl.compare(["pe"], PROBLEM, horizon=10), "pe needs fixed arms"),
        (
            lambda: fsl.compare(
                ["oful"], fsl.ArrayProblem(np.zeros((4, 2, 2)), [0] * 4, theta=[1, 0])
            ),
            "has no seed to change",
        ),
    ],
)
def test_what_can_not_be_compared_is_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_a_frame_without_pandas_says_what_to_install(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fedsuplin\[frame\]'"):
        found.to_frame()


def test_a_run_that_fails_fails_the_comparison_with_its_error():
    broken = fsl.Variant(weighting=lambda norm, sigma: -1.0)
    with pytest.raises(PluginError, match="negative or not finite, at pull 0"):
        fsl.compare({"broken": broken, "oful": "oful"}, PROBLEM, seeds=2, horizon=100)


def test_ctrl_c_keeps_the_runs_that_were_finished():
    def impatient(done, total, policy):
        if done == 3:
            raise KeyboardInterrupt

    found = fsl.compare(
        ["oful", "async"], PROBLEM, seeds=3, horizon=2000, threads=1, progress=impatient
    )
    assert not found.complete and sum(len(runs) for runs in found.runs.values()) == 3


def test_ctrl_c_ends_the_runs_under_way(monkeypatch):
    def pressed(*_, **__):
        time.sleep(0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(backends, "wait", pressed)
    began = time.perf_counter()
    found = fsl.compare(["async"], PROBLEM, seeds=2, horizon=10**9)
    assert (
        not found.complete
        and found.runs == {}
        and found.rows() == []
        and time.perf_counter() - began < 10
    )


def stopped_after(runs):
    def impatient(done, total, policy):
        if done == runs:
            raise KeyboardInterrupt

    return fsl.compare(
        ["oful", "async"], PROBLEM, seeds=range(5, 9), horizon=500, threads=1, progress=impatient
    )


def words_in(figure):
    return " ".join([figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)])


@pytest.mark.parametrize(
    ("runs", "over", "played"), [(3, "1 to 2 of 4 seeds", (5, 6)), (2, "1 of 4 seeds", (5,))]
)
def test_a_comparison_that_was_stopped_says_how_many_seeds_were_played(runs, over, played):
    found = stopped_after(runs)
    assert found.seeds_in_words == over and found.played == played and found.seeds == (5, 6, 7, 8)
    assert (
        f"Comparison over {over}" in repr(found)
        and f"Comparison over {over}" in found._repr_html_()
    )
    assert over in words_in(found.plot()) and "4 seeds)" in words_in(found.plot())
    assert ("confidence band" in words_in(found.plot())) == (
        runs == 3
    )  # which takes two seeds of a policy


def test_one_seed_has_no_spread_and_none_is_shown():
    found = fsl.compare(["oful"], PROBLEM, seeds=1, horizon=100)
    assert (
        repr(found).startswith("Comparison over one seed\n")
        and "nan" not in repr(found)
        and "±" not in repr(found)
    )
    assert "(one seed)" in words_in(found.plot()) and "band" not in words_in(found.plot())
    assert "Comparison over one seed<" in found._repr_html_()


def test_policies_for_fixed_arms_suit_a_problem_that_has_them():
    assert "pe" not in list_suitable_variants(PROBLEM) and {
        "async",
        "oful",
        "uniform",
        "robust",
    } <= set(list_suitable_variants(PROBLEM))
    assert {"pe", "fed-pe", "async"} <= set(list_suitable_variants(fsl.FixedArmsProblem(2, 3, 2)))


def test_files_hold_what_was_measured(found, tmp_path):
    found.write_csv(tmp_path / "table.csv")
    found.write_curves(tmp_path / "curves.csv")
    table, rows = (
        list(csv.DictReader((tmp_path / name).read_text().splitlines()))
        for name in ("table.csv", "curves.csv")
    )
    assert [row["policy"] for row in table] == NAMES and float(table[0]["regret"]) == found.rows()[
        0
    ]["regret"]
    assert len(rows) == sum(len(result.pulls) for runs in found.runs.values() for result in runs)
    assert len(found.to_frame()) == len(rows)
