"""Every public name, in the groups of the API pages. This is the one list: add a new name here.

`docs/tools/api_pages.py` makes the pages from it, and `tests/test_site.py` compares it with
`fedsuplin.__all__`, `fedsuplin.plugin.__all__` and `fedsuplin.testing.__all__`.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A table of names, each with its module: `fedsuplin.run`."""

    title: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """A page of tables."""

    title: str
    summary: str
    sections: tuple[Section, ...]


def within(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names)


def everything_in(module: str) -> tuple[str, ...]:
    """The names in the `__all__` of a module; none if there is no such module."""
    if importlib.util.find_spec(module) is None:
        return ()
    return within(module, *importlib.import_module(module).__all__)


GROUPS = {
    "running": Group(
        "Running",
        "Play one policy, compare several, or run a grid of them.",
        (
            Section("Functions", within("fedsuplin", "run", "compare", "sweep", "make")),
            Section(
                "Algorithms",
                within("fedsuplin", "Algorithm", "Variant", "Setting", "Doubling"),
            ),
            Section("Version", within("fedsuplin", "__version__")),
        ),
    ),
    "problems": Group(
        "Problems",
        "What is played: drawn at random, or made from your own data.",
        (
            Section(
                "Synthetic problems",
                within("fedsuplin", "SyntheticProblem", "FixedArmsProblem"),
            ),
            Section(
                "Problems from data",
                within(
                    "fedsuplin",
                    "ArrayProblem",
                    "problem_from_table",
                    "ClassificationProblem",
                    "DigitsProblem",
                    "MovieLensProblem",
                ),
            ),
            Section("Protocols", within("fedsuplin", "Problem", "Stream", "Chunk")),
        ),
    ),
    "results": Group(
        "Results",
        "What `run`, `compare` and `sweep` return.",
        (Section("Classes", within("fedsuplin", "RunResult", "Comparison", "SweepResult")),),
    ),
    "live": Group(
        "Live clients and servers",
        "The same algorithms outside of a simulation, in one process or over a network.",
        (
            Section("In one process", within("fedsuplin", "Client", "Decision", "Server")),
            Section(
                "Over a network",
                within("fedsuplin", "connect", "Connection", "connect_async", "AsyncConnection"),
            ),
        ),
    ),
    "plugins": Group(
        "Plugins",
        "What a package needs to register rules, policies and problems, and to test them.",
        (
            Section("Registering", within("fedsuplin", "hookimpl")),
            Section("For plugin authors", everything_in("fedsuplin.plugin")),
            Section("Testing a plugin", everything_in("fedsuplin.testing")),
        ),
    ),
    "errors": Group(
        "Errors and warnings",
        "Every error that fedsuplin raises on purpose is a `FedsuplinError`.",
        (
            Section(
                "Errors",
                within(
                    "fedsuplin",
                    "FedsuplinError",
                    "InvalidInput",
                    "UnknownName",
                    "MissingExtra",
                    "NumericalError",
                    "PluginError",
                    "FederationError",
                ),
            ),
            Section(
                "Warnings",
                within("fedsuplin", "PluginWarning", "FederationWarning", "InterruptedRun"),
            ),
        ),
    ),
}


# Names of plain objects, whose docstring would be that of their type: type, and what it is.
DATA = {
    "fedsuplin.__version__": ("str", "The version of the installed package."),
    "fedsuplin.hookimpl": (
        "pluggy.HookimplMarker",
        "Decorator that marks a function of a plugin as the implementation of a hook.",
    ),
    "fedsuplin.testing.CHECKS": (
        "dict",
        "The checks of each kind of plugin: lists of functions, which `check` calls in order.",
    ),
}


def listed() -> list[str]:
    """All names, in the order of the pages; a name that stands in two tables comes twice."""
    sections = (section for group in GROUPS.values() for section in group.sections)
    return [name for section in sections for name in section.names]


def resolved(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
