"""Conformance tests of packages: the built-ins pass, and each check of each plugin is one test."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fedsuplin.errors import MissingExtra
from fedsuplin.testing import conformance
from fedsuplin.testing.subject import NotApplicable, make_registered_subject
from fedsuplin.testing.suite import (
    name_check,
    run_check,
    select_checks,
)

ARRAYS = {
    "contexts": np.random.default_rng(0).uniform(-0.5, 0.5, (40, 4, 3)),
    "clients": np.arange(40) % 2,
    "theta": [0.1, 0.2, 0.3],
    "mask": np.arange(160).reshape(40, 4) % 3 != 0,
}
MOVIES = tempfile.TemporaryDirectory()  # a made-up release: 30 movies, two users
atexit.register(MOVIES.cleanup)
WORDS = ["dark", "funny", "space", "ocean", "love", "war"]
for file, rows in {
    "movies.csv": [
        "movieId,title,genres",
        *(f"{i},Movie {i},{WORDS[i % 6]}|{WORDS[i % 5]}" for i in range(30)),
    ],
    "ratings.csv": [
        "userId,movieId,rating,timestamp",
        *(f"{u},{i},{2 + i % 4},0" for u in (7, 8) for i in range(12 + u)),
    ],
}.items():
    Path(MOVIES.name, file).write_text("\n".join(rows))

test_built_ins_conform = conformance(
    "fedsuplin",
    parameters={
        "movielens": {"folder": MOVIES.name, "dim": 3, "n_arms": 4, "most_active": 2},
        "digits": {"n_clients": 2},
        "synthetic": {"dim": 3, "n_arms": 4, "n_clients": 2},
        "array": ARRAYS,
        "fixed-arms": {"dim": 3, "n_arms": 4, "n_clients": 2, "own_arms": True},
        "weightings-corruption": {"corruption": 5.0},  # without, it is 1 whatever it is asked
        "corrupted": {"corruption": 5.0},
    },
)


def test_a_plugin_that_can_not_be_made_fails_one_check_and_skips_the_others():
    absent = make_registered_subject("noise_models", "gaussian", {"noise_scale": -1.0}, {})
    failed, skipped = [], []
    for claim in select_checks(absent):
        try:
            run_check(absent, claim)
        except AssertionError as error:
            failed.append((name_check(claim), str(error)))
        except NotApplicable as reason:
            skipped.append(str(reason))
    ((claim, message),) = failed
    assert claim == "can_be_made" and "noise_scale must be at least 0, not -1.0" in message
    assert len(skipped) > 3 and set(skipped) == {
        "noise model 'gaussian' can't be made: noise_scale must be at least 0, not -1.0"
    }


# --- packages -----------------------------------------------------------------------------

GOOD = """
from dataclasses import dataclass

from fedsuplin.plugin import hookimpl

@dataclass(frozen=True)
class Nightly:
    \"\"\"Every so many pulls.\"\"\"
    every: int
    def fires(self, gain, elapsed):
        return elapsed >= self.every

@hookimpl
def fedsuplin_register_triggers(register):
    register("nightly", Nightly)
"""
ODD = """
from fedsuplin.plugin import SyntheticProblem, hookimpl

class Renamed(SyntheticProblem):
    \"\"\"Its specification still has the name synthetic.\"\"\"
    def __init__(self, dim=2, n_arms=2, n_clients=1, **more):
        super().__init__(dim, n_arms, n_clients, **more)

@hookimpl
def fedsuplin_register_problems(register):
    register("renamed", Renamed)
"""
PACKAGES = {  # distribution, the modules that its entry points name
    "fedsuplin_good": {"good_plugin": GOOD},
    "fedsuplin_odd": {
        "odd_plugin": ODD,
        "broken_plugin": "raise ImportError('no module named numba')",
        "idle_plugin": "",
    },
    "fedsuplin_plain": {},
}
TESTS = """
from fedsuplin.testing import conformance

