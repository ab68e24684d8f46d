"""The options of the command line, in groups, with the small click classes that print them under headings."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ..contracts.variant import PRESETS, SYNCS
from ..errors import InvalidInput
from ..problems.synthetic import CONTEXT_LAWS
from .completing import make_name_completer, make_word_completer
from .sections import Decorator, add_options, make_option_factory

DEFAULT_BUDGET = 50.0
FILE_PATH = click.Path(dir_okay=False, path_type=Path)


def read_defaults(*groups: list[Decorator]) -> dict[str, Any]:
    """The values that groups of options have when none of them is typed."""
    command = click.command()(add_options(*groups)(lambda **_: None))
    return command.make_context("defaults", []).params


def format_flag(option: str) -> str:
    return "--" + option.replace("_", "-")


@contextlib.contextmanager
def name_options_in_errors(keywords: Mapping[str, str]) -> Iterator[None]:
    """An error about a keyword of the library is told as one about the option that it came from (`keywords` by option)."""
    try:
        yield
    except InvalidInput as error:
        error.args = (
            replace_keywords_by_flags(
                str(error), {keyword: format_flag(option) for option, keyword in keywords.items()}
            ),
        )
        raise


def replace_keywords_by_flags(message: str, flags: Mapping[str, str]) -> str:
    """What is wrong comes first in a message; the names of sizes are no words of English, and may be anywhere.

    >>> in_options("every must be divisible by n_clients", {"every": "--checkpoint-every", "n_clients": "--clients"})
    '--checkpoint-every must be divisible by --clients'
    """
    named = "|".join(
        [rf"^{keyword}\b" for keyword in flags]
        + [rf"\b{size}\b" for size in ("n_arms", "n_clients") if size in flags]
    )
    return re.sub(named, lambda found: flags[found[0]], message)


def parse_value(context: click.Context, parameter: click.Parameter, text: str) -> Any:
    """A number, true or false, or the word itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return parse_whole_number(context, parameter, float(text))
    except ValueError:
        return text


def parse_pairs(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any]:
    """key=value of --set."""
    found: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
        found[key] = parse_value(context, parameter, text)
    return found


def parse_whole_number(
    context: click.Context, parameter: click.Parameter, value: float
) -> int | float:
    """1e6, which is a float when it is typed, as the whole number that it is; the library judges any other."""
    return int(value) if float(value).is_integer() else value


