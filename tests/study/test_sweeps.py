"""Sweeps: the plan, the table that does not depend on who did the runs, and what interrupts, kills and failures leave."""

import contextlib
import csv
import dataclasses
import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, Task

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.cli.output import TimeLeft, open_sweep_bar
from fedsuplin.cli.sweep import MOST_ROWS, print_sweep
from fedsuplin.errors import InvalidInput, MissingExtra, UnknownName
from fedsuplin.registry import plugins
from fedsuplin.study import backends, sweeps
from fedsuplin.study.grid import list_points
from fedsuplin.study.sweep_checks import check_names
from fedsuplin.study.sweep_file import SECTIONS
from fedsuplin.study.sweep_journal import HEADING, SweepJournal
from fedsuplin.study.sweeps import SweepProgress, run_point
from fedsuplin.view.sweep_figure import compute_sweep_info

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}
POLICIES = [{"name": "async", "C": [0.1, 1]}, "oful"]
COMMAND = [sys.executable, "-m", "fedsuplin", "sweep"]


def swept(policies="async", problems=PROBLEM, seeds=2, **keywords):
    return fsl.sweep(policies, problems, seeds=seeds, **keywords)


def table(found, folder):
    return found.write_csv(folder / "compared.csv").read_bytes()


@pytest.fixture(scope="module", autouse=True)
def _no_worker_stays():
    yield
    joblib.externals.loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)


# --- the plan ------------------------------------------------------------------------------------------------------------


def test_grids_expand_in_order_with_seeds_innermost():
    points = list_points(
        [{"name": ["async", "oful"], "ridge": [1, 2]}, "sync"],
        {**PROBLEM, "horizon": [10, 20]},
        [3, 5],
        None,
    )
    told = [
        (point.policy["name"], point.policy.get("ridge"), point.problem["horizon"], point.seed)
        for point in points
    ]
    policies = [("async", 1), ("async", 2), ("oful", 1), ("oful", 2), ("sync", None)]
    assert told == [
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


def test_a_key_tells_policy_problem_seed_and_record_apart_and_is_made_once():
    (point,) = list_points("async", PROBLEM, 1, None)
    others = [
        list_points("oful", PROBLEM, 1, None),
        list_points("async", {**PROBLEM, "dim": 4}, 1, None),
    ]
    others += [list_points("async", PROBLEM, [1], None), list_points("async", PROBLEM, 1, "log")]
    assert len({point.key, *(other.key for (other,) in others)}) == 5
    assert point.key is point.key and fsl.__version__ in point.key


def a_problem(seed, dim=3, horizon=None):
    return fsl.SyntheticProblem(dim, 4, 2, seed=seed)


def a_problem_with_anything(seed, **anything):
    return fsl.SyntheticProblem(3, 4, 2, seed=seed)


@dataclasses.dataclass(frozen=True)
class Often:
    every: int = 5

    def fires(self, gain, elapsed):
        return elapsed >= self.every


class Nameless:
    def fires(self, gain, elapsed):
        return True


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"policies": "asinc"}, "unknown variant 'asinc'. Did you mean 'async'"),
        (
            {"policies": {"name": "async", "alpha_scal": 1}},
            "unknown keyword for 'async' 'alpha_scal'. Did you mean 'alpha_scale'",
        ),
        (
            {"policies": {"name": "async", "trigger": "periodik"}},
            "unknown trigger 'periodik'. Did you mean 'periodic'",
        ),
        (
            {"policies": {"name": "async", "preset": "theorie"}},
            "unknown preset 'theorie'. Did you mean 'theory'",
        ),
        ({"policies": {"name": "async", "syncs": "al"}}, "unknown syncs 'al'. Did you mean 'all'"),
        ({"policies": {"name": "async", "horizon": 5}}, "unknown keyword for 'async' 'horizon'"),
        ({"policies": {"C": 1}}, "must say which policy: add name"),
        ({"policies": [3]}, "must be a grid or several"),
        ({"policies": 3}, "must be a grid or several"),
        ({"policies": []}, "nothing to run: policies are missing"),
        ({"policies": {"name": "async", "C": []}}, "the axis C of policies has no values"),
        ({"policies": ["oful", "oful"]}, "in the sweep twice"),
        ({"policies": {"name": "async", "C": [1, 1.0]}}, "in the sweep twice"),
        ({"policies": {"name": "async", "trigger": Nameless()}}, "has no name by which its runs could be found again"),
        (
            {"policies": {"name": "async", "trigger": lambda gain, elapsed: True}},
            "has no name by which its runs could be found again",
        ),
        ({"problems": "synthetic"}, "must be a grid or several"),
        (
            {"problems": {"name": "fixed-arm", **PROBLEM}},
            "unknown problem 'fixed-arm'. Did you mean 'fixed-arms'",
        ),
        (
            {"problems": {**PROBLEM, "n_armz": 5}},
            "unknown keyword for problem 'synthetic' 'n_armz'. Did you mean 'n_arms'",
        ),
        (
            {"problems": {"dim": 3, "n_arm": 4, "n_clients": 2, "horizon": 60}},
            "unknown keyword for problem 'synthetic' 'n_arm'. Did you mean 'n_arms'",
        ),
        (
            {"problems": {"dim": 3, "R": 1.0, "noise": "bounded", "horizon": 60}},
            "problem 'synthetic' needs n_arms, n_clients",
        ),
        (
            {"problems": {"name": "array", "kontexts": 5}},
            "unknown keyword for problem 'array' 'kontexts'. Did you mean 'contexts'",
        ),
        ({"problems": {"name": "fixed-arms", **PROBLEM, "own_armz": True}}, "'own_armz'"),
        (
            {"problems": {**PROBLEM, "noise": "gausian"}},
            "problem 'synthetic': unknown noise model 'gausian'. Did you mean 'gaussian'",
        ),
        ({"problems": {**PROBLEM, "seed": 5}}, "give seeds="),
        ({"problems": {**PROBLEM, "name": 5}}, "must be a name or a function that makes one, not 5"),
        ({"problems": {"name": a_problem, "dimm": 2}}, "a_problem' 'dimm'. Did you mean 'dim'"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1"),
        ({"seeds": []}, "give at least one seed"),
        ({"seeds": [1.5]}, "whole numbers of at least 0, not 1.5"),
        ({"seeds": [-1]}, "whole numbers of at least 0, not -1"),
        ({"seeds": "ten"}, "whole numbers of at least 0, not 't'"),
        ({"record": "all"}, "is for a single run"),
        ({"record": "logg"}, "record must be"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"backend": "thread"}, "unknown backend 'thread'. Did you mean 'threads'"),
        ({"backend": "dask://nowhere"}, "is not the address of a Dask scheduler"),
        ({"backend": "dask://host:port"}, "is not the address of a Dask scheduler"),
        ({"backend": "dask://"}, "is not the address of a Dask scheduler"),
    ],
)
def test_what_can_not_be_a_sweep_is_told_before_anything_runs(plan, message, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "run", None)
    with pytest.raises((InvalidInput, UnknownName)) as caught:
        swept(**{"folder": tmp_path / "new", **plan})
    assert message in str(caught.value)
    assert not (tmp_path / "new").exists()


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


