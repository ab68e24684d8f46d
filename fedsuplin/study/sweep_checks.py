"""Many runs: grids of policies and of problems × seeds, in threads, processes or on a cluster, to one tidy table.

A grid is a dict whose lists are axes: {"name": ["async", "sync"], "alpha_scale": [0.1, 0.3]} is four policies. What was run is
kept in a journal, so a sweep that was stopped or killed goes on where it was, and one with more seeds runs only those.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..algorithm.composing import compose_recipe, list_keywords
from ..contracts.variant import AXES, PRESETS, SYNCS
from ..errors import FedsuplinError, InvalidInput, PluginError, UnknownName, unknown
from ..registry import list_needed_parameters, list_parameters, plugins
from .grid import Point, make_problem, name_for_key

SWEEP_KEYWORDS = {"seed", "horizon"}  # keywords of a problem that are not its grid's to give
NOT_PARAMETERS = {"preset", "syncs", "lazy", *AXES}


def check_names(points: Sequence[Point]) -> None:
    """A name that does not exist is told before anything runs; a value that can't be used is an error of its run."""
    for policy in list_distinct(point.policy for point in points):
        check_policy_names(policy)
    for problem in list_distinct(point.problem for point in points):
        check_problem_names(problem)


def check_policy_names(policy: Mapping[str, Any]) -> None:
    _, recipe = compose_recipe(policy["name"], {axis: policy.get(axis) for axis in AXES})
    takes = list_keywords(recipe) | NOT_PARAMETERS
    for keyword in policy:
        if keyword != "name" and keyword not in takes:
            raise unknown(f"keyword for {policy['name']!r}", keyword, takes)
    for keyword, choices in (("preset", PRESETS), ("syncs", SYNCS)):
        if policy.get(keyword) is not None and policy[keyword] not in choices:
            raise unknown(keyword, policy[keyword], choices)


def check_problem_names(problem: Mapping[str, Any]) -> None:
    """Keywords by the signature; one that is made by name also once, for names among its values, such as that of a noise."""
    name = problem["name"]
    if not callable(name) and not isinstance(name, str):
        raise InvalidInput(
            f"the name of a problem must be one, or a function that makes it, not {name!r}"
        )
    factory = name if callable(name) else plugins.factory("problems", name)
    what, takes = (
        f"keyword for problem {(name_for_key(name) if callable(name) else name)!r}",
        {*list_parameters(factory), "horizon"} - {"seed"},
    )
    others = [keyword for keyword in problem if keyword != "name" and keyword not in takes]
    if others and not takes_any_keyword(factory):
        raise unknown(what, others[0], takes)
    lacking = [
        keyword
        for keyword in list_needed_parameters(factory)
        if keyword not in {*problem, *SWEEP_KEYWORDS}
    ]
    for keyword in others if lacking else ():
        if difflib.get_close_matches(
            keyword, lacking, n=1
        ):  # where any keyword is taken, this is how a misspelt one shows
            raise unknown(what, keyword, takes)
    if lacking:
        raise InvalidInput(
            f"problem {(name_for_key(name) if callable(name) else name)!r} needs {', '.join(lacking)}: add to its grid"
        )
    wrong = None if callable(name) else find_unknown_name(problem)
    for keyword in others if wrong else ():
        if repr(keyword) in str(wrong):
            raise unknown(what, keyword, takes, f" ({wrong})")
    if wrong:
        raise UnknownName(f"problem {name!r}: {wrong}") from wrong


def find_unknown_name(problem: Mapping[str, Any]) -> UnknownName | None:
    """What making it says of a name that does not exist; anything else that is wrong is for its runs to say."""
    try:
        make_problem(Point({}, dict(problem), 0))
    except FedsuplinError as error:
        cause = error.__cause__ if isinstance(error, PluginError) else error
        return cause if isinstance(cause, UnknownName) else None
    return None


def takes_any_keyword(factory: Callable[..., Any]) -> bool:
    return any(
        parameter.kind is parameter.VAR_KEYWORD
        for parameter in inspect.signature(factory).parameters.values()
    )


def list_distinct(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that differ in more than a number, which can't be misspelt."""
    return list({encode_words(each): each for each in found}.values())


def encode_words(keywords: Mapping[str, Any]) -> str:
    return json.dumps(
        {key: 0 if isinstance(value, (int, float)) else value for key, value in keywords.items()},
        default=name_for_key,
    )
