"""Sweeps: one table of every policy, problem and seed."""

import csv
import dataclasses
import sys

import pytest

import fedsuplin as fsl
from fedsuplin.errors import MissingExtra
from fedsuplin.study import sweeps
from fedsuplin.study.grid import list_points
from fedsuplin.study.sweeps import run_point

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}


def swept(policies="async", problems=PROBLEM, seeds=2, **keywords):
    return fsl.sweep(policies, problems, seeds=seeds, **keywords)


def a_problem(seed, dim=3, horizon=None):
    return fsl.SyntheticProblem(dim, 4, 2, seed=seed)


def a_problem_with_anything(seed, **anything):
    return fsl.SyntheticProblem(3, 4, 2, seed=seed)


@dataclasses.dataclass(frozen=True)
class Often:
    every: int = 5

    def fires(self, gain, elapsed):
        return elapsed >= self.every


def test_a_run_is_the_one_that_fsl_run_would_do():
    row = swept({"name": "async", "C": 0.5}, PROBLEM, seeds=[4]).rows[0]
    sizes = {key: value for key, value in PROBLEM.items() if key != "horizon"}
    alone = fsl.run("async", fsl.SyntheticProblem(**sizes, seed=4), horizon=60, C=0.5)
    assert (
        row["regret"] == alone.regret[-1]
        and row["communication"] == alone.communication[-1]
        and row["pulls"] == 60
    )


def test_a_value_that_can_not_be_used_fails_its_own_runs_only():
    found = swept({"name": "async", "alpha_scale": [-1, 0.5]}, {**PROBLEM, "dim": [3, -3]})
    good = {"alpha_scale": 0.5, "dim": 3}
    for row in found.rows:
        assert (
            (row["error"] == "")
            == (row["regret"] is not None)
            == all(row[key] == value for key, value in good.items())
        )
    assert len(found.failed) == 6 and found.complete
    assert (
        "alpha_scale must be" in found.rows[0]["error"] and "dim must be" in found.rows[-1]["error"]
    )
    assert [row["seeds"] for row in found.summary()] == [0, 0, 2, 0]


def test_a_plugin_that_exits_fails_its_run_and_nothing_else(monkeypatch):
    def exiting(*_, **__):
        sys.exit(3)

    monkeypatch.setattr(sweeps, "run", exiting)
    assert run_point(list_points("async", PROBLEM, 1, None)[0])["error"] == "SystemExit: 3"


def test_a_problem_may_be_a_function_and_a_part_an_object_that_says_what_it_is():
    found = swept(
        {"name": "async", "trigger": [Often(5), Often(30)]},
        {"name": a_problem, "dim": [2, 3], "horizon": 60},
    )
    assert not found.failed and found.rows[0]["problem"].endswith("test_sweeps.a_problem")
    few, many = (row["communication"] for row in found.summary()[::-2])
    assert few < many and found.varied == ("trigger", "dim")
    assert not swept(
        "async", {"name": a_problem_with_anything, "whatever": 3, "horizon": 50}
    ).failed


def test_columns_that_would_be_there_twice_have_a_prefix():
    noisy = {**PROBLEM, "noise_scale": [0.1, 0.2]}
    found = swept({"name": "async", "noise_scale": 0.3, "policy": "optimism"}, noisy, seeds=1)
    row = found.rows[1]
    assert (
        row["policy"],
        row["policy.policy"],
        row["policy.noise_scale"],
        row["problem.noise_scale"],
    ) == (
        "async",
        "optimism",
        0.3,
        0.2,
    )
    assert found.varied == ("problem.noise_scale",)
    shadowed = swept(
        "oful", {"name": a_problem_with_anything, "regret": 7, "problem": 8, "horizon": 50}, seeds=1
    ).rows[0]
    assert (
        shadowed["problem.regret"] == 7
        and shadowed["problem.problem"] == 8
        and shadowed["regret"] != 7
    )


def test_progress_is_reported_after_every_run_as_a_share_of_the_work():
    seen = []
    found = swept(
        {"name": ["async", "oful"]},
        {**PROBLEM, "horizon": [10, 990]},
        workers=1,
        progress=seen.append,
    )
    assert (
        [now.done for now in seen] == list(range(9))
        and {now.total for now in seen} == {8}
        and len(found.rows) == 8
    )
    shares = [now.share for now in seen]
    assert (
        shares[0] == 0
        and shares[-1] == 1
        and all(a < b for a, b in zip(shares, shares[1:], strict=False))
    )
    assert shares[4] == pytest.approx(0.99)  # the longest first


def test_progress_of_a_sweep_that_goes_on_begins_where_it_was(tmp_path):
    swept(folder=tmp_path)
    seen = []
    swept(seeds=4, folder=tmp_path, progress=seen.append)
    assert [(now.done, now.share) for now in seen] == [(2, 0.5), (3, 0.75), (4, 1.0)]


def test_curves_are_kept_where_record_asks_for_them(tmp_path):
    first = swept(record=20, folder=tmp_path)
    again = swept(record=20, folder=tmp_path)
    assert len(lines_of(tmp_path)) == 2 and first.curves[0]["pulls"].tolist() == [20, 40, 60]
    assert again.curves[1]["regret"][-1] == again.rows[1]["regret"]
    written = [
        found.write_curves(tmp_path / name).read_bytes()
        for found, name in ((first, "a.csv"), (again, "b.csv"))
    ]
    assert written[0] == written[1]
    rows = list(csv.DictReader(written[0].decode().splitlines()))
    assert (
        len(rows) == 6
        and float(rows[2]["regret"]) == first.rows[0]["regret"]
        and rows[5]["seed"] == "1"
    )
    assert swept().curves == [None, None]


def lines_of(folder):
    return (folder / "runs.jsonl").read_bytes().splitlines()[1:]


def test_the_table_as_a_frame(monkeypatch):
    found = swept()
    assert list(found.to_frame()["seed"]) == [0, 1]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fedsuplin\[frame\]'"):
        found.to_frame()