def test_columns_that_would_be_there_twice_say_whose_they_are():
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


def test_a_run_is_the_one_that_fsl_run_would_do():
    row = swept({"name": "async", "C": 0.5}, PROBLEM, seeds=[4]).rows[0]
    sizes = {key: value for key, value in PROBLEM.items() if key != "horizon"}
    alone = fsl.run("async", fsl.SyntheticProblem(**sizes, seed=4), horizon=60, C=0.5)
    assert (
        row["regret"] == alone.regret[-1]
        and row["communication"] == alone.communication[-1]
        and row["pulls"] == 60
    )


def test_a_plugin_that_exits_fails_its_run_and_nothing_else(monkeypatch):
    def exiting(*_, **__):
        sys.exit(3)

    monkeypatch.setattr(sweeps, "run", exiting)
    assert run_point(list_points("async", PROBLEM, 1, None)[0])["error"] == "SystemExit: 3"


# --- backends ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, as `dask worker` would start them."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as made:
        yield "dask://" + made.scheduler_address.removeprefix("tcp://")


GRID = {
    "policies": [{"name": "async", "C": [0.1, 1], "alpha_scale": [-1, 0.5]}, "sync", "oful"],
    "seeds": 3,
}


@pytest.fixture(scope="module")
def by_threads(tmp_path_factory):
    return table(
        swept(problems={**PROBLEM, "horizon": [60, 120]}, **GRID),
        tmp_path_factory.mktemp("threads"),
    )


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("backend", ["threads", "processes", "dask"])
def test_the_table_does_not_depend_on_the_engine(backend, workers, by_threads, cluster, tmp_path):
    seen = []
    backend = cluster if backend == "dask" else backend
    problems = {**PROBLEM, "horizon": [60, 120]}
    found = swept(
        problems=problems,
        **GRID,
        backend=backend,
        workers=workers,
        folder=tmp_path,
        progress=seen.append,
    )
    assert table(found, tmp_path) == by_threads
    assert [now.done for now in seen] == list(range(len(found.points) + 1))
    assert len(found.failed) == 12