def parse_whole_number_if_given(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> int | float | None:
    return None if value is None else parse_whole_number(context, parameter, value)


def parse_number_or_word(
    context: click.Context, parameter: click.Parameter, value: str
) -> float | str:
    """--record: a number (1e6 works) or a word; `run` judges which it takes."""
    try:
        return float(value)
    except ValueError:
        return value


# Sizes are floats here, so that 1e6 can be typed; the library insists on whole numbers.
_size_option = make_option_factory("Sizes (the defaults are the paper's setting)")
SIZE_OPTIONS = [
    _size_option(
        "--dim",
        type=float,
        callback=parse_whole_number,
        default=25,
        metavar="d",
        help="Dimension of contexts. [default: 25]",
    ),
    _size_option(
        "--arms",
        type=float,
        callback=parse_whole_number,
        default=20,
        metavar="K",
        help="Arms a round. [default: 20]",
    ),
    _size_option(
        "--clients",
        type=float,
        callback=parse_whole_number,
        default=20,
        metavar="M",
        help="Clients. [default: 20]",
    ),
    _size_option(
        "--horizon",
        type=float,
        callback=parse_whole_number,
        default=40_000,
        metavar="T",
        help="Pulls of all clients together. [default: 40000]",
    ),
]
_problem_option = make_option_factory("The problem that is played")
PROBLEM_OPTIONS = [
    _problem_option(
        "--problem",
        metavar="NAME",
        shell_complete=make_name_completer("problems"),
        help="synthetic, fixed-arms or a plugin's, which takes the sizes and options below that it has a use for. "
        "[default: synthetic; fixed-arms for policies that need them]",
    ),
    _problem_option(
        "--contexts",
        type=click.Choice(CONTEXT_LAWS),
        default="sphere",
        help="Law of contexts. [default: sphere]",
    ),
    _problem_option(
        "--arrival",
        metavar="NAME",
        shell_complete=make_name_completer("arrivals"),
        help="Who plays when: random, round-robin, click-leave or a plugin's. "
        "[default: random; round-robin where all clients sync]",
    ),
    _problem_option(
        "--noise",
        metavar="NAME",
        shell_complete=make_name_completer("noise_models"),
        help="gaussian, bounded, corrupted or a plugin's. [default: what the variant is made for]",
    ),
    _problem_option(
        "--noise-scale",
        type=float,
        metavar="SD",
        help="Its standard deviation (not of bounded). [default: 0.1]",
    ),
    _problem_option(
        "--bound", type=float, metavar="R", help="Bound of bounded noise. [default: 1]"
    ),
    _problem_option(
        "--budget",
        type=float,
        metavar="C_p",
        help=f"What the adversary of corrupted noise may add in all. [default: {DEFAULT_BUDGET:g}]",
    ),
    _problem_option("--seed", type=int, default=0, help="Of everything random. [default: 0]"),
]
_algorithm_option = make_option_factory("The algorithm and what it assumes")
PART_OPTIONS = [
    _algorithm_option(
        "--policy",
        metavar="NAME",
        shell_complete=make_name_completer("policies"),
        help="Another policy: layered, optimism, … [default: the variant's]",
    ),
    _algorithm_option(
        "--trigger",
        metavar="NAME",
        shell_complete=make_name_completer("triggers"),
        help="Another trigger: determinant, periodic, always, never, … [default: the variant's]",
    ),
    _algorithm_option(
        "--weighting",
        metavar="NAME",
        shell_complete=make_name_completer("weightings"),
        help="Another weighting: unit, variance, corruption, … [default: the variant's]",
    ),
    _algorithm_option(
        "--assume",
        metavar="NAME",
        shell_complete=make_name_completer("noise_models"),
        help="Another noise model to take radii and widths from: gaussian, bounded, … [default: the variant's]",
    ),
    _algorithm_option(
        "--syncs",
        type=click.Choice(list(SYNCS)),
        help="Who syncs: one client, all after a round, or one and a push. [default: the variant's]",
    ),
    _algorithm_option(
        "--lazy/--eager",
        default=None,
        help="Decide from the last download alone, or from all that was gathered. [default: the variant's]",
    ),
]


def make_assumption_options(sigma: str, bound: str, corruption: str) -> list[Decorator]:
    """What an algorithm may be told of the noise; in words where it is from if it is not told."""
    return [
        _algorithm_option("--sigma", type=float, help=f"Noise level assumed. [default: {sigma}]"),
        _algorithm_option(
            "--R", "-R", "R", type=float, help=f"Noise bound assumed. [default: {bound}]"
        ),
        _algorithm_option(
            "--corruption",
            type=float,
            metavar="C_p",
            help=f"Corruption assumed. [default: {corruption}]",
        ),
    ]


PRESET_OPTION = [
    _algorithm_option(
        "--preset",
        type=click.Choice(PRESETS),
        default="practical",
        help="Constants not given. [default: practical]",
    ),
]
OTHER_CONSTANT_OPTIONS = [
    _algorithm_option(
        "--theta-bound", type=float, metavar="B", help="Bound on the length of θ. [default: 1]"
    ),
    _algorithm_option(
        "--delta", type=float, help="Probability with which the guarantee may fail. [default: 0.05]"
    ),
    _algorithm_option(
        "--alpha-scale",
        type=float,
        help="Multiplies every confidence radius. [default: the preset's]",
    ),
    _algorithm_option(
        "--ridge", type=float, help="Ridge λ of the regression. [default: the preset's]"
    ),
    _algorithm_option(
        "--C",
        "-C",
        "C",
        type=float,
        help="Threshold of the determinant trigger. [default: the preset's]",
    ),
    _algorithm_option(
        "--D",
        "-D",
        "D",
        type=float,
        help="Threshold of the timed-determinant trigger. [default: the preset's]",
    ),
    _algorithm_option(
        "--every",
        type=int,
        metavar="N",
        help="Of the periodic trigger: pulls, or rounds where all sync. [default: 100]",
    ),
    _algorithm_option(
        "--set",
        "extra",
        multiple=True,
        callback=parse_pairs,
        metavar="KEY=VALUE",
        help="Any other parameter: of a part of the algorithm, of the problem, its noise or its arrival. May be repeated.",
    ),
]
CONSTANT_OPTIONS = [
    *PRESET_OPTION,
    *make_assumption_options(
        "the problem's; with preset theory 1", "the problem's", "the problem's budget"
    ),
    *OTHER_CONSTANT_OPTIONS,
]
LIVE_CONSTANT_OPTIONS = [
    *PRESET_OPTION,
    *make_assumption_options("1", "1", "0"),
    *OTHER_CONSTANT_OPTIONS,
]  # of a server, which has no problem to ask
_backend_option = make_option_factory("Where it runs")
BACKEND_OPTIONS = [
    _backend_option(
        "--backend",
        default="threads",
        metavar="NAME",
        shell_complete=make_word_completer("threads", "processes", "dask://"),
        help="threads, processes, or dask://HOST:PORT for a Dask cluster that is there. [default: threads]",
    ),
    _backend_option(
        "--workers",
        type=int,
        metavar="N",
        help="Runs at a time. [default: one a core; on Dask, all it has room for]",
    ),
]
output_option = make_option_factory("Output")
federation_output_option = make_option_factory("Output")
JSON_OPTION = [
    output_option(
        "--json",
        "as_json",
        is_flag=True,
        help="As JSON on standard output, and nothing else there.",
    )
]


def make_output_options(folder: str) -> list[Decorator]:
    """Where files go, in words where that is not asked for; what is printed."""
    out = output_option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help=f"Write data, table and figure into this folder; files already there are replaced. [default: {folder}]",
    )
    return [
        out,
        *JSON_OPTION,
        output_option("--quiet", "-q", is_flag=True, help="No progress bar and no table."),
    ]


def make_markdown_option(flag: str, words: str) -> Decorator:
    return output_option(
        flag, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=words
    )
