"""Where the command starts, and Ctrl-C during imports."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

START = "from fedsuplin.__main__ import main; main()"


PRESSED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Pressed:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Pressed)
{start}
"""  # Ctrl-C at the moment when a module is looked for


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("click", "variants"),
        ("numpy", "variants"),
        ("scipy", "run"),
        ("fedsuplin_ext.loop", "run"),
        ("fedsuplin.cli.main", "variants"),
        ("fedsuplin.cli.variants", "variants"),
        ("fedsuplin.cli.run", "run"),
        ("fedsuplin.federation", "serve"),
    ],
)
def test_ctrl_c_during_an_import_ends_the_command_quietly(started, module, command):
    done = started(PRESSED.format(module=module, start=START), command)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_ctrl_c_that_an_import_swallows_ends_the_command_too(started):
    """NumPy does so if Ctrl-C comes while its C code imports something."""
    swallowed = PRESSED.replace(
        "os.kill(os.getpid(), signal.SIGINT)",
        """
            try:
                os.kill(os.getpid(), signal.SIGINT); [None for _ in range(1000)]
            except KeyboardInterrupt:
                raise ImportError('lost')""",
    )
    done = started(swallowed.format(module="numpy", start=START), "variants")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_a_background_job_ignores_ctrl_c(started):
    ignored = PRESSED.replace("signal.default_int_handler", "signal.SIG_IGN")
    done = started(ignored.format(module="numpy", start=START), "variants", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)


@pytest.mark.parametrize("command", ["variants", "plugins"])
def test_ctrl_c_is_restored_once_the_command_is_imported(started, command):
    """A command that runs gets KeyboardInterrupt again, so that it can keep what it has."""
    code = f"""
import signal
from fedsuplin.cli import {command} as module
from fedsuplin.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)
def print_handler(*_):
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
module.print_json = print_handler
main()
"""
    assert started(code, command, "--json").stdout == "True\n"


def test_the_installed_command_and_python_m_start_in_main():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["fedsuplin"] == "fedsuplin.__main__:main"
    done = subprocess.run(
        [sys.executable, "-m", "fedsuplin", "variants", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)[0]["name"]


def test_what_is_imported_before_ctrl_c_is_caught_is_small(started):
    code = "import sys; before = set(sys.modules); import fedsuplin.__main__;"
    code += "print(*sorted(name for name in set(sys.modules) - before if '.' not in name))"
    imported = set(started(code).stdout.split())
    assert "fedsuplin" in imported and not imported & {"click", "numpy", "scipy", "rich"}


MODULES = START.replace("main()", "import atexit, sys\n") + (
    "atexit.register(lambda: print('MODULES', *sys.modules))\nmain()"
)


def test_a_plain_run_imports_nothing_that_it_does_not_use(started):
    """SciPy's linear algebra alone takes longer to import than everything else in a short run."""
    done = started(MODULES, "run", "--horizon", "100")
    imported = set(done.stdout.rpartition("MODULES ")[2].split())
    assert {"fedsuplin.cli.run", "numpy", "rich.table"} <= imported
    assert not imported & {
        "scipy.linalg",
        "numpy.f2py",
        "numpy.ma",
        "pandas",
        "joblib",
        "asyncio",
        "matplotlib",
    }


@pytest.mark.parametrize(("given", "used"), [(None, "10"), ("26", "26")])
def test_idle_threads_of_openblas_sleep_unless_the_user_says_otherwise(
    started, monkeypatch, given, used
):
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", given)
    code = MODULES.replace("*sys.modules", "__import__('os').environ['OPENBLAS_THREAD_TIMEOUT']")
    assert started(code, "variants").stdout.endswith(f"MODULES {used}\n")