def test_dask_takes_the_address_as_the_scheduler_prints_it_and_all_at_once(
    cluster, by_threads, tmp_path
):
    backend = cluster.replace("dask://", "dask://tcp://")
    assert (
        table(swept(problems={**PROBLEM, "horizon": [60, 120]}, **GRID, backend=backend), tmp_path)
        == by_threads
    )


FRAGILE = """
import os, signal
import fedsuplin as fsl

def made(seed, fatal=False):
    if fatal and seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return fsl.SyntheticProblem(3, 4, 2, seed=seed)

class Heavy:
    def __init__(self, weight=1):
        self.weight = weight
    def __repr__(self):
        return f"Heavy({self.weight})"
    def fires(self, gain, elapsed):
        return True
    def __reduce__(self):
        raise TypeError("too heavy to send")
"""


@pytest.fixture
def fragile(tmp_path, monkeypatch):
    """A module of the user's, from which a worker process dies."""
    (tmp_path / "fragile_problems.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(tmp_path)
    joblib.externals.loky.get_reusable_executor().shutdown(
        wait=True, kill_workers=True
    )  # which have another path
    yield importlib.import_module("fragile_problems")
    sys.modules.pop("fragile_problems")


@pytest.mark.posix
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_process_that_dies_fails_its_run_and_no_other(workers, fragile):
    problems = {"name": fragile.made, "fatal": [False, True], "horizon": 60}
    found = swept("async", problems, seeds=3, backend="processes", workers=workers)
    assert [(row["fatal"], row["seed"]) for row in found.failed] == [(True, 1)] and found.complete
    assert "TerminatedWorkerError: A worker process" in found.failed[0]["error"]
    assert len(found.rows) == 6


def test_what_can_not_be_sent_to_a_process_fails_its_run_and_no_other(fragile):
    policies = ["oful", {"name": "async", "trigger": fragile.Heavy()}]
    found = swept(policies, seeds=1, backend="processes", workers=2)
    assert [row["policy"] for row in found.failed] == ["async"] and "Pickl" in found.failed[0][
        "error"
    ]


@pytest.mark.posix
def test_a_dask_worker_that_dies_fails_its_run_and_no_other(tmp_path, monkeypatch):
    """Through joblib's Dask backend this would wait for ever."""
    import dask
    from distributed import LocalCluster

    (tmp_path / "fragile_dask.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = importlib.import_module("fragile_dask")
    settings = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": ":0",
        "silence_logs": 50,
    }
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(**settings) as made,
    ):
        backend = "dask://" + made.scheduler_address.removeprefix("tcp://")
        found = swept(
            "oful", {"name": module.made, "fatal": [False, True], "horizon": 60}, backend=backend
        )
    assert [(row["fatal"], row["seed"]) for row in found.failed] == [(True, 1)] and len(
        found.rows
    ) == 4
    assert "KilledWorker" in found.failed[0]["error"]


def test_no_scheduler_is_told_quickly_and_nothing_is_lost(tmp_path, monkeypatch):
    assert backends.CONNECT_TIMEOUT == "5s"
    monkeypatch.setattr(backends, "CONNECT_TIMEOUT", "1s")
    began = time.perf_counter()
    with pytest.raises(InvalidInput, match="no Dask scheduler answers at 127.0.0.1:1: "):
        swept(backend="dask://127.0.0.1:1", folder=tmp_path)
    assert time.perf_counter() - began < 15
    assert len(swept(folder=tmp_path).rows) == 2


def test_a_cluster_without_workers_says_how_to_start_some():
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as made,
        pytest.raises(InvalidInput, match="has no workers: start some with `dask worker"),
    ):
        swept(backend="dask://" + made.scheduler_address.removeprefix("tcp://"))


