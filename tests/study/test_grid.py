"""Grids: their points, and the text that identifies a run in a journal."""

import inspect
import json

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.study.grid import FORMER_MODULES, list_points, name_for_key
from fedsuplin.study.sweep_journal import SweepJournal
from fedsuplin.study.sweeps import run_point

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}


def test_grids_expand_in_order_with_seeds_innermost():
    points = list_points(
        [{"name": ["async", "oful"], "ridge": [1, 2]}, "sync"],
        {**PROBLEM, "horizon": [10, 20]},
        [3, 5],
        None,
    )
    points_in_order = [
        (point.policy["name"], point.policy.get("ridge"), point.problem["horizon"], point.seed)
        for point in points
    ]
    policies = [("async", 1), ("async", 2), ("oful", 1), ("oful", 2), ("sync", None)]
    assert points_in_order == [
        (*policy, horizon, seed) for policy in policies for horizon in (10, 20) for seed in (3, 5)
    ]
    assert all(point.problem["name"] == "synthetic" for point in points)


def test_whole_floats_and_numpys_numbers_are_the_same_run():
    as_float = list_points(
        {"name": "async", "C": [1.0, 2.5]}, {**PROBLEM, "horizon": 1e4}, [0.0, 1.0], 1e2
    )
    as_int = list_points(
        {"name": "async", "C": np.array([1, 2.5])},
        {**PROBLEM, "horizon": np.int64(10_000)},
        np.arange(2),
        100,
    )
    assert [point.key for point in as_float] == [point.key for point in as_int] and len(as_int) == 4
    assert as_int[0].problem["horizon"] == 10_000 and type(as_int[0].policy["C"]) is int


def test_a_key_differs_by_policy_problem_seed_and_record_and_is_made_once():
    (point,) = list_points("async", PROBLEM, 1, None)
    others = [
        list_points("oful", PROBLEM, 1, None),
        list_points("async", {**PROBLEM, "dim": 4}, 1, None),
    ]
    others += [list_points("async", PROBLEM, [1], None), list_points("async", PROBLEM, 1, "log")]
    assert len({point.key, *(other.key for (other,) in others)}) == 5
    assert point.key is point.key and fsl.__version__ in point.key


@pytest.mark.parametrize(
    ("factory", "name"),
    [
        (fsl.SyntheticProblem, "fedsuplin.problem.SyntheticProblem"),
        (fsl.ArrayProblem, "fedsuplin.problem.ArrayProblem"),
        (fsl.FixedArmsProblem, "fedsuplin.fixed_arms.FixedArmsProblem"),
        (
            fsl.ClassificationProblem,
            "fedsuplin.datasets.classification.ClassificationProblem",
        ),
        (fsl.DigitsProblem, "fedsuplin.datasets.classification.DigitsProblem"),
        (fsl.MovieLensProblem, "fedsuplin.datasets.movielens.MovieLensProblem"),
        (fsl.problem_from_table, "fedsuplin.datasets.tables.problem_from_table"),
    ],
)
def test_our_problems_keep_the_names_that_old_journals_have(factory, name):
    assert name_for_key(factory) == name


def test_every_public_problem_has_a_name_that_does_not_depend_on_its_module():
    public = [getattr(fsl, name) for name in fsl.__all__]
    modules = {thing.__module__ for thing in public if inspect.isroutine(thing)}
    modules |= {thing.__module__ for thing in public if inspect.isclass(thing)}
    assert {module for module in modules if ".problems." in module} == set(FORMER_MODULES)


def test_a_journal_from_before_the_problems_moved_goes_on(tmp_path):
    """Its key was written when SyntheticProblem was in fedsuplin.problem."""
    problem = {"name": fsl.SyntheticProblem, **PROBLEM}
    (point,) = list_points("oful", problem, 1, None)
    versions = json.dumps(json.loads(point.key)["versions"], sort_keys=True)
    key = (
        '{"policy": {"name": "oful"}, "preset": {"alpha_scale": 0.5}, '
        '"problem": {"dim": 3, "horizon": 60, "n_arms": 4, "n_clients": 2, '
        '"name": "fedsuplin.problem.SyntheticProblem"}, '
        f'"record": null, "seed": 0, "versions": {versions}}}'
    )
    line = run_point(point)
    with SweepJournal(tmp_path / "runs.jsonl") as journal:
        journal.append(line | {"key": key})
    before = (tmp_path / "runs.jsonl").read_bytes()
    found = fsl.sweep("oful", problem, seeds=1, folder=tmp_path)
    assert (tmp_path / "runs.jsonl").read_bytes() == before and len(found.rows) == 1
    assert found.rows[0]["problem"] == "fedsuplin.problem.SyntheticProblem"
