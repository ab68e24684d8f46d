"""How tests call the command: in this process, or in one of its own."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from fedsuplin.cli.main import root_command


def call_command(*arguments, code=0, columns=80):
    """Run the command in this process; it must end with `code`, and without a traceback."""
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(
        root_command, [str(argument) for argument in arguments]
    )
    assert result.exit_code == code, result.output + repr(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture
def widest():
    """A function from a text to the columns of its widest line; combining marks take none."""
    return lambda text: max(cell_len(line) for line in text.splitlines())


@pytest.fixture
def call():
    """A function that runs the command in this process."""
    return call_command


@pytest.fixture
def numbers():
    """A function that returns what --json prints, which must be all of standard output."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    def call_with_json(*arguments, code=0):
        result = call_command(*arguments, "--json", code=code)
        return json.loads(result.stdout, parse_constant=refuse)

    return call_with_json


@pytest.fixture
def started():
    """A function that runs Python code in a process of its own, which may start the command."""

    def start(code, *arguments, **options):
        given = {"capture_output": True, "text": True, "timeout": 120} | options
        return subprocess.run([sys.executable, "-c", code, *arguments], **given)

    return start


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder with the files that the examples of --help use."""
    monkeypatch.chdir(tmp_path)
    for name in ("ml-20m", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "grid.toml").write_text(
        "seeds = 1\n[policy]\nname = 'oful'\n"
        "[problem]\ndim = 3\nn_arms = 3\nn_clients = 2\nhorizon = 50\n"
    )
    return tmp_path
