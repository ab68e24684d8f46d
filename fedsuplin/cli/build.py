"""The command `fedsuplin`: options in, a problem and an algorithm made of them, a run, and what `report.py` tells."""

from __future__ import annotations

import functools
from typing import Any

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.composing import compose_recipe, list_keywords
from ..algorithm.doubling import Doubling
from ..algorithm.making import make, make_for, needs_fixed_arms
from ..contracts.problem import Problem
from ..contracts.variant import AXES, Variant
from ..errors import InvalidInput
from ..problems.fixed_arms import FixedArmsProblem
from ..problems.synthetic import SyntheticProblem
from ..registry import list_needed_parameters, list_parameters, plugins
from .options import (
    CONSTANT_OPTIONS,
    DEFAULT_BUDGET,
    PART_OPTIONS,
    PROBLEM_OPTIONS,
    SIZE_OPTIONS,
    format_flag,
    name_options_in_errors,
    read_defaults,
)

# Which keyword an option becomes: of a problem, of its noise, of the algorithm.
SYNTHETIC_KEYWORDS = {
    "dim": "dim",
    "arms": "n_arms",
    "clients": "n_clients",
    **{name: name for name in ("horizon", "contexts", "arrival", "seed")},
}
NOISE_KEYWORDS = {"noise_scale": "noise_scale", "bound": "R", "budget": "corruption"}
PROBLEM_KEYWORDS = SYNTHETIC_KEYWORDS | {"noise": "noise"} | NOISE_KEYWORDS
ALGORITHM_KEYWORDS = {
    **{
        name: name
        for name in (
            "delta",
            "alpha_scale",
            "ridge",
            "theta_bound",
            "C",
            "D",
            "R",
            "corruption",
            "every",
        )
    },
    "sigma": "noise_scale",
}


@functools.cache
def read_build_defaults() -> dict[str, Any]:
    """The defaults of all options that a problem and an algorithm are built from."""
    return read_defaults(SIZE_OPTIONS, PROBLEM_OPTIONS, CONSTANT_OPTIONS, PART_OPTIONS)


def build_problem_and_algorithm(name: str, given: dict[str, Any]) -> tuple[Problem, Algorithm]:
    """What the options mean: a problem, and an algorithm that knows the truth about its noise unless told otherwise."""
    refuse_named_options(given["extra"])
    parts = {axis: given["assume" if axis == "noise" else axis] for axis in AXES}
    _, recipe = compose_recipe(name, parts)
    takes = list_keywords(recipe)
    given = given | {
        "problem": given["problem"] or ("fixed-arms" if needs_fixed_arms(recipe) else "synthetic")
    }
    problem, drawn = build_problem(given["noise"] or find_natural_noise(recipe), given)
    told = collect_algorithm_keywords(name, takes, drawn, problem, given)
    told |= {"preset": given["preset"], "syncs": given["syncs"], "lazy": given["lazy"]} | parts
    with name_options_in_errors(SYNTHETIC_KEYWORDS | ALGORITHM_KEYWORDS):
        return problem, make_for(
            name,
            problem,
            problem.horizon or check_positive_integer("horizon", given["horizon"]),
            told,
        )


def build_live_algorithm(variant: str, given: dict[str, Any]) -> Any:
    """As `fedsuplin run` has it, but that no problem is there to tell about its noise."""
    parts = {axis: given["assume" if axis == "noise" else axis] for axis in AXES}
    told = translate_options(
        given, ALGORITHM_KEYWORDS, list_keywords(compose_recipe(variant, parts)[1]), variant
    )
    sizes = {
        "dim": given["dim"],
        "n_arms": given["arms"],
        "n_clients": given["clients"],
        "horizon": given["horizon"],
    }
    rest = {"preset": given["preset"], "syncs": given["syncs"], "lazy": given["lazy"]}
    with name_options_in_errors(SYNTHETIC_KEYWORDS | ALGORITHM_KEYWORDS):
        made = make(variant, **sizes, **rest, **parts, **(told | given["extra"]))
    if given["first_horizon"] is None:
        return made
    if not isinstance(made, Doubling):
        raise InvalidInput("--first-horizon is for a horizon that is unknown: leave --horizon out")
    return Doubling(made.variant, made.keywords, given["first_horizon"])


def build_problem(noise: str, given: dict[str, Any]) -> tuple[Problem, set[str]]:
    """The problem that the options describe, and the keywords that --set may have for it."""
    with name_options_in_errors(PROBLEM_KEYWORDS):
        if given["problem"] == "synthetic":
            drawn = set(
                list_parameters(plugins.factory("noise_models", noise))
            ) | list_arrival_keywords(given)
            return build_synthetic_problem(noise, drawn, given), drawn
        factory = plugins.factory("problems", given["problem"])
        drawn = set(list_parameters(factory)) | (
            list_arrival_keywords(given) if factory is FixedArmsProblem else set()
        )
        return build_registered_problem(drawn, given), drawn


