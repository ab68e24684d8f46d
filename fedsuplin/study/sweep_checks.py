"""Check the names in a sweep before anything runs."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._shared.plain_data import encode_json
from ..algorithm.composing import compose_recipe, list_keywords
from ..contracts.variant import AXES, PRESETS, SYNCS
from ..errors import FedsuplinError, InvalidInput, PluginError, UnknownName, unknown
from ..registry import list_needed_parameters, list_parameters, plugins
from .grid import Point, make_problem, name_for_key

SWEEP_KEYWORDS = {"seed", "horizon"}  # of a problem, which the sweep gives
NOT_PARAMETERS = {"preset", "syncs", "lazy", *AXES}


def check_names(points: Sequence[Point]) -> None:
    """Check all names in a sweep: raise an error for the first that does not exist.

    A value that can't be used is not looked for: it is an error of its runs.
    """
    for policy in list_distinct(point.policy for point in points):
        check_policy_names(policy)
    for problem in list_distinct(point.problem for point in points):
        check_problem_names(problem)


def check_policy_names(policy: Mapping[str, Any]) -> None:
    """Check, before a sweep, the name of a policy and those of its keywords and parts."""
    _, recipe = compose_recipe(policy["name"], {axis: policy.get(axis) for axis in AXES})
    takes = list_keywords(recipe) | NOT_PARAMETERS
    for keyword in policy:
        if keyword != "name" and keyword not in takes:
            raise unknown(f"keyword for {policy['name']!r}", keyword, takes)
    for keyword, choices in (("preset", PRESETS), ("syncs", SYNCS)):
        if policy.get(keyword) is not None and policy[keyword] not in choices:
            raise unknown(keyword, policy[keyword], choices)


def check_problem_names(problem: Mapping[str, Any]) -> None:
    """Check, before a sweep, the name of a problem and those of its keywords.

    A registered problem is also made once, to find wrong names among its values, such as that of
    a noise model.
    """
    name = problem["name"]
    if not callable(name) and not isinstance(name, str):
        raise InvalidInput(
            f"the name of a problem must be a name or a function that makes one, not {name!r}"
        )
    factory = name if callable(name) else plugins.factory("problems", name)
    shown = repr(name_for_key(name) if callable(name) else name)
    what, takes = f"keyword for problem {shown}", {*list_parameters(factory), "horizon"} - {"seed"}
    others = [keyword for keyword in problem if keyword != "name" and keyword not in takes]
    if others and not takes_any_keyword(factory):
        raise unknown(what, others[0], takes)
    given = {*problem, *SWEEP_KEYWORDS}
    lacking = [keyword for keyword in list_needed_parameters(factory) if keyword not in given]
    if lacking:
        for keyword in others:  # where any keyword is taken, this is how a misspelt one shows
            if difflib.get_close_matches(keyword, lacking, n=1):
                raise unknown(what, keyword, takes)
        raise InvalidInput(f"problem {shown} needs {', '.join(lacking)}: add to its grid")
    wrong = None if callable(name) else find_unknown_name(problem)
    if wrong:
        for keyword in others:
            if repr(keyword) in str(wrong):
                raise unknown(what, keyword, takes, f" ({wrong})")
        raise UnknownName(f"problem {name!r}: {wrong}") from wrong


def find_unknown_name(problem: Mapping[str, Any]) -> UnknownName | None:
    """Check the names in a sweep's problem by making it; return the error about one, if any.

    Any other error is left to the runs.
    """
    try:
        make_problem(Point({}, dict(problem), 0))
    except FedsuplinError as error:
        cause = error.__cause__ if isinstance(error, PluginError) else error
        return cause if isinstance(cause, UnknownName) else None
    return None


def takes_any_keyword(factory: Callable[..., Any]) -> bool:
    """Check whether a function that makes a sweep's problem has a parameter like **keywords."""
    return any(
        parameter.kind is parameter.VAR_KEYWORD
        for parameter in inspect.signature(factory).parameters.values()
    )


def list_distinct(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the policies or problems of a sweep to check: numbers can't be misspelt."""
    return list({encode_words(each): each for each in found}.values())


def encode_words(keywords: Mapping[str, Any]) -> str:
    """Return keywords of a sweep to check as text, with 0 for every number."""
    return encode_json(
        {key: 0 if isinstance(value, (int, float)) else value for key, value in keywords.items()},
        name_for_key,
    )
