"""The command as a whole: commands load when they are called, and errors are one line."""

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy

import fedsuplin as fsl
from fedsuplin.cli import main
from fedsuplin.cli.main import COMMANDS, load_command, root_command
from fedsuplin_ext import norms

START = "from fedsuplin.__main__ import main; main()"
COMMAND = [sys.executable, "-m", "fedsuplin"]
SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]])
def test_help_imports_neither_experiments_nor_federation_nor_matplotlib(started, arguments):
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));" + START
    )
    done = started(code, *arguments)
    assert done.stdout.startswith("Usage: fedsuplin")
    imported = set(done.stderr.split())
    assert "fedsuplin.cli.main" in imported
    assert ("fedsuplin.cli.run" in imported) == ("run" in arguments)
    for module in ("fedsuplin.reproduce", "fedsuplin.federation", "fedsuplin.study", "matplotlib"):
        assert module not in imported


def test_a_command_is_imported_when_it_is_called_and_no_other_is(started):
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));" + START
    )
    imported = set(started(code, "variants", "--json").stderr.split())
    loaded = {name for name in COMMANDS if f"fedsuplin.cli.{name}" in imported}
    assert loaded == {"variants"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_stub_with_its_summary_and_a_module(name):
    stub, command = root_command.commands[name], load_command(name)
    assert stub.name == command.name == name
    assert stub.short_help == command.short_help == COMMANDS[name].summary != ""
    assert command.manual is COMMANDS[name]
    assert command.callback.__module__ == f"fedsuplin.cli.{name}"


def test_every_module_with_a_command_is_listed():
    folder = Path(main.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if "@click." in path.read_text("utf-8")}
    assert modules - {"main"} == set(COMMANDS)


def test_a_misspelt_command_gets_a_suggestion_without_an_import(started):
    done = started(START, "varaints")
    assert done.returncode == 2 and "Did you mean 'variants'?" in done.stderr


@pytest.mark.linux
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_full_standard_output_is_named_in_the_error(more):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "run", *SMALL, *more], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (
        1,
        "Error: standard output: No space left on device\n",
    )


def test_help_and_version_of_the_command(call):
    assert call("-h").stdout == call("--help").stdout
    for command in ("run", "variants", "plugins"):
        assert command in call("-h").stdout
        assert call(command, "-h").stdout.startswith("Usage:")
    assert "fedsuplin run sync" in call("run", "-h").stdout
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    first, second, third, _ = done.stdout.splitlines()
    assert first == f"fedsuplin, version {fsl.__version__}"
    assert (
        second
        == f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    assert third == f"kernels {norms.default()} (this CPU runs {', '.join(norms.available())})"


def test_an_encoding_without_greek_letters_gets_question_marks():
    done = subprocess.run(
        [*COMMAND, "run", *SMALL],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert b"?s per round" in done.stdout


@pytest.mark.posix
@pytest.mark.parametrize(
    "arguments", ["variants", "variants --json", "run --help", "plugins", "completion bash"]
)
def test_a_reader_that_goes_away_causes_no_traceback(arguments):
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(START)} {arguments} | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 1, "")


def test_missing_kernels_are_an_error(started):
    done = started(START, "run", *SMALL, env=os.environ | {"FEDSUPLIN_KERNELS": "abacus"})
    assert done.returncode == 2
    available = " and ".join(norms.available())
    assert done.stderr == f"Error: FEDSUPLIN_KERNELS is 'abacus'; this CPU runs {available}\n"
    assert (
        "kernels abacus (this CPU runs"
        in started(START, "--version", env=os.environ | {"FEDSUPLIN_KERNELS": "abacus"}).stdout
    )


def test_missing_kernels_are_an_error_in_this_process_too(call, monkeypatch):
    monkeypatch.setenv("FEDSUPLIN_KERNELS", "abacus")
    assert "FEDSUPLIN_KERNELS is 'abacus'" in call("variants", code=2).stderr
