"""What the core costs to install: packages, megabytes and import time, as the README states."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
STATED = re.search(
    r"(?P<direct>\d+) packages \((?P<all>\d+) with what those need\), "
    r"takes (?P<megabytes>[\d.]+) MB\s+and adds at most "
    r"(?P<share>\d+) % to the time of `import numpy, scipy\.linalg`",
    README,
)
DIRECT = {"numpy", "scipy", "pluggy", "click", "rich"}
THEIRS = {"markdown-it-py", "mdurl", "pygments"}
OURS = ("fedsuplin", "fedsuplin_ext", "fedsuplin_plugins")
KEPT = (".py", ".pyi", ".pxd", ".h", ".typed", sysconfig.get_config_var("EXT_SUFFIX"))


IMPORT_NUMPY = "import numpy"
IMPORT_LINEAR_ALGEBRA = "import numpy, scipy.linalg"
IMPORT_PUBLIC_NAMES = "import fedsuplin\nfor name in fedsuplin.__all__: getattr(fedsuplin, name)"


def stated(what: str) -> float:
    """A number that the README states."""
    assert STATED, "the README no longer says what the core costs"
    return float(STATED[what])


def needed_by(package: str) -> set[str]:
    """The packages that one needs here, without its extras."""
    found = map(Requirement, importlib.metadata.requires(package) or ())
    return {
        need.name.lower()
        for need in found
        if need.marker is None or need.marker.evaluate({"extra": ""})
    }


def test_the_core_needs_the_packages_that_the_readme_counts() -> None:
    found: set[str] = set()
    ahead = needed_by("fedsuplin")
    assert ahead == DIRECT and len(DIRECT) == stated("direct")
    while ahead:
        found |= ahead
        ahead = set().union(*map(needed_by, ahead)) - found
    here_only = {"colorama"} if sys.platform == "win32" else set()
    assert found == DIRECT | THEIRS | here_only and len(DIRECT | THEIRS) == stated("all")


def installed_files() -> list[Path]:
    """What a wheel puts into the environment, by pip's record or, if editable, by our folders."""
    noted = importlib.metadata.files("fedsuplin") or []
    if {"RECORD", "__init__.py"} <= {file.name for file in noted}:
        return [Path(str(file.locate())) for file in noted if "__pycache__" not in file.parts]
    specs = [importlib.util.find_spec(name) for name in OURS]
    folders = [
        Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()
    ]
    assert len(folders) == len(OURS)
    return [file for folder in folders for file in folder.rglob("*") if file.name.endswith(KEPT)]


@pytest.mark.measures("checked code is larger")
def test_the_core_takes_the_room_that_the_readme_says() -> None:
    files = installed_files()
    assert not [file for file in files if file.suffix == ".c" or "tests" in file.parts]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    assert 0.6 * stated("megabytes") < megabytes < 1.15 * stated("megabytes"), (
        f"{megabytes:.2f} MB. In a tree whose C is older than setup.py: "
        "rm ext/fedsuplin_ext/*.c, and build again"
    )


def in_a_fresh_process(code: str) -> str:
    """What a new Python prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_fedsuplin_loads_no_optional_or_slow_package() -> None:
    slow = {
        "matplotlib",
        "pandas",
        "numba",
        "pytest",
        "click",
        "rich",
        "hypothesis",
        "asyncio",
        "scipy.stats",
        "scipy.optimize",
    }
    code = f"import sys\n{IMPORT_PUBLIC_NAMES}\nprint({slow} & set(sys.modules))"
    assert in_a_fresh_process(code) == "set()"


MEASURE = """
import resource

def measure():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

{base}
before = measure()
{more}
print(before, measure() - before)
"""


def is_within(ratio: float, base: str, more: str, bytecode: Path) -> bool:
    """Whether a process that runs `more` after `base` needs at most so many times the CPU time.

    Both are measured in one process, one after the other, since other work on the machine slows
    them alike. The best time of each over several turns counts, and the first turn, which writes
    the bytecode, does not. A quiet machine needs three turns.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", MEASURE.format(base=base, more=more)]
    turns: list[list[float]] = []
    for turn in range(21):
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        turns += [[float(seconds) for seconds in done.stdout.split()]] if turn else []
        if len(turns) >= 3:
            best_base, best_more = (min(times) for times in zip(*turns, strict=True))
            if best_base + best_more <= ratio * best_base:
                return True
    return False


@pytest.mark.posix
@pytest.mark.measures("a checked library loads slowly")
def test_importing_fedsuplin_costs_little_more_than_importing_numpy(tmp_path: Path) -> None:
    assert is_within(1.25, IMPORT_NUMPY, "import fedsuplin", tmp_path)


@pytest.mark.posix
@pytest.mark.measures("a checked library loads slowly")
def test_importing_every_public_name_adds_no_more_than_the_readme_says(tmp_path: Path) -> None:
    ratio = min(1.15, 1 + stated("share") / 100)
    assert is_within(ratio, IMPORT_LINEAR_ALGEBRA, IMPORT_PUBLIC_NAMES, tmp_path)
