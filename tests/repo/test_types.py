"""Types are complete and right: mypy and ruff find nothing, stubs agree with compiled modules."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parents[2]
STUBS = ROOT / "ext/fedsuplin_ext"
PACKAGES = ("fedsuplin", "fedsuplin_ext", "fedsuplin_plugins")

# What stubtest would have in the stubs, and why it is not there.
ALLOWED = r"""
fedsuplin_ext\..+\.__pyx_capi__  # the table of C functions, for cimport and from_cython
fedsuplin_ext\..+\.__test__  # Cython's list of doctests, which is empty
fedsuplin_ext\..+\.__(reduce|setstate)_cython__  # how Cython says that something can't be pickled
fedsuplin_ext\.(draws\.ContextSource|live\.Live)  # no @disjoint_base: older mypy has none
fedsuplin_ext\.(loop\.Engine|pool\.Pool|rules\.Rule|measure\.CallCounter|stages\.\w+)  # likewise
"""

# Code of a user. Each `type: ignore` is a mistake that mypy must find: under --strict one that is
# not needed is an error.
DOWNSTREAM = """
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import fedsuplin as fsl
from fedsuplin.plugin import Chunk, Problem, Stream, hookimpl

algorithm = fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=100, alpha_scale=0.5)
assert_type(algorithm, fsl.Algorithm)
assert_type(algorithm.radii, NDArray[np.float64])
assert_type(fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=None), fsl.Doubling)


def either(horizon: int | None) -> fsl.Algorithm | fsl.Doubling:
    return fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=horizon)


def wrong(folder: Path) -> None:
    fsl.make("async", dim="4", n_arms=5, n_clients=2, horizon=100)  # type: ignore[call-overload]
    fsl.make("oful", dim=4, n_arms=5, n_clients=2, horizon=None).radii  # type: ignore[attr-defined]
    fsl.run("async", problem, horizon="long")  # type: ignore[arg-type]
    fsl.RunResult.load(3)  # type: ignore[arg-type]
    result.save(folder / "run.npz").undone  # type: ignore[attr-defined]


problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, noise_scale=0.1, seed=0)
result = fsl.run(algorithm, problem, record="all")
assert_type(result, fsl.RunResult)
assert_type(result.regret, NDArray[np.float64])
assert_type(result.communication, NDArray[np.int64])
assert_type(result.arms, NDArray[np.int32] | None)
assert_type(fsl.run(either(None), problem, horizon=100), fsl.RunResult)

client, server = fsl.Client(algorithm, client_id=0), fsl.Server(algorithm)
decision = client.select(np.eye(5, 4))
assert_type(decision, fsl.Decision)
client.observe(decision, 0.5)
client.apply(server.merge(client.upload()))

found = fsl.compare(["oful", "uniform"], problem, seeds=2, horizon=50)
assert_type(found, fsl.Comparison)
assert_type(found.last("oful", "regret"), NDArray[np.float64])
try:
    fsl.make("assync", dim=4, n_arms=5, n_clients=2, horizon=100)
except fsl.FedsuplinError as error:
    assert_type(error.result, fsl.RunResult | None)


class Coins(Problem):
    dim, n_arms, n_clients = 1, 2, 1

    def stream(self, horizon: int, arrival: Any) -> Stream:
        return CoinsStream()


class CoinsStream(Stream):
    def take(self, n: int) -> Chunk:
        return Chunk.of(np.full((n, 2, 1), 0.5), np.zeros(n), rewards=np.eye(2)[np.zeros(n, int)])


assert_type(fsl.run("oful", Coins(), horizon=20).n_pulls, int)


@hookimpl
def fedsuplin_register_problems(register: Callable[[str, Any], None]) -> None:
    register("coins", Coins)