def build_synthetic_problem(noise: str, drawn: set[str], given: dict[str, Any]) -> SyntheticProblem:
    told = translate_options(given, NOISE_KEYWORDS, drawn, f"{noise} noise")
    if "corruption" in drawn:
        told.setdefault("corruption", DEFAULT_BUDGET)
    told |= {key: value for key, value in given["extra"].items() if key in drawn}
    as_given = {keyword: given[option] for option, keyword in SYNTHETIC_KEYWORDS.items()}
    return SyntheticProblem(**as_given, noise=noise, **told)


def build_registered_problem(takes: set[str], given: dict[str, Any]) -> Problem:
    """A plugin's problem, with the sizes and options that it has a use for; one that was typed and it has not is an error."""
    defaults = read_build_defaults()
    for option, keyword in PROBLEM_KEYWORDS.items():
        if (
            option != "horizon"
            and keyword not in takes
            and given[option] not in (None, defaults[option])
        ):
            others = [format_flag(other) for other, key in PROBLEM_KEYWORDS.items() if key in takes]
            raise InvalidInput(
                f"{given['problem']} has no use for {format_flag(option)}; it takes {', '.join(others) or 'no such option'}"
            )
    values = {
        PROBLEM_KEYWORDS[option]: given[option]
        for option in PROBLEM_KEYWORDS
        if PROBLEM_KEYWORDS[option] in takes
    }
    values |= {key: value for key, value in given["extra"].items() if key in takes}
    check_needed_keywords(given["problem"], values)
    made: Problem = plugins.create(
        "problems",
        given["problem"],
        {key: each for key, each in values.items() if each is not None},
    )
    return made


def find_natural_noise(recipe: Variant) -> str:
    """The noise that a variant is made for: what it assumes, as a problem draws it."""
    if not isinstance(recipe.noise, str):
        return "gaussian"
    return getattr(plugins.factory("noise_models", recipe.noise), "drawn_as", recipe.noise)


def list_arrival_keywords(given: dict[str, Any]) -> set[str]:
    """The keywords that the arrival pattern of --arrival takes."""
    return (
        set()
        if given["arrival"] is None
        else set(list_parameters(plugins.factory("arrivals", given["arrival"])))
    )


def check_needed_keywords(name: str, values: dict[str, Any]) -> None:
    """A problem's parameters that have no default: --set has words and numbers for them, and no arrays."""
    if name == "array":
        raise InvalidInput(
            "array is made of arrays, so in Python: fsl.ArrayProblem(contexts, clients, …), see docs/data.md"
        )
    missing = [
        key
        for key in list_needed_parameters(plugins.factory("problems", name))
        if values.get(key) is None
    ]
    if missing:
        how = " ".join(f"--set {key}=…" for key in missing)
        raise InvalidInput(f"{name} needs {' and '.join(missing)}: give {how}")


def collect_algorithm_keywords(
    who: str, takes: set[str], drawn: set[str], problem: Problem, given: dict[str, Any]
) -> dict[str, Any]:
    """The keywords of an algorithm, which knows the problem's R and corruption with either preset unless told otherwise."""
    known = {"R": problem.R, "corruption": problem.corruption}
    told = {key: value for key, value in known.items() if key in takes and value is not None}
    told |= translate_options(given, ALGORITHM_KEYWORDS, takes, who)
    return told | {
        key: value for key, value in given["extra"].items() if key in takes or key not in drawn
    }


def translate_options(
    given: dict[str, Any], keywords: dict[str, str], takes: set[str], who: str
) -> dict[str, Any]:
    """The options that were given, as keywords; one that `who` has no use for is an error."""
    for option, keyword in keywords.items():
        if given[option] is not None and keyword not in takes:
            others = [format_flag(other) for other, key in keywords.items() if key in takes]
            raise InvalidInput(
                f"{who} has no use for {format_flag(option)}; it takes {', '.join(others) or 'no such option'}"
            )
    return {
        keyword: given[option] for option, keyword in keywords.items() if given[option] is not None
    }


def refuse_named_options(extra: dict[str, Any]) -> None:
    """--set is for what has no option of its own: those say whether the problem or the algorithm is meant."""
    for key in extra:
        named = [
            format_flag(option)
            for option, keyword in [*NOISE_KEYWORDS.items(), *ALGORITHM_KEYWORDS.items()]
            if keyword == key
        ]
        if named:
            raise InvalidInput(f"--set {key} is not needed: use {' or '.join(named)}")
