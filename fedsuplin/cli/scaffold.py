"""The plugin package that `fedsuplin plugins new` writes."""

from __future__ import annotations

import keyword
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from string import Template

from .._shared.text import normalise_package_name
from .._shared.version import __version__
from ..errors import InvalidInput
from ..registry import SINGULAR, plugins

DISTRIBUTION_NAME = re.compile(r"[a-z0-9]|[a-z0-9][a-z0-9._-]*[a-z0-9]", re.IGNORECASE | re.ASCII)
STAGING = ".fedsuplin-new-"  # the name of the folder until it is complete
REGISTERED_KINDS = ("triggers", "weightings", "variants")
NEXT_COMMANDS = ('pip install -e ".[test]"', "pytest", "fedsuplin run {name}")


def write_package(name: str, folder: Path) -> Path:
    """Write the new plugin package `name` into a folder of that name: all of its files, or none."""
    check_package_name(name)
    target = folder / name
    if target.exists() or target.is_symlink():
        raise InvalidInput(f"{target} already exists: choose another name, or another --folder")
    try:
        with tempfile.TemporaryDirectory(prefix=STAGING, dir=folder) as staging:
            write_package_files(name, Path(staging) / name)
            (Path(staging) / name).rename(target)
    except OSError as error:
        if STAGING not in str(error.filename or STAGING):
            raise
        # Name the user's folder, not our temporary one.
        raise OSError(error.errno, error.strerror, str(target)) from error
    return target


def write_package_files(name: str, folder: Path) -> None:
    """Write every file of a new plugin package into a folder."""
    for path, text in fill_templates(name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def list_next_steps(name: str) -> list[str]:
    """Return the commands that install, test and run a new plugin package, in its folder."""
    return [command.format(name=derive_registered_name(name)) for command in NEXT_COMMANDS]


def check_package_name(name: str) -> None:
    """Refuse a name that a new plugin package can't have, and suggest one that it can."""
    reason = find_name_problem(name)
    if reason is not None:
        suggestion = suggest_name(name)
        raise InvalidInput(
            f"a plugin package can't be named {name!r}: {reason}. {suggestion!r} would be right"
        )


def find_name_problem(name: str) -> str | None:
    """Return why a new plugin package can't have a name, or None if it can."""
    if not DISTRIBUTION_NAME.fullmatch(name):
        return "it must be letters and digits, with '-', '_' and '.' between them"
    module = derive_module_name(name)
    if not module.isidentifier() or keyword.iskeyword(module):
        return f"its module would be {module!r}, which Python can't import"
    if module in sys.stdlib_module_names:
        return f"its module would hide Python's own {module!r}"
    if is_importable(module):
        return f"a module {module!r} is already installed"
    registered = derive_registered_name(name)
    for kind in REGISTERED_KINDS:
        if registered in plugins.names(kind):
            owner = plugins.find_owner(kind, registered)
            return f"the {SINGULAR[kind]} {registered!r} is already registered by {owner}"
    return None


def suggest_name(name: str) -> str:
    """Return a name that a new plugin package can have, close to a given one."""
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
    """Return whether a module of the new package's name can be imported already.

    An empty folder in sys.path does not count.
    """
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def derive_module_name(name: str) -> str:
    """Return the name of the module in a new plugin package."""
    return normalise_package_name(name).replace("-", "_")


def derive_registered_name(name: str) -> str:
    """Return the name of a new package's plugins: those of fedsuplin-gossip are named `gossip`."""
    return normalise_package_name(name).removeprefix("fedsuplin-")


def fill_templates(name: str) -> dict[str, str]:
    """Return the text of every file of a new plugin package, by its path in it."""
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

Plugins for fedsuplin: a trigger, a weighting, and a variant made of both.
Each is named `$name`. Install, test and run them:

```bash
$commands
```

The installation is editable: change `src/$module/__init__.py` and run again.
The parts mix with all others, as in `fedsuplin run sync --trigger $name`.
`fedsuplin plugins` lists what is installed, and why something failed to load.

The guide of fedsuplin, `docs/plugins.md`, continues from here: rules with state, compiled rules,
and how to publish. `fedsuplin/contracts/protocols.py` has what a plugin of each kind has to offer,
and `fedsuplin/hookspecs.py` the hooks.
"""
MODULE = '''\
"""Plugins for fedsuplin: a trigger, a weighting and a variant made of both. Make them your own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsuplin.plugin import Variant, add_rounding_margin, hookimpl


@dataclass(frozen=True)
class GainOrSilence:
    """Sync when det(A+ΔA)/det(A) > 1 + C, or after `every` pulls without a sync.

    The client has then learnt enough, or was silent for too long.
    """

    C: float = 1.0
    every: int = 500

    def fires(self, gain: float, elapsed: float) -> bool:
        """Decide after each pull: `gain` is ln det(A+ΔA)/det(A), `elapsed` pulls since a sync."""
        return gain > add_rounding_margin(math.log1p(self.C)) or elapsed >= self.every


@dataclass(frozen=True)
class Discount:
    """Weigh observations by 1/(1 + discount·‖x‖): those in little known directions count less."""

    discount: float = 0.1

    def weight(self, norm: float, sigma: float) -> float:
        """Weigh one pull: `norm` is ‖x‖ in A⁻¹, `sigma` the noise level that was reported."""
        return 1 / (1 + self.discount * norm)


VARIANT = Variant(
    summary="async, with the trigger and the weighting of $package",
    trigger="$name",
    weighting="$name",
    presets={"practical": {"alpha_scale": 0.15, "ridge": 0.1}},
)


@hookimpl
def fedsuplin_register_triggers(register):
    """Register the trigger."""
    register("$name", GainOrSilence)


@hookimpl
def fedsuplin_register_weightings(register):
    """Register the weighting."""
    register("$name", Discount)


@hookimpl
def fedsuplin_register_variants(register):
    """Register the variant."""
    register("$name", VARIANT)
'''
TESTS = '''\
"""Everything that this package registers passes fedsuplin's checks of plugins."""

from fedsuplin.testing import conformance

test_conformance = conformance("$package")
'''