def test_a_sweep_that_was_stopped_leaves_a_cluster_free(cluster):
    def impatient(now):
        if now.done == 1:
            raise KeyboardInterrupt

    forever = {**PROBLEM, "horizon": [60, 10**9]}  # the long one first, on one of two workers
    found = swept("oful", forever, seeds=1, backend=cluster, progress=impatient)
    assert not found.complete and [row["horizon"] for row in found.rows] == [60]
    from distributed import Client

    def under_way(
        dask_worker,
    ):  # in here, so that it is sent as it is: workers can't import this module
        return dask_worker.state.executing_count + sum(
            task.state == "cancelled" for task in dask_worker.state.tasks.values()
        )

    with Client(cluster.removeprefix("dask://"), set_as_default=False) as client:
        until(
            lambda: (
                not any(client.processing().values())
                and client.run(under_way) == dict.fromkeys(client.nthreads(), 0)
            )
        )


def test_a_cluster_that_ends_in_the_middle_is_told_and_what_was_done_is_kept(tmp_path):
    from distributed import LocalCluster

    made = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    )
    backend = "dask://" + made.scheduler_address.removeprefix("tcp://")
    with pytest.raises(InvalidInput, match="is gone. The runs that ended are kept"):
        swept(
            seeds=50,
            folder=tmp_path,
            backend=backend,
            progress=lambda now: made.close() if now.done == 2 else None,
        )
    assert 2 <= len(lines_of(tmp_path)) < 50


@pytest.mark.parametrize(
    ("module", "backend", "extra"),
    [("joblib", "processes", "sweep"), ("distributed", "dask://127.0.0.1:1", "dask")],
)
def test_a_missing_library_says_what_to_install(module, backend, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"needs {module}: pip install 'fedsuplin\[{extra}\]'"):
        swept(backend=backend)


# --- progress ------------------------------------------------------------------------------------------------------------


def test_progress_is_told_after_every_run_by_the_share_of_the_work():
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


def test_the_time_left_is_that_of_the_work_left_and_not_of_the_runs():
    now = 0.0
    task = Task(0, "", 1.0, 0.0, fields={"before": 0.0}, _get_time=lambda: now)
    task.start_time, column = 0.0, TimeLeft()
    assert str(column.render(task)) == "-:--:-- left"
    now, task.completed = 30.0, 0.75  # one run of four, the longest
    assert str(column.render(task)) == "0:00:10 left"
    task.fields["before"] = 0.5  # most of it was done before this start
    assert str(column.render(task)) == "0:00:30 left"


def test_the_bar_shows_runs_failures_and_time(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    drawn = []
    monkeypatch.setattr(
        Progress, "stop", lambda self: drawn.append(self.make_tasks_table(self.tasks))
    )
    with open_sweep_bar(quiet=False) as show:
        for now in (SweepProgress(0, 4, 0, 0.0), SweepProgress(1, 4, 1, 0.7)):
            show("grid", now)
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(drawn[0])
    assert (
        "grid" in capture.get()
        and "1 of 4 runs, 1 failed" in capture.get()
        and "0:00:00 left" in capture.get()
    )


# --- going on ------------------------------------------------------------------------------------------------------------


def lines_of(folder):
    return (folder / "runs.jsonl").read_bytes().splitlines()[1:]


def test_more_seeds_and_values_run_only_what_is_new(tmp_path):
    swept({"name": "async", "C": [0.1, 1]}, seeds=2, folder=tmp_path)
    before = lines_of(tmp_path)
    found = swept({"name": "async", "C": [0.1, 1, 10]}, seeds=3, folder=tmp_path)
    assert lines_of(tmp_path)[:4] == before and len(lines_of(tmp_path)) == len(found.rows) == 9
    assert table(found, tmp_path) == table(
        swept({"name": "async", "C": [0.1, 1, 10]}, seeds=3), tmp_path
    )
    fewer = swept({"name": "async", "C": 1}, seeds=1, folder=tmp_path)
    assert len(fewer.rows) == 1 and len(lines_of(tmp_path)) == 9


def test_runs_that_failed_are_tried_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sweeps, "make_problem", lambda point: 1 / (point.seed - 1))
        patched.setattr(sweeps, "check_names", lambda points: None)
        first = swept(seeds=[1], folder=tmp_path)
    assert first.rows[0]["error"] == "ZeroDivisionError: division by zero"
    second = swept(seeds=[1], folder=tmp_path)
    assert not second.failed and len(lines_of(tmp_path)) == 2
    assert not swept(seeds=[1], folder=tmp_path).failed and len(lines_of(tmp_path)) == 2


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


