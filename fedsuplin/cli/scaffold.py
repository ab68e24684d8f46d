"""What `fedsuplin plugins new NAME` writes: a plugin package in plain Python that installs, passes its tests and runs."""

from __future__ import annotations

import keyword
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from string import Template

from .._shared.version import __version__
from ..errors import InvalidInput
from ..registry import SINGULAR, plugins

DISTRIBUTION_NAME = re.compile(r"[a-z0-9]|[a-z0-9][a-z0-9._-]*[a-z0-9]", re.IGNORECASE | re.ASCII)
STAGING = ".fedsuplin-new-"  # how the folder is called until all is in it
REGISTERED_KINDS = ("triggers", "weightings", "variants")
NEXT_COMMANDS = ('pip install -e ".[test]"', "pytest", "fedsuplin run {name}")


def write_package(name: str, folder: Path) -> Path:
    """The package `name` in a new folder of that name: all of its files, or, if anything goes wrong, none."""
    check_package_name(name)
    target = folder / name
    if target.exists() or target.is_symlink():
        raise InvalidInput(f"{target} is already there: choose another name, or another --folder")
    try:
        with tempfile.TemporaryDirectory(prefix=STAGING, dir=folder) as staging:
            write_package_files(name, Path(staging) / name)
            (Path(staging) / name).rename(target)
    except OSError as error:
        if STAGING not in str(error.filename or STAGING):
            raise
        raise OSError(
            error.errno, error.strerror, str(target)
        ) from error  # not a name that nobody asked for
    return target


def write_package_files(name: str, folder: Path) -> None:
    for path, text in fill_templates(name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def list_next_steps(name: str) -> list[str]:
    """The commands to install, test and run it, in its folder."""
    return [command.format(name=derive_registered_name(name)) for command in NEXT_COMMANDS]


def check_package_name(name: str) -> None:
    reason = find_name_problem(name)
    if reason is not None:
        raise InvalidInput(
            f"{name!r} is no name for a plugin package: {reason}. {suggest_name(name)!r} would be right"
        )


def find_name_problem(name: str) -> str | None:
    """Why a package can't have this name; None where it can."""
    if not DISTRIBUTION_NAME.fullmatch(name):
        return "it must be letters and digits, with '-', '_' and '.' between them"
    module = derive_module_name(name)
    if not module.isidentifier() or keyword.iskeyword(module):
        return f"its module would be {module!r}, which Python can't import"
    if module in sys.stdlib_module_names:
        return f"its module would hide Python's own {module!r}"
    if is_importable(module):
        return f"a module {module!r} is already installed"
    for kind in REGISTERED_KINDS:
        if derive_registered_name(name) in plugins.names(kind):
            owner = plugins.find_owner(kind, derive_registered_name(name))
            return f"the {SINGULAR[kind]} {derive_registered_name(name)!r} is already registered by {owner}"
    return None


def suggest_name(name: str) -> str:
    """A name like the one that was meant, and fit."""
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    short = stem.removeprefix("fedsuplin").strip("-")
    return next(
        (
            like
            for like in (stem, f"fedsuplin-{short}", f"my-{short}")
            if find_name_problem(like) is None
        ),
        "my-plugin",
    )


def is_importable(module: str) -> bool:
    """A folder of that name where Python happens to run is no module yet: it has no file of its own."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def derive_module_name(name: str) -> str:
    return normalise_name(name).replace("-", "_")


def derive_registered_name(name: str) -> str:
    """What its plugins are called: fedsuplin-gossip has the trigger, the weighting and the variant `gossip`."""
    return normalise_name(name).removeprefix("fedsuplin-")


def fill_templates(name: str) -> dict[str, str]:
    """Every file of the package, by its path in it."""
    words = {
        "package": name,
        "module": derive_module_name(name),
        "name": derive_registered_name(name),
        "version": __version__,
        "commands": "\n".join(list_next_steps(name)),
    }
    templates = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"src/{words['module']}/__init__.py": MODULE,
        "tests/test_conformance.py": TESTS,
    }
    return {path: Template(text).substitute(words) for path, text in templates.items()}


PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$package"
version = "0.1.0"
description = "Plugins for fedsuplin"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["fedsuplin>=$version"]

[project.optional-dependencies]
test = ["pytest>=8"]

# fedsuplin imports this module and calls the hooks in it.
[project.entry-points.fedsuplin]
$name = "$module"

[tool.pytest.ini_options]
testpaths = ["tests"]
"""
README = """\
# $package

Plugins for fedsuplin: a trigger, a weighting and a variant made of both, each called `$name`. Install, test, run:

```bash
$commands
```

The installation is editable: change `src/$module/__init__.py` and run again. The parts mix with all others, as in
`fedsuplin run sync --trigger $name`; `fedsuplin plugins` lists what is installed, and says why something failed to load.

fedsuplin's guide, `docs/plugins.md`, goes on from here: rules that remember something, compiled ones, and how to publish. What a
plugin of each kind has to offer is in `fedsuplin/protocols.py`, which hooks there are in `fedsuplin/hookspecs.py`.
"""
MODULE = '''\
"""Plugins for fedsuplin: a trigger, a weighting and a variant made of both, to be changed into your own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsuplin import Variant, hookimpl
from fedsuplin.setting import exceeding


@dataclass(frozen=True)
class GainOrSilence:
    """det(A+ΔA)/det(A) > 1 + C, or no sync for `every` pulls: the client has learnt enough, or was silent for too long."""

    C: float = 1.0
    every: int = 500

    def fires(self, gain: float, elapsed: float) -> bool:
        """Asked after each pull. `gain` is ln det(A+ΔA)/det(A), `elapsed` the pulls since the last sync."""
        return gain > exceeding(math.log1p(self.C)) or elapsed >= self.every


@dataclass(frozen=True)
class Discount:
    """ω = 1/(1 + discount·‖x‖): an observation in a direction that little is known of counts for a little less."""

    discount: float = 0.1

    def weight(self, norm: float, sigma: float) -> float:
        """Asked at each pull. `norm` is ‖x‖ in A⁻¹, `sigma` the noise level that the client was told."""
        return 1 / (1 + self.discount * norm)


VARIANT = Variant(
    summary="async, with the trigger and the weighting of $package",
    trigger="$name",
    weighting="$name",
    presets={"practical": {"alpha_scale": 0.15, "ridge": 0.1}},
)


@hookimpl
def fedsuplin_register_triggers(register):
    register("$name", GainOrSilence)


@hookimpl
def fedsuplin_register_weightings(register):
    register("$name", Discount)


@hookimpl
def fedsuplin_register_variants(register):
    register("$name", VARIANT)
'''
TESTS = '''\
"""Everything that this package registers keeps what fedsuplin asks of a plugin."""

from fedsuplin.testing import conformance

test_conformance = conformance("$package")
'''
