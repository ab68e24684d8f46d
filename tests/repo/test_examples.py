"""The examples and a package of `plugins new`, as a new user has them.

They are installed into a fresh environment with a wheel of fedsuplin, as their READMEs describe.
Each example is copied first, so nothing is built in its folder. The wheel is built in the build/
folder of this repository, which is quick if fedsuplin was installed from here before.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What an earlier installation may have left in the folder of an example.
BUILT = shutil.ignore_patterns("build", "*.egg-info", "*.c", "*.so", "__pycache__")
SCRIPTS = "Scripts" if sys.platform == "win32" else "bin"
SMALL = ("--dim", "5", "--arms", "5", "--clients", "4", "--horizon", "2000")
VARIANTS = {
    "fedsuplin-demo": "frugal",
    "fedsuplin-estimated-variance": "estimated-variance",
    "fedsuplin-gossip": "gossip",
}
NEW = "fedsuplin-gossip"
packages = pytest.mark.parametrize("package", VARIANTS)
pytestmark = pytest.mark.compiles  # fedsuplin, and an example in Cython


@dataclass
class Environment:
    """A virtual environment; `folder` has it, and one folder for each package installed in it."""

    folder: Path

    def run(self, *command, cwd=None, **variables):
        """Run a command, which must succeed; return the finished process."""
        path = os.pathsep.join([str(self.folder / "venv" / SCRIPTS), os.environ["PATH"]])
        left_out = {"PYTHONPATH", "PYTHONHOME"}
        if any(word == "pip" or word.startswith("pip ") for word in map(str, command)):
            # The sanitizer build preloads a library. pip and compilers run nothing of ours, and
            # would take minutes with it.
            left_out.add("LD_PRELOAD")
        kept = {key: value for key, value in os.environ.items() if key not in left_out}
        environment = (
            kept | {"PATH": path, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"} | variables
        )
        command = [shutil.which(command[0], path=path), *map(str, command[1:])]
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def numbers(self, *command, **variables):
        """Return what a command prints with --json."""
        return json.loads(self.run("fedsuplin", *command, "--json", **variables).stdout)

    def follow(self, package, *, installing):
        """Run the commands of a package's README: those that install it, or the others."""
        block = re.search(
            r"```bash\n(.*?)```",
            (self.folder / package / "README.md").read_text(encoding="utf-8"),
            re.DOTALL,
        )
        for line in block[1].splitlines():
            if line.startswith("pip install") == installing:
                self.run("bash", "-c", line, cwd=self.folder / package)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    made = Environment(tmp_path_factory.mktemp("environment"))
    # A package may lie within another project, as the examples do in ours; its tests must not
    # take the options of that project.
    (made.folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "--an-option-of-another-project"\n'
    )
    subprocess.run([sys.executable, "-m", "venv", made.folder / "venv"], check=True)
    made.run("python", "-m", "pip", "install", "setuptools>=77", "cython>=3.1", "wheel")
    make_old((made.folder / "venv").rglob("Cython/Includes/**/*.pxd"))
    wheels = made.folder / "wheels"
    made.run(
        "python",
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        wheels,
        ROOT,
    )
    made.run("python", "-m", "pip", "install", *wheels.glob("fedsuplin-*.whl"))
    made.run("fedsuplin", "plugins", "new", NEW)
    for package in VARIANTS:
        if package != NEW:
            shutil.copytree(ROOT / "examples" / package, made.folder / package, ignore=BUILT)
        made.follow(package, installing=True)
    return made


def make_old(files):
    """Make files older than what is compiled from them, so that the core is not compiled again."""
    for file in files:
        os.utime(file, (0, 0))


@packages
def test_the_commands_of_the_readme_work_after_installing(environment, package):
    environment.follow(package, installing=False)


@packages
def test_its_variant_runs_by_name_and_learns(environment, package):
    printed = environment.numbers("run", VARIANTS[package], *SMALL)
    assert printed["complete"] and printed["played"] == 2000
    assert printed["variant"] == VARIANTS[package] and not printed["guarantee"]
    assert 0 < printed["communication"] < 2000
    assert math.isfinite(printed["regret"]) and 0 < printed["percent_of_uniform"] < 50
    again = environment.numbers("run", VARIANTS[package], *SMALL)
    assert [again[key] for key in ("regret", "layer_pulls")] == [
        printed[key] for key in ("regret", "layer_pulls")
    ]