def test_ctrl_c_keeps_what_was_finished_and_the_next_start_goes_on(tmp_path):
    def impatient(now):
        if now.done == 3:
            raise KeyboardInterrupt

    for backend in ("threads", "processes"):
        found = swept(
            seeds=6, folder=tmp_path / backend, backend=backend, workers=2, progress=impatient
        )
        assert (
            not found.complete
            and len(found.rows) == 3
            and "stopped early with 3 to go" in repr(found)
        )
        assert len(swept(seeds=6, folder=tmp_path / backend).rows) == 6
        assert len(lines_of(tmp_path / backend)) == 6


def test_ten_thousand_points_are_planned_and_gone_on_with_in_seconds(tmp_path):
    grids = {"name": "async", "C": np.linspace(0.1, 2, 100)}, {**PROBLEM, "dim": [2, 3, 4, 5]}
    points = list_points(*grids, 25, None)
    line = json.loads(json.dumps(run_point(points[0])))
    with (tmp_path / "runs.jsonl").open("wb") as file:
        file.write(HEADING)
        file.writelines(
            json.dumps(line | {"key": point.key}).encode() + b"\n" for point in points[:-3]
        )
    seen, began = [], time.perf_counter()
    found = fsl.sweep(*grids, seeds=25, folder=tmp_path, progress=seen.append)
    assert time.perf_counter() - began < 20  # two where nobody else is at work
    assert len(found.rows) == 10_000 and [now.done for now in seen] == [9997, 9998, 9999, 10_000]
    assert len(found.summary()) == 400


# --- the journal ---------------------------------------------------------------------------------------------------------


def test_a_journal_is_locked_while_a_sweep_writes_to_it(tmp_path):
    with (
        SweepJournal(tmp_path / "runs.jsonl"),
        pytest.raises(InvalidInput, match="another sweep is writing to"),
    ):
        swept(folder=tmp_path)
    assert len(swept(folder=tmp_path).rows) == 2


def test_half_a_line_at_the_end_is_done_again(tmp_path):
    whole = table(swept(seeds=3, folder=tmp_path), tmp_path)
    text = (tmp_path / "runs.jsonl").read_bytes()
    last = text.rstrip(b"\n").rfind(b"\n") + 1
    for end in (last + 1, last + 40, len(text) - 1):
        (tmp_path / "runs.jsonl").write_bytes(text[:end])
        assert table(swept(seeds=3, folder=tmp_path), tmp_path) == whole
        assert len(lines_of(tmp_path)) == 3
    for end in (0, 7, len(HEADING) - 1):  # killed as early as that
        (tmp_path / "runs.jsonl").write_bytes(HEADING[:end])
        assert len(swept(folder=tmp_path).rows) == 2


@pytest.mark.parametrize(
    "garbage", [b"garbage\n", b"5\n", b'{"no": "key"}\n', b"\n", b"\xff\xfe\n"]
)
def test_a_line_that_can_not_be_read_is_named(garbage, tmp_path):
    swept(folder=tmp_path)
    first, *rest = (tmp_path / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "runs.jsonl").write_bytes(b"".join([first, rest[0], garbage, rest[1]]))
    with pytest.raises(InvalidInput, match=r"line 3 of .*runs.jsonl can't be read"):
        swept(folder=tmp_path)
    assert (tmp_path / "runs.jsonl").read_bytes().endswith(rest[1])


@pytest.mark.parametrize(
    "text",
    [b"a thesis without a newline", b"a thesis\nof two lines", b'{"format": "other"}\n', b"\x00\n"],
)
def test_a_file_of_somebody_elses_is_left_alone(text, tmp_path):
    (tmp_path / "runs.jsonl").write_bytes(text)
    with pytest.raises(InvalidInput, match="is not the journal of a sweep"):
        swept(folder=tmp_path)
    assert (tmp_path / "runs.jsonl").read_bytes() == text


