"""Backends: the table does not depend on them, and a worker that dies fails one run."""

import importlib
import os
import sys
import threading
import time
import types
import warnings

import joblib
import pytest

import fedsuplin as fsl
from fedsuplin.cli.sweep import MOST_ROWS
from fedsuplin.errors import InvalidInput, MissingExtra
from fedsuplin.study import backends
from fedsuplin.study.backends import get_dask_outcome, run_jobs

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}
GRID = {
    "policies": [{"name": "async", "C": [0.1, 1], "alpha_scale": [-1, 0.5]}, "sync", "oful"],
    "seeds": 3,
}
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


def swept(policies="async", problems=PROBLEM, seeds=2, **keywords):
    return fsl.sweep(policies, problems, seeds=seeds, **keywords)


def table(found, folder):
    return found.write_csv(folder / "compared.csv").read_bytes()


@pytest.fixture(scope="module", autouse=True)
def _no_worker_stays():
    yield
    joblib.externals.loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)


def lines_of(folder):
    return (folder / "runs.jsonl").read_bytes().splitlines()[1:]


def until(condition, seconds=60):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, as `dask worker` would start them."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as made:
        yield "dask://" + made.scheduler_address.removeprefix("tcp://")


@pytest.fixture(scope="module")
def by_threads(tmp_path_factory):
    return table(
        swept(problems={**PROBLEM, "horizon": [60, 120]}, **GRID),
        tmp_path_factory.mktemp("threads"),
    )


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("backend", ["threads", "processes", "dask"])
def test_the_table_does_not_depend_on_the_backend(backend, workers, by_threads, cluster, tmp_path):
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


def test_a_missing_scheduler_is_reported_quickly_and_nothing_is_lost(tmp_path, monkeypatch):
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


def test_a_cluster_that_ends_in_the_middle_is_reported_and_finished_runs_are_kept(tmp_path):
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


def test_ctrl_c_keeps_finished_runs_and_the_next_start_goes_on(tmp_path):
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


def test_threads_leave_the_filters_of_warnings_alone():
    before = list(warnings.filters)
    swept(seeds=8)
    assert warnings.filters == before
    assert MOST_ROWS > 0


def test_threads_need_no_joblib(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert len(swept().rows) == 2
    assert fsl.compare(["oful"], fsl.SyntheticProblem(3, 4, 2), seeds=2, horizon=50).complete


def test_jobs_in_threads_are_yielded_in_the_order_in_which_they_end():
    release = threading.Event()

    def run_job(job, stop):
        return job if job else (release.wait(30), job)[1]

    jobs = run_jobs("threads", 2, run_job, [0, 1])
    assert next(jobs) == 1
    release.set()
    assert list(jobs) == [0]
    assert list(run_jobs("threads", 1, lambda job, stop: job, range(50))) == list(range(50))


def test_closing_the_jobs_stops_those_under_way():
    stopped = threading.Event()

    def run_job(job, stop):
        if job:
            stop.wait(30)
            stopped.set()
        return job

    jobs = run_jobs("threads", 2, run_job, [0, 1, 2, 3, 4, 5])
    assert next(jobs) == 0
    began = time.perf_counter()
    jobs.close()
    assert stopped.is_set() and time.perf_counter() - began < 10


def test_there_are_as_many_threads_as_cores_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert backends.count_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert backends.count_cores() == 64


def test_dask_workers_that_lack_a_module_are_reported():
    error = ModuleNotFoundError("No module named 'fedsuplin'")
    future = types.SimpleNamespace(status="error", exception=lambda: error)
    message = (
        "the Dask workers at a:1 could not run a job. "
        "They need the same fedsuplin and the same plugins. ModuleNotFoundError"
    )
    with pytest.raises(InvalidInput, match=message):
        get_dask_outcome(future, "a:1")