def test_parameters_of_a_plugin_reach_it_and_its_state_counts(environment):
    printed = environment.numbers("run", "frugal", *SMALL, "--set", "limit=3")
    assert printed["spec"]["algorithm"]["trigger"] == {
        "name": "budgeted",
        "type": "Budgeted",
        "parameters": {"C": 1.0, "limit": 3.0},
    }
    assert (
        printed["communication"]
        == 3 * 4
        < environment.numbers("run", "frugal", *SMALL)["communication"]
    )


def test_parts_of_different_packages_mix(environment):
    parts = ("--trigger", "budgeted", "--weighting", "estimated-variance")
    algorithm = environment.numbers("run", "sync", *SMALL, *parts)["spec"]["algorithm"]
    assert [algorithm[axis]["name"] for axis in ("trigger", "weighting")] == [
        "budgeted",
        "estimated-variance",
    ]


@packages
def test_the_list_has_package_version_entry_point_and_hooks(environment, package):
    printed = environment.numbers("plugins")
    (source,) = [source for source in printed["sources"] if source["package"] == package]
    assert source["version"] == "0.1.0" and source["error"] is None
    assert {"fedsuplin_register_variants", "fedsuplin_register_weightings"} <= set(source["hooks"])
    assert ["variants", VARIANTS[package]] in source["registered"]
    (row,) = [
        row
        for row in printed["plugins"]
        if (row["kind"], row["name"]) == ("variant", VARIANTS[package])
    ]
    assert (row["package"], row["version"]) == (package, "0.1.0") and row["what"]
    assert f"{package} 0.1.0" in environment.run("fedsuplin", "plugins").stdout


BROKEN = {
    "import": (
        "import nowhere_to_be_found",
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    ),
    "misspelt": (
        "from fedsuplin.plugin import hookimpl\n"
        "@hookimpl\ndef fedsuplin_register_trigers(register):\n    pass",
        "unknown hook 'fedsuplin_register_trigers'. Did you mean 'fedsuplin_register_triggers'?",
    ),
    "taken": (
        "from fedsuplin.plugin import Variant, hookimpl\n"
        "@hookimpl\ndef fedsuplin_register_variants(register):\n    register('frugal', Variant)",
        "variant 'frugal' is already registered by plugin 'demo' of package fedsuplin-demo 0.1.0",
    ),
}


def install_by_hand(folder, name, source):
    """Write a module and the metadata of its package, without pip."""
    (folder / f"{name}_module.py").write_text(source)
    note = folder / f"x_{name}-3.1.dist-info"
    note.mkdir()
    (note / "METADATA").write_text(f"Metadata-Version: 2.1\nName: x-{name}\nVersion: 3.1\n")
    (note / "entry_points.txt").write_text(f"[fedsuplin]\nthing = {name}_module\n")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_package_gives_one_clear_warning_and_the_rest_works(environment, tmp_path, name):
    source, reason = BROKEN[name]
    install_by_hand(tmp_path, name, source)
    done = environment.run("fedsuplin", "run", "frugal", *SMALL, "--json", PYTHONPATH=str(tmp_path))
    assert json.loads(done.stdout)["complete"]
    (warning,) = done.stderr.splitlines()
    assert warning.startswith(f"Warning: plugin 'thing' of package x-{name} 3.1 was left out: ")
    assert reason in warning


def test_the_list_has_every_broken_package_with_its_reason_and_no_warning(environment, tmp_path):
    for name, (source, _) in BROKEN.items():
        install_by_hand(tmp_path, name, source)
    failed = {
        source["package"]: source["error"]
        for source in environment.numbers("plugins", PYTHONPATH=str(tmp_path))["sources"]
        if source["error"]
    }
    done = environment.run("fedsuplin", "plugins", PYTHONPATH=str(tmp_path))
    listed = " ".join(done.stdout.split())
    assert done.stderr == ""
    assert set(failed) == {f"x-{name}" for name in BROKEN}
    for name, (_, reason) in BROKEN.items():
        assert reason in failed[f"x-{name}"]
        assert (
            f"plugin 'thing' of package x-{name} 3.1 failed to load: {failed[f'x-{name}']}"
            in listed
        )
    assert environment.numbers("run", *SMALL, PYTHONPATH=str(tmp_path))["complete"]
