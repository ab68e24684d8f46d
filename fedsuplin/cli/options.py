"""Options that several commands share, and how their values are parsed."""

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
from .completers import make_name_completer, make_word_completer
from .sections import Decorator, add_options, make_option_factory

DEFAULT_BUDGET = 50.0
FILE_PATH = click.Path(dir_okay=False, path_type=Path)


def read_defaults(*groups: list[Decorator]) -> dict[str, Any]:
    """Return the values that options in groups have when none of them is typed."""
    command = click.command()(add_options(*groups)(lambda **_: None))
    return command.make_context("defaults", []).params


def format_flag(option: str) -> str:
    """Return an option as it is typed: noise_scale is --noise-scale."""
    return "--" + option.replace("_", "-")


@contextlib.contextmanager
def name_options_in_errors(keywords: Mapping[str, str]) -> Iterator[None]:
    """Name the option, not the library's keyword, in errors; `keywords` has one per option."""
    try:
        yield
    except InvalidInput as error:
        flags = {keyword: format_flag(option) for option, keyword in keywords.items()}
        error.args = (replace_keywords_by_flags(str(error), flags),)
        raise


def replace_keywords_by_flags(message: str, flags: Mapping[str, str]) -> str:
    """Replace a keyword at the start of a message by its option, n_arms and n_clients anywhere.

    Elsewhere a keyword such as "every" may be an English word.

    >>> flags = {"every": "--checkpoint-every", "n_clients": "--clients"}
    >>> replace_keywords_by_flags("every must be divisible by n_clients", flags)
    '--checkpoint-every must be divisible by --clients'
    """
    named = "|".join(
        [rf"^{keyword}\b" for keyword in flags]
        + [rf"\b{size}\b" for size in ("n_arms", "n_clients") if size in flags]
    )
    return re.sub(named, lambda found: flags[found[0]], message)


def parse_value(context: click.Context, parameter: click.Parameter, text: str) -> Any:
    """Parse a value of --set: a number, true or false, or else a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return parse_whole_number(context, parameter, float(text))
    except ValueError:
        return text


def parse_pairs(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any]:
    """Parse the KEY=VALUE pairs of --set."""
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
    """Parse an option's size: 1e6 becomes 1000000; the library refuses what is not whole."""
    return int(value) if float(value).is_integer() else value


