"""Whatever fedsuplin writes is complete or not there; an older file survives a failed write."""

import errno
import os
import subprocess
import sys

import pytest

import fedsuplin as fsl
from fedsuplin._shared.files import write_csv_rows
from fedsuplin.cli.run import write_run_csv
from fedsuplin.reproduce.experiment import Options
from fedsuplin.reproduce.html_page import write_html_page
from fedsuplin.reproduce.markdown_page import write_markdown_page

PROBLEM = fsl.SyntheticProblem(dim=3, n_arms=4, n_clients=2, seed=0)
RESULT = fsl.run("async", PROBLEM, horizon=60)
COMPARISON = fsl.compare(["oful", "uniform"], PROBLEM, seeds=2, horizon=50)
ALGORITHM = fsl.make("async", dim=3, n_arms=4, n_clients=2, horizon=100)

WRITERS = {
    "result.npz": RESULT.save,
    "result.csv": lambda path: write_run_csv(RESULT, path),
    "result.png": RESULT.plot,
    "result.svg": RESULT.plot,
    "comparison.csv": COMPARISON.write_csv,
    "curves.csv": COMPARISON.write_curves,
    "comparison.png": COMPARISON.plot,
    "sweep.csv": lambda path: write_csv_rows(path, [{"a": 1}]),
    "report.html": lambda path: write_html_page(path, [], Options()),
    "results.md": lambda path: write_markdown_page(path, [], Options()),
    "client.state": fsl.Client(ALGORITHM).save,
    "server.state": fsl.Server(ALGORITHM).save,
}


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_what_was_there_and_no_half_file(name, there, tmp_path, monkeypatch):
    path = tmp_path / name
    if there:
        path.write_bytes(b"older")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        WRITERS[name](path)
    assert os.listdir(tmp_path) == ([name] if there else [])
    assert not there or path.read_bytes() == b"older"


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_written_is_the_only_one_there_and_can_be_read_by_others(name, tmp_path):
    WRITERS[name](tmp_path / name)
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o644 and (
        tmp_path / name
    ).stat().st_size > 0


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_is_not_there_is_an_error_that_names_it(name, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere") as caught:
        WRITERS[name](tmp_path / "nowhere" / name)
    assert caught.value.filename == str(
        tmp_path / "nowhere" / name
    )  # and not what it is called until it is whole


def test_a_folder_under_the_name_of_a_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "there.npz").mkdir()
    with pytest.raises(OSError) as caught:
        RESULT.save(tmp_path / "there.npz")
    assert caught.value.filename == str(tmp_path / "there.npz")
    assert os.listdir(tmp_path) == ["there.npz"]


@pytest.mark.posix
def test_a_disk_that_fills_up_while_writing_leaves_nothing(tmp_path):
    """A real limit on the size of files, in a process of its own."""
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)); import fedsuplin as fsl; "
        "result = fsl.run('async', fsl.SyntheticProblem(3, 4, 2), horizon=3000, record='all'); "
        "result.save('big.npz')"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "File too large: 'big.npz'" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.linux
@pytest.mark.measures("a limit on memory, of which AddressSanitizer maps terabytes")
def test_too_little_memory_is_one_line_and_an_exit_code(tmp_path):
    """A real limit on memory: the command says so, and leaves nothing."""
    import resource  # not everywhere

    limit = 3 << 30

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    sizes = [
        "--dim",
        "2000",
        "--arms",
        "5",
        "--clients",
        "100",
        "--horizon",
        "1000",
        "--out",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "fedsuplin", "run", "oful", *sizes]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 1 and "not enough memory for these sizes" in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and os.listdir(tmp_path) == []
