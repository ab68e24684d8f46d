"""The specification of a problem: build it, and make the problem again from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..contracts.problem import Problem
from ..errors import InvalidInput
from ..registry import plugins


def build_spec(
    problem: Problem, name: str, parameters: Mapping[str, Any] | None, parts: tuple[str, ...]
) -> dict[str, Any]:
    """Return the spec of a problem with these parameters.

    If there are none, or one of the `parts` among them is an object and not a name, the problem
    can't be made from its spec: then the spec has its repr instead.
    """
    if parameters is not None and all(isinstance(parameters[part], str | None) for part in parts):
        return {"problem": name, "parameters": dict(parameters)}
    return {"problem": name, "parameters": None, "shown": repr(problem)}


def make_problem_from_spec(spec: Mapping[str, Any]) -> Problem:
    """Make the problem that a specification describes; it must be registered by name."""
    if spec.get("parameters") is None:
        raise InvalidInput(
            f"a problem of kind {spec.get('problem')!r} can't be made again from its specification"
        )
    problem: Problem = plugins.create("problems", spec["problem"], spec["parameters"])
    return problem