def parse_whole_number_if_given(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> int | float | None:
    """Parse the size that an option gives, which may be left out."""
    return None if value is None else parse_whole_number(context, parameter, value)


def parse_number_or_word(
    context: click.Context, parameter: click.Parameter, value: str
) -> float | str:
    """Parse --record: a number or a word; the library refuses words that it does not have."""
    try:
        return float(value)
    except ValueError:
        return value


# Sizes are floats here, so that 1e6 can be typed; the library refuses what is not whole.
_size_option = make_option_factory("Sizes (the defaults are the paper's setting)")
SIZE_OPTIONS = [
    _size_option(
        "--dim",
        type=float,
        callback=parse_whole_number,
        default=25,
        metavar="d",
        help="Dimension of the contexts. [default: 25]",
    ),
    _size_option(
        "--arms",
        type=float,
        callback=parse_whole_number,
        default=20,
        metavar="K",
        help="Arms per round. [default: 20]",
    ),
    _size_option(
        "--clients",
        type=float,
        callback=parse_whole_number,
        default=20,
        metavar="M",
        help="Number of clients. [default: 20]",
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
_problem_option = make_option_factory("The problem")
SYNTHETIC_OPTIONS = [
    _problem_option(
        "--contexts",
        type=click.Choice(CONTEXT_LAWS),
        default="sphere",
        help="Distribution of contexts. [default: sphere]",
    ),
    _problem_option(
        "--arrival",
        metavar="NAME",
        shell_complete=make_name_completer("arrivals"),
        help="Who plays when: random, round-robin, click-leave, or a plugin's. "
        "[default: random; round-robin where all clients sync together]",
    ),
    _problem_option(
        "--noise-scale",
        type=float,
        metavar="SD",
        help="Standard deviation of noise that is not bounded. [default: 0.1]",
    ),
    _problem_option(
        "--bound", type=float, metavar="R", help="Bound of bounded noise. [default: 1]"
    ),
    _problem_option(
        "--budget",
        type=float,
        metavar="C_p",
        help="What the adversary of corrupted noise may add in total. "
        f"[default: {DEFAULT_BUDGET:g}]",
    ),
    _problem_option(
        "--seed", type=int, default=0, metavar="N", help="Seed of all random numbers. [default: 0]"
    ),
]


def make_problem_options(problem: str, noise: str) -> list[Decorator]:
    """Make the options of a problem; the arguments describe the defaults of two of them."""
    return [
        _problem_option(
            "--problem",
            metavar="NAME",
            shell_complete=make_name_completer("problems"),
            help="What to play on: synthetic, fixed-arms, or a plugin's problem, which takes some "
            f"of the sizes and of the options below. [default: {problem}]",
        ),
        _problem_option(
            "--noise",
            metavar="NAME",
            shell_complete=make_name_completer("noise_models"),
            help=f"Noise: gaussian, bounded, corrupted, or a plugin's. [default: {noise}]",
        ),
        *SYNTHETIC_OPTIONS,
    ]


PROBLEM_OPTIONS = make_problem_options(
    "synthetic; fixed-arms for policies that need fixed arms", "the noise that VARIANT is made for"
)
_algorithm_option = make_option_factory("The algorithm, and what it assumes")
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
        help="Another noise model for radii and widths: gaussian, bounded, … "
        "[default: the variant's]",
    ),
    _algorithm_option(
        "--syncs",
        type=click.Choice(list(SYNCS)),
        help="Who syncs: one client; all after a round; or one, and the server pushes. "
        "[default: the variant's]",
    ),
    _algorithm_option(
        "--lazy/--eager",
        default=None,
        help="Decide from the last download alone, or also from later observations. "
        "[default: the variant's]",
    ),
]
PRESET_OPTION = [
    _algorithm_option(
        "--preset",
        type=click.Choice(PRESETS),
        default="practical",
        help="Where constants that are not given come from. [default: practical]",
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
        help="Period of the periodic trigger, in pulls, or in rounds where all clients sync. "
        "[default: 100]",
    ),
]


def make_constant_options(sigma: str, bound: str, corruption: str, extra: str) -> list[Decorator]:
    """Make the options for an algorithm's constants.

    The arguments describe the defaults of its assumptions about noise, and what --set is for.
    """
    return [
        *PRESET_OPTION,
        _algorithm_option("--sigma", type=float, help=f"Assumed noise level. [default: {sigma}]"),
        _algorithm_option(
            "--R", "-R", "R", type=float, help=f"Assumed bound on noise. [default: {bound}]"
        ),
        _algorithm_option(
            "--corruption",
            type=float,
            metavar="C_p",
            help=f"Assumed corruption. [default: {corruption}]",
        ),
        *OTHER_CONSTANT_OPTIONS,
        _algorithm_option(
            "--set",
            "extra",
            multiple=True,
            callback=parse_pairs,
            metavar="KEY=VALUE",
            help=f"Any other parameter of {extra}. May be repeated.",
        ),
    ]


CONSTANT_OPTIONS = make_constant_options(
    "the problem's; 1 with preset theory",
    "the problem's",
    "the problem's budget",
    "the algorithm, the problem, its noise or its arrival",
)
# A server has no problem to take assumptions from.
LIVE_CONSTANT_OPTIONS = make_constant_options("1", "1", "0", "the algorithm")
_backend_option = make_option_factory("Where it runs")
BACKEND_OPTIONS = [
    _backend_option(
        "--backend",
        default="threads",
        metavar="NAME",
        shell_complete=make_word_completer("threads", "processes", "dask://"),
        help="threads, processes, or dask://HOST:PORT for a running Dask cluster. "
        "[default: threads]",
    ),
    _backend_option(
        "--workers",
        type=int,
        metavar="N",
        help="Runs at a time. [default: one per core; as many as fit on Dask]",
    ),
]
output_option = make_option_factory("Output")
JSON_OPTION = [
    output_option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print JSON to standard output, and nothing else there.",
    )
]


def make_output_options(folder: str) -> list[Decorator]:
    """Make --out, --json and --quiet; `folder` describes the default of --out."""
    out = output_option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Write data, table and figure into this folder, replacing older files. "
        f"[default: {folder}]",
    )
    return [
        out,
        *JSON_OPTION,
        output_option("--quiet", "-q", is_flag=True, help="Show no progress bar and no table."),
    ]


def make_markdown_option(text: str) -> Decorator:
    """Make --markdown, which names a page to write; `text` is its help."""
    return output_option("--markdown", type=FILE_PATH, metavar="FILE", help=text)
