"""The options of the command line, in groups, with the small click classes that print them under headings."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from . import completion
from .algorithm import PRESETS, SYNCS
from .errors import InvalidInput
from .manuals import WIDEST_LEFT, Manual
from .problem import CONTEXT_LAWS

DEFAULT_BUDGET = 50.0

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class SectionedCommand(click.Command):
    """Lists options under the heading that each was declared with, between its arguments and the rest of its manual."""

    def __init__(self, *args: Any, manual: Manual, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.manual = manual

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.manual.write_arguments(formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record:
                sections.setdefault(getattr(parameter, "section", "Other options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=WIDEST_LEFT)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.manual.write_rest(formatter)


class SectionedGroup(SectionedCommand, click.Group):
    """The same for a command that has commands of its own, listed below its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class SectionedOption(click.Option):
    """An option that knows the heading it belongs under."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def flag(option: str) -> str:
    return "--" + option.replace("_", "-")


@contextlib.contextmanager
def as_typed(keywords: Mapping[str, str]) -> Iterator[None]:
    """An error about a keyword of the library is told as one about the option that it came from (`keywords` by option)."""
    try:
        yield
    except InvalidInput as error:
        error.args = (in_options(str(error), {keyword: flag(option) for option, keyword in keywords.items()}),)
        raise


def in_options(message: str, flags: Mapping[str, str]) -> str:
    """What is wrong comes first in a message; the names of sizes are no words of English, and may be anywhere.

    >>> in_options("every must be divisible by n_clients", {"every": "--checkpoint-every", "n_clients": "--clients"})
    '--checkpoint-every must be divisible by --clients'
    """
    named = "|".join(
        [rf"^{keyword}\b" for keyword in flags] + [rf"\b{size}\b" for size in ("n_arms", "n_clients") if size in flags]
    )
    return re.sub(named, lambda found: flags[found[0]], message)


def in_section(section: str) -> Callable[..., Decorator]:
    return functools.partial(click.option, cls=SectionedOption, section=section)


def add(*groups: list[Decorator]) -> Decorator:
    """A decorator that adds groups of options, in the order of reading."""
    decorators = [decorator for group in groups for decorator in group]
    return lambda command: functools.reduce(lambda made, decorator: decorator(made), reversed(decorators), command)


def value_of(context: click.Context, parameter: click.Parameter, text: str) -> Any:
    """A number, true or false, or the word itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return whole(context, parameter, float(text))
    except ValueError:
        return text


def pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """key=value of --set."""
    found: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
        found[key] = value_of(context, parameter, text)
    return found


def whole(context: click.Context, parameter: click.Parameter, value: float) -> int | float:
    """1e6, which is a float when it is typed, as the whole number that it is; the library judges any other."""
    return int(value) if float(value).is_integer() else value


def whole_if_given(context: click.Context, parameter: click.Parameter, value: float | None) -> int | float | None:
    return None if value is None else whole(context, parameter, value)


def number_or_word(context: click.Context, parameter: click.Parameter, value: str) -> float | str:
    """--record: a number (1e6 works) or a word; `run` judges which it takes."""
    try:
        return float(value)
    except ValueError:
        return value


# Sizes are floats here, so that 1e6 can be typed; the library insists on whole numbers.
_size = in_section("Sizes (the defaults are the paper's setting)")
SIZES = [
    _size("--dim", type=float, callback=whole, default=25, metavar="d", help="Dimension of contexts. [default: 25]"),
    _size("--arms", type=float, callback=whole, default=20, metavar="K", help="Arms a round. [default: 20]"),
    _size("--clients", type=float, callback=whole, default=20, metavar="M", help="Clients. [default: 20]"),
    _size(
        "--horizon",
        type=float,
        callback=whole,
        default=40_000,
        metavar="T",
        help="Pulls of all clients together. [default: 40000]",
    ),
]

