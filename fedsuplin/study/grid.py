"""Expand grids of policies and problems into the points of a sweep.

A grid is a dict whose lists are axes. For example,
``{"name": ["async", "sync"], "alpha_scale": [0.1, 0.3]}`` stands for four policies.
"""

from __future__ import annotations

import functools
import itertools
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shared.checks import check_positive_integer
from .._shared.plain_data import encode_json
from .._shared.version import __version__
from ..algorithm.composing import compose_recipe
from ..contracts.problem import Problem
from ..contracts.variant import AXES
from ..errors import InvalidInput
from ..registry import plugins
from ..simulation.recorder import list_recorded_pulls

Grid = Mapping[str, Any]

FORMER_MODULES = {
    "fedsuplin.problems.arrays": "fedsuplin.problem",
    "fedsuplin.problems.classification": "fedsuplin.datasets.classification",
    "fedsuplin.problems.fixed_arms": "fedsuplin.fixed_arms",
    "fedsuplin.problems.movielens": "fedsuplin.datasets.movielens",
    "fedsuplin.problems.synthetic": "fedsuplin.problem",
    "fedsuplin.problems.tables": "fedsuplin.datasets.tables",
}
"""Where our problems were when the first journals were written; their keys have these names."""


@dataclass(frozen=True)
class Point:
    """One run of a sweep: the keywords of its policy and of its problem, and a seed."""

    policy: dict[str, Any]
    problem: dict[str, Any]
    seed: int
    record: str | int | None = None

    @functools.cached_property
    def key(self) -> str:
        """Return the text that identifies this point of the grids in a journal.

        With other constants in its preset, or another version of fedsuplin or of a plugin
        package, it is another run.
        """
        parts: dict[str, Any] = {
            "policy": self.policy,
            "problem": self.problem,
            "seed": self.seed,
            "record": self.record,
        }
        parts |= {"preset": find_preset(self.policy), "versions": list_versions()}
        return encode_json(parts, name_for_key, sort_keys=True)

    @property
    def work(self) -> float:
        """Return the work of this point of the grids: pulls × arms × dim², where they are known."""
        sizes = [self.problem.get(name, 1) for name in ("horizon", "n_arms", "dim", "dim")]
        return float(
            math.prod(size for size in sizes if isinstance(size, (int, float)) and size > 0)
        )


def find_preset(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that a policy in a grid has from its preset."""
    _, recipe = compose_recipe(policy["name"], {axis: policy.get(axis) for axis in AXES})
    return dict(recipe.presets.get(policy.get("preset", "practical"), {}))


def list_versions() -> dict[str, str]:
    """Return the versions of fedsuplin and plugin packages, which are in a grid point's key."""
    return {source.package: source.version for source in plugins.sources()} | {
        "fedsuplin": __version__
    }


def list_points(policies: Any, problems: Any, seeds: Any, record: Any) -> list[Point]:
    """Return every point of the grids; the seeds vary fastest."""
    if record is not None:
        if record == "all":
            raise InvalidInput(
                'record="all" is for a single run: '
                'a sweep keeps curves with record="log" or every n-th pull'
            )
        list_recorded_pulls(record, 1)
    plan = itertools.product(
        expand_grids("policies", policies), expand_grids("problems", problems), list_seeds(seeds)
    )
    points = [
        Point(policy, {"name": "synthetic"} | problem, seed, as_whole_number(record))
        for policy, problem, seed in plan
    ]
    if len({point.key for point in points}) < len(points):
        raise InvalidInput(
            "some runs are in the sweep twice: "
            "each combination of policy, problem and seed must be there once"
        )
    return points


def list_seeds(seeds: Any) -> list[int]:
    """Return the seeds of each point of the grids: `seeds` is how many, or which."""
    if isinstance(seeds, numbers.Real):
        return list(range(check_positive_integer("seeds", seeds)))
    which = (
        [as_whole_number(as_python_number(seed)) for seed in seeds]
        if isinstance(seeds, Iterable)
        else [seeds]
    )
    for seed in which:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise InvalidInput(
                f"seeds must be how many, or whole numbers of at least 0, not {seed!r}"
            )
    if not which:
        raise InvalidInput("there are no seeds: give at least one seed")
    return which


def expand_grids(what: str, grids: Any) -> list[dict[str, Any]]:
    """Return the combinations of one grid or several."""
    several = (
        [grids]
        if isinstance(grids, (str, Mapping)) or not isinstance(grids, Iterable)
        else list(grids)
    )
    found = [combination for grid in several for combination in list_combinations(what, grid)]
    if not found:
        raise InvalidInput(f"there is nothing to run: {what} are missing")
    return found


def list_combinations(what: str, grid: Any) -> Iterator[dict[str, Any]]:
    """Yield the combinations of one grid; `what` names it in errors."""
    if what == "policies" and isinstance(grid, str):
        grid = {"name": grid}
    if not isinstance(grid, Mapping):
        raise InvalidInput(
            f"{what} must be a grid or several: {{'name': …, 'keyword': [values]}}, not {grid!r}"
        )
    if what == "policies" and "name" not in grid:
        raise InvalidInput(
            "a grid of policies must say which policy: "
            f"add name, such as 'async', to {dict(grid)!r}"
        )
    if what == "problems" and "seed" in grid:
        raise InvalidInput(
            "a sweep sets the seeds of its problems: give seeds=, and no seed in a grid of problems"
        )
    axes = {key: list_axis_values(values) for key, values in grid.items()}
    for key, values in axes.items():
        if not values:
            raise InvalidInput(f"the axis {key} of {what} has no values")
    for each in itertools.product(*axes.values()):
        yield dict(zip(axes, each, strict=True))


def list_axis_values(values: Any) -> list[Any]:
    """Return the values of an axis of a grid; a single value is an axis of one."""
    several = isinstance(values, (list, tuple, range)) or (
        isinstance(values, np.ndarray) and values.ndim > 0
    )
    return [as_whole_number(as_python_number(value)) for value in (values if several else [values])]


def as_python_number(value: Any) -> Any:
    """Return a value of a grid that is a NumPy scalar as Python's number."""
    return value.item() if isinstance(value, np.generic) else value


def as_whole_number(value: Any) -> Any:
    """Return 1e6 in a grid, which TOML reads as a float, as the whole number that it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def name_for_key(value: Any) -> str:
    """Return a grid's value that is not plain data as text, the same in every process.

    A class or a function gives its full name, an object its repr. One whose text would differ in
    the next process is refused.
    """
    if callable(value) and hasattr(value, "__qualname__"):
        module = FORMER_MODULES.get(value.__module__, value.__module__)
        name = f"{module}.{value.__qualname__}"
    else:
        name = repr(value)
    if " at 0x" in name or "<lambda>" in name or "<locals>" in name:
        raise InvalidInput(
            f"{name} has no name by which its runs could be found again: define it at the top of "
            "a module, register it as a plugin, or give its class a repr"
        )
    return name


def make_problem(point: Point) -> Problem:
    """Make the problem of a point of the grids. Its horizon is the run's, not the problem's."""
    keywords = {
        key: value for key, value in point.problem.items() if key not in ("name", "horizon")
    } | {"seed": point.seed}
    name = point.problem["name"]
    made: Problem = (
        name(**keywords) if callable(name) else plugins.create("problems", name, keywords)
    )
    return made
