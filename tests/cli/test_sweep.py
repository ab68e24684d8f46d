"""`fedsuplin sweep`: files, tables, exit codes, and what a kill or Ctrl-C leaves."""

import contextlib
import csv
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import joblib
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, Task

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.cli.progress import TimeLeft, open_sweep_bar
from fedsuplin.cli.sweep import print_sweep
from fedsuplin.study.grid import list_points
from fedsuplin.study.sweep_checks import check_names
from fedsuplin.study.sweep_file import SECTIONS
from fedsuplin.study.sweep_journal import SweepJournal
from fedsuplin.study.sweeps import SweepProgress

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}
COMMAND = [sys.executable, "-m", "fedsuplin", "sweep"]
LONG = {
    "horizon": 30_000,
    "dim": 16,
    "n_arms": 16,
    "n_clients": 4,
}  # about a tenth of a second a run


@pytest.fixture(scope="module", autouse=True)
def _no_worker_stays():
    yield
    joblib.externals.loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)


def lines_of(folder):
    return (folder / "runs.jsonl").read_bytes().splitlines()[1:]


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
    output = called(tmp_path / "grid.toml").stdout
    assert "n_clients" in output and max(map(cell_len, output.splitlines()[:12])) <= 80
    names = ["curves.csv", "runs.jsonl", "summary.csv", "sweep.png", "table.csv"]
    assert sorted(path.name for path in (tmp_path / "grid").iterdir()) == names
    check_names(
        list_points(*(tomllib.loads(text)[part] for part in ("policy", "problem")), 1, None)
    )


def test_json_is_valid_with_one_seed_and_the_summary_has_no_nan(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    text = called(written(tmp_path, seeds=1), "--json", "--out", tmp_path / "o").stdout
    data = json.loads(text, parse_constant=refuse)
    assert (
        data["complete"]
        and data["failed"] == []
        and [row["policy"] for row in data["summary"]] == ["async", "oful"]
    )
    assert data["summary"][0]["regret"] > 0 and data["summary"][0]["regret_error"] is None
    assert {Path(file).name for file in data["files"]} == {"table.csv", "summary.csv", "sweep.png"}
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
def test_a_file_that_is_not_a_plan_is_refused_with_the_reason(text, message, tmp_path):
    if text is not None:
        (tmp_path / "grid.toml").write_text(text)
    result = called(tmp_path / "grid.toml", code=2)
    assert message in " ".join(result.stderr.split()) and "Traceback" not in result.output


def test_a_file_in_another_encoding_and_a_missing_file_are_reported(tmp_path):
    (tmp_path / "grid.toml").write_bytes("# Größe\nseeds = 1".encode("latin-1"))
    assert "is not TOML" in called(tmp_path / "grid.toml", code=2).stderr
    assert "fedsuplin sweep --example" in " ".join(called(code=2).stderr.split())


def test_runs_that_fail_are_listed_and_make_the_exit_code_one(tmp_path):
    plan = written(tmp_path, seeds=4, policy='name = "async"\nalpha_scale = [-1, -2, 0.5]')
    output = called(plan, code=1).stdout
    assert "failed: alpha_scale -1, seed 0: InvalidInput: alpha_scale must be" in " ".join(
        output.split()
    )
    assert (
        "and 3 more, in the column error of" in " ".join(output.split())
        and max(map(cell_len, output.splitlines()[:8])) <= 80
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
    output = called(plan).stdout
    assert (
        "the first 60 of 64 points" in output and max(map(cell_len, output.splitlines()[:64])) <= 80
    )


def test_a_figure_needs_matplotlib_and_the_command_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "no figure: a figure needs matplotlib" in called(written(tmp_path)).stdout


def test_json_of_a_sweep_that_was_stopped_has_a_notice(capsys):
    stopped = dataclasses.replace(fsl.sweep("oful", PROBLEM, seeds=1), complete=False)
    print_sweep(stopped, [], ["no figure"], as_json=True, quiet=False)
    data = json.loads(capsys.readouterr().out)
    assert (
        data["notices"] == ["no figure", "stopped: start it again, and it continues from here"]
        and not data["complete"]
    )


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


class Full:
    """A file on a disk without room."""

    def __init__(self, file):
        self._file = file

    def write(self, line):
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_a_full_disk_keeps_finished_runs_and_is_reported_in_one_line(tmp_path, monkeypatch):
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
        errors = called(plan, code=1).stderr
    assert errors.splitlines() == [
        f"Error: {tmp_path / 'grid' / 'runs.jsonl'}: No space left on device. "
        "The 3 runs in it are kept: start the sweep again and it continues"
    ]
    assert len(lines_of(tmp_path / "grid")) == 4  # three and a half
    called(plan)
    assert len(lines_of(tmp_path / "grid")) == 6


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
    assert took < 10  # one on a quiet machine, most of it for the figure
    assert len(lines_of(tmp_path / "grid")) == finished