_world = in_section("The problem that is played")
PROBLEM = [
    _world(
        "--problem",
        metavar="NAME",
        shell_complete=completion.names("problems"),
        help="synthetic, fixed-arms or a plugin's, which takes the sizes and options below that it has a use for. "
        "[default: synthetic; fixed-arms for policies that need them]",
    ),
    _world("--contexts", type=click.Choice(CONTEXT_LAWS), default="sphere", help="Law of contexts. [default: sphere]"),
    _world(
        "--arrival",
        metavar="NAME",
        shell_complete=completion.names("arrivals"),
        help="Who plays when: random, round-robin, click-leave or a plugin's. "
        "[default: random; round-robin where all clients sync]",
    ),
    _world(
        "--noise",
        metavar="NAME",
        shell_complete=completion.names("noise_models"),
        help="gaussian, bounded, corrupted or a plugin's. [default: what the variant is made for]",
    ),
    _world("--noise-scale", type=float, metavar="SD", help="Its standard deviation (not of bounded). [default: 0.1]"),
    _world("--bound", type=float, metavar="R", help="Bound of bounded noise. [default: 1]"),
    _world(
        "--budget",
        type=float,
        metavar="C_p",
        help=f"What the adversary of corrupted noise may add in all. [default: {DEFAULT_BUDGET:g}]",
    ),
    _world("--seed", type=int, default=0, help="Of everything random. [default: 0]"),
]

_choice = in_section("The algorithm and what it assumes")
PARTS = [
    _choice(
        "--policy",
        metavar="NAME",
        shell_complete=completion.names("policies"),
        help="Another policy: layered, optimism, … [default: the variant's]",
    ),
    _choice(
        "--trigger",
        metavar="NAME",
        shell_complete=completion.names("triggers"),
        help="Another trigger: determinant, periodic, always, never, … [default: the variant's]",
    ),
    _choice(
        "--weighting",
        metavar="NAME",
        shell_complete=completion.names("weightings"),
        help="Another weighting: unit, variance, corruption, … [default: the variant's]",
    ),
    _choice(
        "--assume",
        metavar="NAME",
        shell_complete=completion.names("noise_models"),
        help="Another noise model to take radii and widths from: gaussian, bounded, … [default: the variant's]",
    ),
    _choice(
        "--syncs",
        type=click.Choice(list(SYNCS)),
        help="Who syncs: one client, all after a round, or one and a push. [default: the variant's]",
    ),
    _choice(
        "--lazy/--eager",
        default=None,
        help="Decide from the last download alone, or from all that was gathered. [default: the variant's]",
    ),
]


def assumed(sigma: str, bound: str, corruption: str) -> list[Decorator]:
    """What an algorithm may be told of the noise; in words where it is from if it is not told."""
    return [
        _choice("--sigma", type=float, help=f"Noise level assumed. [default: {sigma}]"),
        _choice("--R", "-R", "R", type=float, help=f"Noise bound assumed. [default: {bound}]"),
        _choice("--corruption", type=float, metavar="C_p", help=f"Corruption assumed. [default: {corruption}]"),
    ]


PRESET = [
    _choice("--preset", type=click.Choice(PRESETS), default="practical", help="Constants not given. [default: practical]"),
]
OTHER_CONSTANTS = [
    _choice("--theta-bound", type=float, metavar="B", help="Bound on the length of θ. [default: 1]"),
    _choice("--delta", type=float, help="Probability with which the guarantee may fail. [default: 0.05]"),
    _choice("--alpha-scale", type=float, help="Multiplies every confidence radius. [default: the preset's]"),
    _choice("--ridge", type=float, help="Ridge λ of the regression. [default: the preset's]"),
    _choice("--C", "-C", "C", type=float, help="Threshold of the determinant trigger. [default: the preset's]"),
    _choice("--D", "-D", "D", type=float, help="Threshold of the timed-determinant trigger. [default: the preset's]"),
    _choice("--every", type=int, metavar="N", help="Of the periodic trigger: pulls, or rounds where all sync. [default: 100]"),
    _choice(
        "--set",
        "extra",
        multiple=True,
        callback=pairs,
        metavar="KEY=VALUE",
        help="Any other parameter: of a part of the algorithm, of the problem, its noise or its arrival. May be repeated.",
    ),
]
CONSTANTS = [*PRESET, *assumed("the problem's; with preset theory 1", "the problem's", "the problem's budget"), *OTHER_CONSTANTS]
LIVE_CONSTANTS = [*PRESET, *assumed("1", "1", "0"), *OTHER_CONSTANTS]  # of a server, which has no problem to ask

