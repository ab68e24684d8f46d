"""Every public name, in the groups of the API pages. This is the one list: add a new name here.

`docs/tools/api_pages.py` makes the pages from it, and `tests/repo/test_site.py` compares it with
what the modules in `DOORS` export. A name that two of them export has one page.
"""

from __future__ import annotations

import importlib
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


def qualify(module: str, *names: str) -> tuple[str, ...]:
    """Return the full names of some names of a module."""
    return tuple(f"{module}.{name}" for name in names)


GROUPS = {
    "running": Group(
        "Running",
        "Play one policy, compare several, or run a grid of them.",
        (
            Section(
                "Functions", qualify("fedsuplin", "run", "compare", "sweep", "make", "benchmark")
            ),
            Section("Algorithms", qualify("fedsuplin", "Algorithm", "Variant", "Doubling")),
            Section("Version", qualify("fedsuplin", "__version__")),
        ),
    ),
    "problems": Group(
        "Problems",
        "What is played: drawn at random, or made from your own data.",
        (
            Section(
                "Synthetic problems",
                qualify("fedsuplin", "SyntheticProblem", "FixedArmsProblem"),
            ),
            Section(
                "Problems from data",
                qualify(
                    "fedsuplin",
                    "ArrayProblem",
                    "problem_from_table",
                    "ClassificationProblem",
                    "DigitsProblem",
                    "MovieLensProblem",
                ),
            ),
        ),
    ),
    "results": Group(
        "Results",
        "What `run`, `compare` and `sweep` return.",
        (
            Section(
                "Classes",
                qualify("fedsuplin", "RunResult", "Comparison", "SweepResult", "Benchmark"),
            ),
        ),
    ),
    "live": Group(
        "Live clients and servers",
        "The same algorithms outside of a simulation, in one process or over a network.",
        (
            Section("In one process", qualify("fedsuplin", "Client", "Decision", "Server")),
            Section(
                "Over a network",
                qualify("fedsuplin", "connect", "Connection", "connect_async", "AsyncConnection"),
            ),
        ),
    ),
    "plugins": Group(
        "Plugins",
        "`fedsuplin.plugin` has everything that a plugin imports.",
        (
            Section("Registering", qualify("fedsuplin.plugin", "hookimpl", "Variant")),
            Section(
                "What each kind of plugin offers",
                qualify(
                    "fedsuplin.plugin",
                    "Trigger",
                    "StatefulTrigger",
                    "Weighting",
                    "StatefulWeighting",
                    "NoiseModel",
                    "Policy",
                    "StatefulPolicy",
                    "KernelPolicy",
                    "PhasedPolicy",
                    "Phases",
                    "Arrival",
                    "Stateful",
                    "Compiled",
                ),
            ),
            Section(
                "Problems",
                qualify(
                    "fedsuplin.plugin",
                    "Problem",
                    "Stream",
                    "Chunk",
                    "SyntheticProblem",
                    "FixedArmsProblem",
                    "ArrayProblem",
                    "ClassificationProblem",
                    "DigitsProblem",
                    "MovieLensProblem",
                ),
            ),
            Section(
                "Settings and checks",
                qualify(
                    "fedsuplin.plugin",
                    "Setting",
                    "add_rounding_margin",
                    "check_finite",
                    "check_not_negative",
                    "check_positive",
                    "check_positive_integer",
                    "check_probability",
                    "InvalidInput",
                    "PluginError",
                ),
            ),
            Section("Bounds", qualify("fedsuplin.plugin", "Claim", "Bound")),
            Section(
                "Optimal designs",
                qualify(
                    "fedsuplin.plugin",
                    "find_g_optimal_design",
                    "Design",
                    "find_multi_client_design",
                    "MultiDesign",
                ),
            ),
            Section(
                "Compiled code",
                qualify(
                    "fedsuplin.plugin",
                    "low_level",
                    "from_cython",
                    "formulas",
                    "keyed_permutation",
                ),
            ),
        ),
    ),
    "testing": Group(
        "Testing plugins",
        "`fedsuplin.testing` checks a plugin; `fedsuplin.reference` is the engine in plain NumPy.",
        (
            Section("Conformance", qualify("fedsuplin.testing", "check", "conformance")),
            Section(
                "The reference", qualify("fedsuplin.reference", "run_reference", "ReferenceResult")
            ),
        ),
    ),
    "errors": Group(
        "Errors and warnings",
        "Every error that fedsuplin raises on purpose is a `FedsuplinError`. "
        "They are in `fedsuplin.errors`; the base class is in `fedsuplin` too.",
        (
            Section(
                "Errors",
                qualify("fedsuplin", "FedsuplinError")
                + qualify(
                    "fedsuplin.errors",
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
                qualify("fedsuplin.errors", "PluginWarning", "FederationWarning", "InterruptedRun"),
            ),
        ),
    ),
}

DOORS = (
    "fedsuplin",
    "fedsuplin.errors",
    "fedsuplin.plugin",
    "fedsuplin.testing",
    "fedsuplin.reference",
)
"""The modules whose names are public. The first that exports a name has its page."""

# Names of plain objects, whose docstring would be that of their type: type, and what it is.
DATA = {
    "fedsuplin.__version__": ("str", "The version of the installed package."),
    "fedsuplin.plugin.hookimpl": (
        "pluggy.HookimplMarker",
        "Decorator that marks a function of a plugin as the implementation of a hook.",
    ),
    "fedsuplin.plugin.formulas": (
        "types.ModuleType",
        "The compiled formulas of the built-in rules, for `from_cython`.",
    ),
}


def list_names() -> list[str]:
    """Return all names, in the order of the pages."""
    sections = (section for group in GROUPS.values() for section in group.sections)
    return [name for section in sections for name in section.names]


def resolve(name: str) -> object:
    """Return the object that a full name stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def find_home_pages() -> dict[str, str]:
    """Map each listed name to the name of the same object that has the page."""
    names = sorted(list_names(), key=lambda name: DOORS.index(name.rpartition(".")[0]))
    first: dict[int, str] = {}
    return {name: first.setdefault(id(resolve(name)), name) for name in names}
