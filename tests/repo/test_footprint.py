"""What the core costs whoever installs it: packages, megabytes, and the time of an import, as the README states it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
STATED = re.search(
    r"(?P<direct>\d+) packages \((?P<all>\d+) with what those need\), takes (?P<megabytes>[\d.]+) MB\s+and adds at most "
    r"(?P<share>\d+) % to the time of `import numpy, scipy\.linalg`",
    README,
)
DIRECT = {"numpy", "scipy", "pluggy", "click", "rich"}
THEIRS = {"markdown-it-py", "mdurl", "pygments"}
OURS = ("fedsuplin", "fedsuplin_ext", "fedsuplin_plugins")
KEPT = (".py", ".pyi", ".pxd", ".h", ".typed", sysconfig.get_config_var("EXT_SUFFIX"))


def stated(what: str) -> float:
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
    """What a wheel puts into the environment: as pip noted it, or, of an editable installation, what it would put there."""
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
        f"{megabytes:.2f} MB. In a tree whose C is older than setup.py: rm ext/fedsuplin_ext/*.c, and build again"
    )


def in_a_fresh_process(code: str) -> str:
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
        "scipy.stats",
        "scipy.optimize",
    }
    assert in_a_fresh_process(f"import sys, fedsuplin; print({slow} & set(sys.modules))") == "set()"


@pytest.mark.measures("a checked library loads slowly")
def test_importing_fedsuplin_adds_no_more_than_the_readme_says() -> None:
    """In one process one after the other, so that both are measured on the same machine in the same mood; the best of seven."""
    code = """
import time
began = time.perf_counter()
import numpy, scipy.linalg
between = time.perf_counter()
import fedsuplin
print((time.perf_counter() - between) / (between - began))
"""
    assert any(100 * float(in_a_fresh_process(code)) < stated("share") for _ in range(7))