_output = in_section("Output")
RECORD = [
    _output(
        "--record",
        default="log",
        callback=number_or_word,
        metavar="log|all|N",
        shell_complete=completion.words("log", "all"),
        help="Pulls to record: about 400, log-spaced; all; or every N-th. [default: log]",
    ),
]
CHECKPOINT = [
    _output(
        "--checkpoint",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Keep the run in this file as it goes (every minute, at the end, on Ctrl-C), and go on from there if it is there. "
        "[default: nowhere]",
    ),
    _output(
        "--checkpoint-every",
        type=float,
        callback=whole_if_given,
        metavar="N",
        help="Keep it after every N-th pull. [default: every minute]",
    ),
]
JSON = [_output("--json", "as_json", is_flag=True, help="As JSON on standard output, and nothing else there.")]


def output(folder: str) -> list[Decorator]:
    """Where files go, in words where that is not asked for; what is printed."""
    out = _output(
        "--out",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help=f"Write data, table and figure into this folder; files already there are replaced. [default: {folder}]",
    )
    return [out, *JSON, _output("--quiet", "-q", is_flag=True, help="No progress bar and no table.")]


def _markdown(flag: str, words: str) -> Decorator:
    return _output(flag, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=words)


PLACE = [
    _output(
        "--folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=".",
        metavar="FOLDER",
        help="Where to put the package's folder. [default: .]",
    )
]

_sweeping = in_section("Where it runs")
ENGINE = [
    _sweeping(
        "--engine",
        default="threads",
        metavar="NAME",
        shell_complete=completion.words("threads", "processes", "dask://"),
        help="threads, processes, or dask://HOST:PORT for a Dask cluster that is there. [default: threads]",
    ),
    _sweeping("--workers", type=int, metavar="N", help="Runs at a time. [default: one a core; on Dask, all it has room for]"),
]
_reproducing = in_section("How much")
REPRODUCING = [
    _reproducing("--quick", "size", flag_value="quick", help="A minute's version: fewer seeds, shorter horizons."),
    _reproducing("--full", "size", flag_value="full", help="The longest horizons, up to 10⁸ pulls."),
    _reproducing("--seeds", type=int, metavar="N", help="Runs of each case. [default: 20, of the longest fewer; --quick 3]"),
    _reproducing(
        "--movielens",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="A MovieLens release: ml-20m, ml-25m, ml-latest-small, ml-1m, … [default: none; movielens is left out]",
    ),
    _markdown("--markdown", "The page as Markdown too, with its figures in a folder called like FILE beside it."),
]
EXAMPLE = [_output("--example", is_flag=True, help="Print a file to start from, with all that there can be in it.")]

MEASURING = [
    in_section("Measuring")("--quick", is_flag=True, help="A few seconds instead of half a minute, and less exact."),
    _markdown("--markdown", "Write a page in Markdown, which also says on which machine, when and how busy it was."),
]

_comparing = in_section("Comparing")
COMPARING = [
    _comparing("--seeds", type=int, default=10, metavar="N", help="Runs of each policy, seeds --seed and on. [default: 10]"),
    _comparing("--bounds", is_flag=True, help="Draw the bounds of the paper's Table 1 as dashed lines (with the constant 1)."),
    _comparing("--threads", type=int, metavar="N", help="Runs at a time. [default: one a core]"),
]