test_good = conformance("fedsuplin-good", parameters={"nightly": {"every": 20}})
test_default = conformance("Fedsuplin_Good")
test_misspelt = conformance(
    "fedsuplin-good", parameters={"triggers-nightly": {"every": 3}, "nightli": {"every": 20}}
)
test_odd = conformance("fedsuplin-odd")
test_plain = conformance("fedsuplin-plain")
test_absent = conformance("fedsuplin-absent")
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Return the output of pytest on those tests, with those packages installed.

    The packages are on the path as an installer leaves them, and warnings are errors.
    """
    folder = tmp_path_factory.mktemp("packages")
    for package, modules in PACKAGES.items():
        (folder / f"{package}-1.2.dist-info").mkdir()
        (folder / f"{package}-1.2.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n"
        )
        lines = [f"{module} = {module}" for module in modules]
        (folder / f"{package}-1.2.dist-info" / "entry_points.txt").write_text(
            "\n".join(["[fedsuplin]", *lines]) if lines else ""
        )
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
    (folder / "test_them.py").write_text(TESTS)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-W",
        "error",
        "-rA",
        "-p",
        "no:cacheprovider",
        "test_them.py",
    ]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def ended(outcome: str, how: str, test: str) -> list[str]:
    """Return the ids of a test function that passed, failed or were skipped."""
    return re.findall(rf"^{how} test_them.py::{test}\[(.*?)\]", outcome, re.M)


def test_each_check_of_each_plugin_is_a_test_of_its_own(outcome):
    passed = ended(outcome, "PASSED", "test_good")
    assert (
        "triggers-nightly-plays_like_the_reference" in passed
        and "entry_points-good_plugin-loads" in passed
    )
    assert ended(outcome, "FAILED", "test_good") == []
    # it has no compiled form, so there is nothing to compare
    assert "python_and_compiled_agree" not in " ".join(passed)


def test_a_plugin_that_needs_parameters_says_how_to_give_them(outcome):
    assert ended(outcome, "FAILED", "test_default") == ["triggers-nightly-can_be_made"]
    message = "trigger 'nightly' needs every: give every=…. "
    assert message + "Every parameter needs a default, or a value in" in outcome
    assert "conformance(…, parameters={'nightly': {…}})" in outcome


def test_parameters_for_an_unknown_plugin_are_a_failure(outcome):
    assert ended(outcome, "FAILED", "test_misspelt") == ["parameters-nightli-are_used"]
    assert (
        "parameters were given for 'nightli', but fedsuplin-good registers no plugin of this name"
        in outcome
    )


def test_an_entry_point_that_fails_or_registers_nothing_is_a_failure_and_the_rest_is_tested(
    outcome,
):
    failed = [
        "entry_points-broken_plugin-loads",
        "entry_points-idle_plugin-loads",
        "problems-renamed-specification_makes_it_again",
    ]
    assert ended(outcome, "FAILED", "test_odd") == failed
    package = "of package fedsuplin_odd 1.2"
    assert (
        f"plugin 'broken_plugin' {package} failed to load: ImportError: no module named numba"
        in outcome
    )
    assert f"plugin 'idle_plugin' {package} registers nothing: mark its functions" in outcome
    assert (
        "its specification has the name 'synthetic', but it is registered as 'renamed'" in outcome
    )
    assert "problems-renamed-plays_like_the_reference" in ended(outcome, "PASSED", "test_odd")


def test_a_package_without_plugins_or_not_installed_is_a_failure(outcome):
    assert ended(outcome, "FAILED", "test_plain") == ["fedsuplin-plain-is_installed"]
    message = "package 'fedsuplin-plain' 1.2 is installed, but registers nothing: "
    assert message + "it has no entry point in the group" in outcome
    assert ended(outcome, "FAILED", "test_absent") == ["fedsuplin-absent-is_installed"]
    assert "package 'fedsuplin-absent' is not installed for" in outcome


def test_without_pytest_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(MissingExtra, match="pip install pytest"):
        conformance("fedsuplin")