def test_a_full_disk_keeps_what_was_done_and_is_told_in_one_line(tmp_path, monkeypatch):
    plan = written(tmp_path, seeds=6, policy='name = "async"')
    wrote = SweepJournal._write

    def full(self, line):
        if len(self.lines) == 3:
            with (tmp_path / "grid" / "runs.jsonl").open("ab") as file:
                file.write(line[:20])  # as much as there was room for
            monkeypatch.setattr(self, "_file", Full(self._file))
        wrote(self, line)

    with monkeypatch.context() as patched:
        patched.setattr(SweepJournal, "_write", full)
        said = called(plan, code=1).stderr
    assert said.splitlines() == [
        f"Error: {tmp_path / 'grid' / 'runs.jsonl'}: No space left on device. The 3 runs in it are kept: "
        "start the sweep again and it goes on"
    ]
    assert len(lines_of(tmp_path / "grid")) == 4  # three and a half
    called(plan)
    assert len(lines_of(tmp_path / "grid")) == 6


class Full:
    """A file on a disk without room."""

    def __init__(self, file):
        self._file = file

    def write(self, line):
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name):
        return getattr(self._file, name)


# --- on the command line -------------------------------------------------------------------------------------------------


def called(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(
        root_command, ["sweep", *(str(argument) for argument in arguments)]
    )
    assert result.exit_code == code, result.output + repr(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def written(folder, seeds=2, policy='name = ["async", "oful"]', name="grid.toml", **sizes):
    """A plan as a file."""
    problem = "\n".join(f"{key} = {value}" for key, value in (PROBLEM | sizes).items())
    (folder / name).write_text(
        f"seeds = {seeds}\n[policy]\n{policy}\n[problem]\n{problem}\n", encoding="utf-8"
    )
    return folder / name


def test_the_example_is_a_plan_that_runs_with_every_section(tmp_path):
    text = called("--example").stdout
    plan = tomllib.loads(text.replace("# record", "record"))
    assert set(plan) == set(SECTIONS)
    (tmp_path / "grid.toml").write_text(
        text.replace("20_000", "200").replace("# record", "record").replace("= 10  ", "= 2  ")
    )
    told = called(tmp_path / "grid.toml").stdout
    assert "n_clients" in told and max(map(cell_len, told.splitlines()[:12])) <= 80
    names = ["curves.csv", "runs.jsonl", "summary.csv", "sweep.png", "table.csv"]
    assert sorted(path.name for path in (tmp_path / "grid").iterdir()) == names
    check_names(
        list_points(*(tomllib.loads(text)[part] for part in ("policy", "problem")), 1, None)
    )


def test_json_is_valid_with_one_seed_and_the_summary_has_no_nan(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    text = called(written(tmp_path, seeds=1), "--json", "--out", tmp_path / "o").stdout
    told = json.loads(text, parse_constant=refuse)
    assert (
        told["complete"]
        and told["failed"] == []
        and [row["policy"] for row in told["summary"]] == ["async", "oful"]
    )
    assert told["summary"][0]["regret"] > 0 and told["summary"][0]["regret_error"] is None
    assert {Path(file).name for file in told["files"]} == {"table.csv", "summary.csv", "sweep.png"}
    for file in ("table.csv", "summary.csv"):
        assert "nan" not in (tmp_path / "o" / file).read_text().lower()
    assert "one seed" in called(tmp_path / "grid.toml", "--out", tmp_path / "o").stdout


def test_the_folder_is_called_like_the_file(tmp_path):
    called(written(tmp_path), "-q")
    called(written(tmp_path, name="bare"), "-q")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "bare-sweep",
        "grid",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("seeds = ", "is not TOML"),
        ("[policy]\nname = 'async'\n[problm]\n", "'problm'. Did you mean 'problem'"),
        ("[problem]\ndim = 3\n", "has no [policy]: `fedsuplin sweep --example`"),
        ("policy = 'async'\n", "has no [problem]"),
        ("policy = 3\n[problem]\ndim = 3\n", "policies must be a grid or several"),
        ("policy = 'async'\nproblem = 3\n", "problems must be a grid or several"),
        ("policy = 'asinc'\n[problem]\ndim = 3\n", "Did you mean 'async'"),
    ],
)
def test_a_file_that_is_no_plan_is_told(text, message, tmp_path):
    if text is not None:
        (tmp_path / "grid.toml").write_text(text)
    result = called(tmp_path / "grid.toml", code=2)
    assert message in " ".join(result.stderr.split()) and "Traceback" not in result.output


def test_a_file_in_another_encoding_and_no_file_at_all_are_told(tmp_path):
    (tmp_path / "grid.toml").write_bytes("# Größe\nseeds = 1".encode("latin-1"))
    assert "is not TOML" in called(tmp_path / "grid.toml", code=2).stderr
    assert "fedsuplin sweep --example" in " ".join(called(code=2).stderr.split())


def test_runs_that_fail_are_listed_and_make_the_exit_code_one(tmp_path):
    plan = written(tmp_path, seeds=4, policy='name = "async"\nalpha_scale = [-1, -2, 0.5]')
    told = called(plan, code=1).stdout
    assert "failed: alpha_scale -1, seed 0: InvalidInput: alpha_scale must be" in " ".join(
        told.split()
    )
    assert (
        "and 3 more, in the column error of" in " ".join(told.split())
        and max(map(cell_len, told.splitlines()[:8])) <= 80
    )
    rows = list(csv.DictReader((tmp_path / "grid" / "table.csv").read_text().splitlines()))
    assert len(rows) == 12 and sum(row["error"] != "" for row in rows) == 8
    assert "failed: " in called(plan, "--quiet", code=1).stdout
    assert len(json.loads(called(plan, "--json", code=1).stdout)["failed"]) == 8


def test_a_table_of_many_axes_and_points_is_readable_on_80_columns(tmp_path):
    policy = 'name = ["async", "oful"]\nalpha_scale = [0.25, 0.5]\nridge = [0.5, 1]'
    plan = written(
        tmp_path,
        seeds=1,
        policy=policy,
        horizon=[20, 30],
        n_clients=[1, 2],
        noise_scale="[0.125, 0.25]",
    )
    told = called(plan).stdout
    assert "the first 60 of 64 points" in told and max(map(cell_len, told.splitlines()[:64])) <= 80


# --- killed and interrupted ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(plan, *options):
    """The command in a process group of its own, as a terminal has it."""
    process = subprocess.Popen(
        [*COMMAND, str(plan), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(condition, seconds=60):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def has_lines(folder, n):
    return lambda: (folder / "runs.jsonl").exists() and len(lines_of(folder)) >= n


def workers_of(group):
    """Its processes that are alive."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, pgrp = status.read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state != "Z":
                found.append(int(status.parent.name))
    return found


LONG = {
    "horizon": 30_000,
    "dim": 16,
    "n_arms": 16,
    "n_clients": 4,
}  # about a tenth of a second a run


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    called(written(folder, seeds=8, **LONG), "-q")
    return (folder / "grid" / "table.csv").read_bytes()


@pytest.mark.linux
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_sweep_that_was_killed_gives_the_table_of_one_that_was_not(
    backend, uninterrupted, tmp_path
):
    plan = written(tmp_path, seeds=8, **LONG)
    with started(plan, "--backend", backend) as process:
        until(has_lines(tmp_path / "grid", 3))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        kept = lines_of(tmp_path / "grid")
        assert 3 <= len(kept) < 16 and not (tmp_path / "grid" / "table.csv").exists()
        called(plan, "-q")  # at once, while workers may not have noticed
        until(lambda: not workers_of(process.pid), seconds=15)
    assert (
        lines_of(tmp_path / "grid")[: len(kept)] == kept and len(lines_of(tmp_path / "grid")) == 16
    )
    assert len({json.loads(line)["key"] for line in lines_of(tmp_path / "grid")}) == 16
    assert (tmp_path / "grid" / "table.csv").read_bytes() == uninterrupted


@pytest.mark.linux
@pytest.mark.parametrize(
    ("backend", "workers", "finished"), [("threads", 1, 0), ("threads", 2, 1), ("processes", 2, 1)]
)
def test_ctrl_c_ends_runs_that_are_long_and_says_how_to_go_on(backend, workers, finished, tmp_path):
    """A run of hours, and one that is over at once where there is a worker for it."""
    plan = written(tmp_path, seeds=1, policy='name = "oful"', horizon="[60, 1_000_000_000]")
    with started(plan, "--backend", backend, "--workers", str(workers)) as process:
        until(has_lines(tmp_path / "grid", finished))
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        began = time.perf_counter()
        out, err = process.communicate(timeout=30)
        took = time.perf_counter() - began
        until(lambda: not workers_of(process.pid), seconds=5)
    assert process.returncode == 130, err
    assert "stopped: start it again, and it continues from here" in out and err == ""
    assert took < 10  # one where nobody else is at work, most of it for the figure
    assert len(lines_of(tmp_path / "grid")) == finished


def test_json_of_a_sweep_that_was_stopped_has_a_notice(capsys):
    stopped = dataclasses.replace(fsl.sweep("oful", PROBLEM, seeds=1), complete=False)
    print_sweep(stopped, [], ["no figure"], as_json=True, quiet=False)
    told = json.loads(capsys.readouterr().out)
    assert (
        told["notices"] == ["no figure", "stopped: start it again, and it continues from here"]
        and not told["complete"]
    )


# --- the figure ----------------------------------------------------------------------------------------------------------


def words(figure):
    found = [
        figure.get_suptitle(),
        *(text.get_text() for legend in figure.legends for text in legend.get_texts()),
    ]
    for axes in figure.axes:
        found += [
            axes.get_title(),
            axes.get_xlabel(),
            axes.get_ylabel(),
            *(text.get_text() for text in axes.texts),
        ]
        found += (
            [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else []
        )
    return found


def test_the_figure_is_along_the_numbers_with_a_line_for_every_other_combination(tmp_path):
    found = swept(
        [{"name": "async", "C": [0.1, 10]}, "oful"], {**PROBLEM, "horizon": [30, 60, 3000]}
    )
    figure = found.plot(tmp_path / "sweep.png")
    info = compute_sweep_info(found)
    assert info.axis == "horizon" and list(info.lines) == ["async, C 0.1", "async, C 10", "oful"]
    means = {(row["policy"], row["C"], row["horizon"]): row["regret"] for row in found.summary()}
    assert info.lines["async, C 10"]["regret"][1] == [
        means["async", 10, horizon] for horizon in (30, 60, 3000)
    ]
    regret, communication = figure.axes
    assert (
        regret.get_xlabel() == communication.get_xlabel() == "horizon (pulls)"
        and regret.get_xscale() == "log"
    )
    assert regret.get_ylabel() == "cumulative regret" and communication.get_ylabel().startswith(
        "communications"
    )
    looks = {(line.get_linestyle(), line.get_marker()) for line, *_ in regret.containers}
    assert len(looks) == 3  # so that print in grey tells them apart
    assert (tmp_path / "sweep.png").stat().st_size > 10_000


def test_words_one_point_one_seed_and_nothing_have_a_figure_too():
    regret = swept(["async", "oful", "uniform"]).plot().axes[0]
    assert [text.get_text() for text in regret.get_xticklabels()] == ["async", "oful", "uniform"]
    assert regret.get_legend() is None and [
        line.get_linestyle() for line, *_ in regret.containers
    ] == ["None"]
    assert [text.get_text() for text in swept().plot().axes[0].get_xticklabels()] == ["async"]
    assert any(
        "one point" in word and "(one seed)" in word for word in words(swept(seeds=1).plot())
    )
    failed = swept({"name": "async", "alpha_scale": -1}).plot()
    assert words(failed).count("no run succeeded") == 2 and not any(
        len(axes.get_yticks()) for axes in failed.axes
    )
    many = swept(
        {"name": "async", "C": [0.1, 1, 10], "ridge": [0.5, 1, 2]},
        {**PROBLEM, "horizon": [10, 20, 30, 40]},
        seeds=1,
    )
    assert len(many.plot().legends[0].get_texts()) == 9


def test_a_figure_needs_matplotlib_and_the_command_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "no figure: a figure needs matplotlib" in called(written(tmp_path)).stdout


def test_the_table_as_a_frame(monkeypatch):
    found = swept()
    assert list(found.to_frame()["seed"]) == [0, 1]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fedsuplin\[frame\]'"):
        found.to_frame()


def test_threads_leave_the_filters_of_warnings_alone():
    before = list(warnings.filters)
    swept(seeds=8)
    assert warnings.filters == before
    assert MOST_ROWS > 0


def test_runs_with_other_constants_in_their_preset_are_other_runs(tmp_path, monkeypatch):
    first = swept(["async", "sync"], folder=tmp_path)
    recipe = plugins.create("variants", "async", {})
    changed = dataclasses.replace(
        recipe,
        presets=recipe.presets | {"practical": recipe.presets["practical"] | {"alpha_scale": 0.5}},
    )
    create = plugins.create
    monkeypatch.setattr(
        plugins,
        "create",
        lambda kind, name, keywords: changed if name == "async" else create(kind, name, keywords),
    )
    again = swept(["async", "sync"], folder=tmp_path)
    regrets = [[row["regret"] for row in found.rows] for found in (first, again)]
    assert regrets[0][:2] != regrets[1][:2] and regrets[0][2:] == regrets[1][2:]
    assert (
        len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1 + 4 + 2
    )  # the heading, and async once more
