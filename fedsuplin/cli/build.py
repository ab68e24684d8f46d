"""Build problems and algorithms from options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.assembling import assemble_algorithm
from ..algorithm.composing import compose_recipe, list_keywords
from ..algorithm.doubling import FIRST_EPOCH_PULLS, Doubling
from ..algorithm.making import make_from_recipe
from ..algorithm.suitable_variants import (
    find_natural_noise,
    list_suitable_variants,
    needs_fixed_arms,
)
from ..contracts.problem import Problem
from ..contracts.variant import PARTS
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

# Which keyword each option becomes: of a problem, of its noise, of the algorithm.
SIZE_KEYWORDS = {"dim": "dim", "arms": "n_arms", "clients": "n_clients", "horizon": "horizon"}
SYNTHETIC_KEYWORDS = SIZE_KEYWORDS | {name: name for name in ("contexts", "arrival", "seed")}
NOISE_KEYWORDS = {"noise_scale": "noise_scale", "bound": "R", "budget": "corruption"}
PROBLEM_KEYWORDS = SYNTHETIC_KEYWORDS | {"noise": "noise"} | NOISE_KEYWORDS
SAME_NAME = ("delta", "alpha_scale", "ridge", "theta_bound", "C", "D", "R", "corruption", "every")
ALGORITHM_KEYWORDS = {name: name for name in SAME_NAME} | {"sigma": "noise_scale"}
PART_KEYWORDS = {"assume" if part == "noise" else part: part for part in PARTS}
# What --set can't give, because an option does.
COMPOSED_KEYWORDS = SIZE_KEYWORDS | PART_KEYWORDS | {"preset": "preset"}
DRAWN_KEYWORDS = NOISE_KEYWORDS | {"noise": "noise", "seed": "seed"}
BUILD_KEYWORDS = SYNTHETIC_KEYWORDS | ALGORITHM_KEYWORDS


@functools.cache
def read_build_defaults() -> dict[str, Any]:
    """Return the defaults of all options that a problem and an algorithm are built from."""
    return read_defaults(SIZE_OPTIONS, PROBLEM_OPTIONS, CONSTANT_OPTIONS, PART_OPTIONS)


def build_problem_and_algorithm(variant: str, given: dict[str, Any]) -> tuple[Problem, Algorithm]:
    """Build what `fedsuplin run` plays; noise levels not given are taken from the problem."""
    refuse_named_options(given["extra"], DRAWN_KEYWORDS, ALGORITHM_KEYWORDS, COMPOSED_KEYWORDS)
    name, recipe = compose_recipe(variant, read_parts(given))
    given = given | {
        "problem": given["problem"] or ("fixed-arms" if needs_fixed_arms(recipe) else "synthetic")
    }
    problem, drawn = build_problem(given["noise"] or find_natural_noise(recipe), given)
    keywords = collect_algorithm_keywords(name, list_keywords(recipe), drawn, problem, given)
    keywords["preset"] = given["preset"]
    with name_options_in_errors(BUILD_KEYWORDS):
        horizon = problem.horizon or check_positive_integer("horizon", given["horizon"])
        return problem, make_from_recipe(name, recipe, problem, horizon, keywords)


def build_comparison(
    policies: Sequence[str], given: dict[str, Any]
) -> tuple[Sequence[str], Callable[[int], Problem], dict[str, Any]]:
    """Build what `fedsuplin compare` plays: policies, a function from seed to problem, keywords."""
    refuse_named_options(given["extra"], DRAWN_KEYWORDS, ALGORITHM_KEYWORDS, COMPOSED_KEYWORDS)
    noise = given["noise"] or "gaussian"
    given = given | {"problem": given["problem"] or "synthetic"}
    problem, drawn = build_problem(noise, given)
    names = policies or list_suitable_variants(problem)
    takes = set().union(*(list_keywords(compose_recipe(name, {})[1]) for name in names))
    keywords = collect_algorithm_keywords(", ".join(names), takes, drawn, problem, given)
    keywords["preset"] = given["preset"]
    return names, lambda seed: build_problem(noise, given | {"seed": seed})[0], keywords


def build_live_algorithm(variant: str, given: dict[str, Any]) -> Algorithm | Doubling:
    """Build what `fedsuplin serve` plays; there is no problem that could state its noise."""
    refuse_named_options(given["extra"], COMPOSED_KEYWORDS)
    parts = read_parts(given)
    name, recipe = compose_recipe(variant, parts)
    keywords = {SIZE_KEYWORDS[size]: given[size] for size in ("dim", "arms", "clients")}
    keywords["preset"] = given["preset"]
    constants = translate_options(given, ALGORITHM_KEYWORDS, list_keywords(recipe), variant)
    constants |= given["extra"]
    horizon, first = given["horizon"], given["first_horizon"]
    if horizon is not None and first is not None:
        raise InvalidInput("--first-horizon is for a horizon that is unknown: leave --horizon out")
    with name_options_in_errors(BUILD_KEYWORDS | {"first_horizon": "first"}):
        if horizon is not None:
            return assemble_algorithm(name, recipe, **keywords, horizon=horizon, **constants)
        replaced = {part: value for part, value in parts.items() if value is not None}
        if first is None:
            first = FIRST_EPOCH_PULLS
        return Doubling(variant, keywords | replaced | constants, first)


def read_parts(given: dict[str, Any]) -> dict[str, Any]:
    """Return the parts that options replace in the variant to build; None keeps a part."""
    return {part: given[option] for option, part in PART_KEYWORDS.items()}


def build_problem(noise: str, given: dict[str, Any]) -> tuple[Problem, set[str]]:
    """Build the problem that the options describe; also return the keywords --set has for it."""
    with name_options_in_errors(PROBLEM_KEYWORDS):
        if given["problem"] == "synthetic":
            takes = set(list_parameters(plugins.factory("noise_models", noise)))
            takes |= list_arrival_keywords(given)
            return build_synthetic_problem(noise, takes, given), takes
        factory = plugins.factory("problems", given["problem"])
        takes = set(list_parameters(factory))
        if factory is FixedArmsProblem:
            takes |= list_arrival_keywords(given)
        return build_registered_problem(takes, given), takes


def build_synthetic_problem(noise: str, takes: set[str], given: dict[str, Any]) -> SyntheticProblem:
    """Build a synthetic problem; `takes` are the keywords of its noise and its arrival pattern."""
    keywords = translate_options(given, NOISE_KEYWORDS, takes, f"{noise} noise")
    if "corruption" in takes:
        keywords.setdefault("corruption", DEFAULT_BUDGET)
    keywords |= {key: value for key, value in given["extra"].items() if key in takes}
    sizes = {keyword: given[option] for option, keyword in SYNTHETIC_KEYWORDS.items()}
    return SyntheticProblem(**sizes, noise=noise, **keywords)


def build_registered_problem(takes: set[str], given: dict[str, Any]) -> Problem:
    """Build a plugin's problem from the options it takes; one that it does not take is an error."""
    defaults = read_build_defaults()
    for option, keyword in PROBLEM_KEYWORDS.items():
        typed = given[option] not in (None, defaults[option])
        if option != "horizon" and keyword not in takes and typed:
            raise make_unused_option_error(given["problem"], option, PROBLEM_KEYWORDS, takes)
    values = {
        keyword: given[option] for option, keyword in PROBLEM_KEYWORDS.items() if keyword in takes
    }
    values |= {key: value for key, value in given["extra"].items() if key in takes}
    values = {key: value for key, value in values.items() if value is not None}
    check_needed_keywords(given["problem"], values)
    problem: Problem = plugins.create("problems", given["problem"], values)
    return problem