"""


def run_tool(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a tool, and return its output, with its exit code if that is not 0."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", *map(str, command)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


# --- the tree -------------------------------------------------------------------------------------


def test_mypy_finds_nothing(tmp_path):
    assert run_tool("mypy", "--cache-dir", tmp_path).startswith("Success: no issues found")


def test_mypy_looks_at_both_packages_and_the_stubs(tmp_path):
    """What the test above does would be little, if it were of little."""
    for package in ("fedsuplin", "plugins", "ext/fedsuplin_ext", "tests/stubs"):
        shutil.copytree(
            ROOT / package,
            tmp_path / package,
            ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"),
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    wrong = "\ndef twice(value):\n    return value\n"
    for file in ("fedsuplin/federation/plan.py", "plugins/noise.py", "ext/fedsuplin_ext/pool.pyi"):
        with (tmp_path / file).open("a", encoding="utf-8") as out:
            out.write(wrong)
    found = run_tool("mypy", "--cache-dir", tmp_path / "cache", cwd=tmp_path)
    assert sorted(
        re.findall(
            r"^([\w/.]+):\d+: error: Function is missing a type annotation", found, re.MULTILINE
        )
    ) == [
        "ext/fedsuplin_ext/pool.pyi",
        "fedsuplin/federation/plan.py",
        "plugins/noise.py",
    ]


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_finds_nothing(command):
    found = run_tool("ruff", *command, "--no-cache", ".")
    assert "exit code" not in found, found


# --- the stubs ------------------------------------------------------------------------------------


def test_every_compiled_module_has_a_stub():
    assert {path.stem for path in STUBS.glob("*.pyx")} == {
        path.stem for path in STUBS.glob("*.pyi")
    }


def test_stubs_name_what_the_modules_have(tmp_path):
    """The stub and the module have the same names, and the same parameters where they are known."""
    allowed = tmp_path / "allowed.txt"
    allowed.write_text(ALLOWED, encoding="utf-8")
    modules = [f"fedsuplin_ext.{path.stem}" for path in sorted(STUBS.glob("*.pyi"))]
    how = (
        "--mypy-config-file",
        "pyproject.toml",
        "--allowlist",
        allowed,
        "--ignore-unused-allowlist",
    )
    assert (
        run_tool("mypy.stubtest", *modules, *how)
        == f"Success: no issues found in {len(modules)} modules\n"
    )


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(STUBS.glob("*.pyx")) if "cdef class" in path.read_text("utf-8")],
)
def test_stubs_make_compiled_classes_as_their_source_does(path):
    """A class in C does not tell what it is made with: so from its source."""
    source = path.read_text(encoding="utf-8")
    classes = {
        node.name: next(
            each for each in node.body if getattr(each, "name", "") in ("__init__", "__new__")
        )
        for node in ast.parse(path.with_suffix(".pyi").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    for name, made in re.findall(
        r"^cdef class (\w+)(?:(?!^cdef class).)*?def __c?init__\(\s*self, (.*?)\s*\):",
        source,
        re.MULTILINE | re.DOTALL,
    ):
        expected = [
            re.sub(r"=.*", "", part).split()[-1] for part in re.split(r",\s+", made.rstrip(","))
        ]
        arguments = classes[name].args
        star = ["*"] if arguments.kwonlyargs else []
        rest = [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
        assert [each.arg for each in arguments.args[1:]] + star + [
            each.arg for each in arguments.kwonlyargs
        ] + rest == expected, name


# --- as others see it -----------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package):
    (folder,) = importlib.util.find_spec(package).submodule_search_locations
    assert Path(folder, "py.typed").is_file()


def test_what_one_writes_with_fedsuplin_has_the_types_that_one_expects(tmp_path):
    site = tmp_path / "site"
    for package, folder in zip(
        PACKAGES, ("fedsuplin", "ext/fedsuplin_ext", "plugins"), strict=True
    ):
        shutil.copytree(
            ROOT / folder,
            site / package,
            ignore=shutil.ignore_patterns("*.so", "*.c", "*.h", "__pycache__"),
        )
    (tmp_path / "downstream.py").write_text(DOWNSTREAM, encoding="utf-8")
    how = ("--strict", "--config-file=", "--cache-dir", tmp_path / "cache")
    found = run_tool("mypy", *how, "downstream.py", cwd=tmp_path, PYTHONPATH=str(site))
    assert found == "Success: no issues found in 1 source file\n"


def test_that_runs_too():
    exec(compile(DOWNSTREAM, "downstream.py", "exec"), {"__name__": "downstream"})


@pytest.mark.parametrize("variant", ["async", "sync", "fed-pe"])
def test_arrays_of_a_result_are_what_their_hints_say(variant):
    """Also where it is loaded, and where a run was put together of epochs."""
    kind = fsl.FixedArmsProblem if variant == "fed-pe" else fsl.SyntheticProblem
    problem = kind(dim=3, n_arms=4, n_clients=2, seed=0)
    unknown = fsl.make(variant, dim=3, n_arms=4, n_clients=2, horizon=None)
    results = [
        fsl.run(variant, problem, horizon=60, record="all"),
        fsl.run(unknown, problem, horizon=3000, record="all"),
    ]
    for result in results:
        check_hints(result)
    check_hints(problem.stream(60, None).take(5))
    algorithm = fsl.make(variant, dim=3, n_arms=4, n_clients=2, horizon=60)
    assert algorithm.radii.dtype == algorithm.target_widths.dtype == np.float64


def check_hints(found):
    for name, hint in typing.get_type_hints(type(found)).items():
        dtypes = re.findall(r"numpy\.dtype\[numpy\.(\w+)\]", str(hint))
        value = getattr(found, name)
        if dtypes and value is not None:
            assert [value.dtype.name] == dtypes, name
        assert value is not None or "None" in str(hint), name