def list_arrival_keywords(given: dict[str, Any]) -> set[str]:
    """Return the keywords that --arrival lets one build a problem with."""
    if given["arrival"] is None:
        return set()
    return set(list_parameters(plugins.factory("arrivals", given["arrival"])))


def check_needed_keywords(name: str, values: dict[str, Any]) -> None:
    """Check that the options give every keyword that a problem can't be built without."""
    if name == "array":
        raise InvalidInput(
            "the problem 'array' needs NumPy arrays, so it can only be built in Python: "
            "fsl.ArrayProblem(contexts, clients, …), see docs/data.md"
        )
    needed = list_needed_parameters(plugins.factory("problems", name))
    missing = [key for key in needed if key not in values]
    if missing:
        flags = " ".join(f"--set {key}=…" for key in missing)
        raise InvalidInput(f"{name} needs {' and '.join(missing)}: give {flags}")


def collect_algorithm_keywords(
    name: str, takes: set[str], drawn: set[str], problem: Problem, given: dict[str, Any]
) -> dict[str, Any]:
    """Collect the keywords to build an algorithm with; R and corruption are the problem's."""
    stated = {"R": problem.R, "corruption": problem.corruption}
    keywords = {key: value for key, value in stated.items() if key in takes and value is not None}
    keywords |= translate_options(given, ALGORITHM_KEYWORDS, takes, name)
    extra = given["extra"].items()
    return keywords | {key: value for key, value in extra if key in takes or key not in drawn}


def translate_options(
    given: dict[str, Any], keywords: dict[str, str], takes: set[str], name: str
) -> dict[str, Any]:
    """Turn options into keywords to build `name` with; one that it does not take is an error."""
    typed = {option: keyword for option, keyword in keywords.items() if given[option] is not None}
    for option, keyword in typed.items():
        if keyword not in takes:
            raise make_unused_option_error(name, option, keywords, takes)
    return {keyword: given[option] for option, keyword in typed.items()}


def make_unused_option_error(
    name: str, option: str, keywords: dict[str, str], takes: set[str]
) -> InvalidInput:
    """Make the error for an option that what is built, such as a problem, does not take."""
    others = [format_flag(other) for other, keyword in keywords.items() if keyword in takes]
    listed = ", ".join(others) or "no such option"
    return InvalidInput(f"{name} does not take {format_flag(option)}; it takes {listed}")


def refuse_named_options(extra: dict[str, Any], *keywords: dict[str, str]) -> None:
    """Before building, refuse --set for keywords that have an option, which also says whose."""
    options = [item for each in keywords for item in each.items()]
    for key in extra:
        flags = [format_flag(option) for option, keyword in options if keyword == key]
        if flags:
            raise InvalidInput(f"--set {key} is not needed: use {' or '.join(flags)}")
