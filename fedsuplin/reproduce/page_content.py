"""What the HTML page and the Markdown page of `fedsuplin reproduce` have in common."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from .._shared.version import __version__
from .experiment import Experiment, Measured, Options, Outcome
from .formatting import format_number, format_with_error
from .verdicts import FAILS, HOLDS, OPEN

MARKS = {HOLDS: ("✓", "good"), FAILS: ("✗", "bad"), OPEN: ("?", "open")}
"""Sign and style class of each outcome."""


def describe_circumstances(outcomes: Sequence[Outcome], options: Options) -> dict[str, str]:
    """Return command, versions, machine and time in words, as the content of both pages."""
    names = " ".join(outcome.experiment.name for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    return {
        "command": f"fedsuplin reproduce {names}{format_flags(options)}",
        "versions": f"fedsuplin {__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seconds": f"{seconds:.0f}, without runs kept from an earlier start",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def format_command(experiment: Experiment) -> str:
    """Return the command that runs one experiment, as both pages show it."""
    return f"fedsuplin reproduce {experiment.name}{format_flags(experiment.options)}"


def format_flags(options: Options) -> str:
    """Return options as they stand on the command line that both pages show."""
    size = "" if options.size == "normal" else f" --{options.size}"
    seeds = "" if options.seeds is None else f" --seeds {options.seeds}"
    movielens = "" if options.movielens is None else f" --movielens {options.movielens.name}"
    return f"{size}{seeds}{movielens}"


def explain_no_verdicts(outcome: Outcome) -> str:
    """Return why an experiment has no verdicts, as both pages say it."""
    if outcome.missing is not None:
        return f"not run: {outcome.missing}"
    failed = outcome.sweep.failed
    if failed:
        return f"{len(failed)} runs failed, the first with {failed[0]['error']}"
    return "stopped before its end"


def count_outcomes(outcome: Outcome) -> dict[str, int]:
    """Return how many claims of an experiment hold, fail or stay open, for both pages."""
    return {which: sum(each.outcome == which for each in outcome.verdicts) for which in MARKS}


def tabulate_means(
    experiment: Experiment, measured: Measured
) -> tuple[list[str], list[tuple[list[str], list[str]]]]:
    """Return heads and rows of the table of means that both pages have, one row per case.

    A row has labels and numbers.
    """
    labels, measures = measured.labels, experiment.measures
    cases: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in measured.summarise(measures):
        cells = cases.setdefault(tuple(row[name] for name in labels), {})
        cells[row["measure"]] = format_with_error(row["mean"], row["error"])
    heads = [head.replace("_", " ") for head in (*labels, *measures)]
    return heads, [
        ([format_label(value) for value in case], [cells[what] for what in measures])
        for case, cells in cases.items()
    ]


def format_label(value: Any) -> str:
    """Return the label of a case as text for the table of means on both pages."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return format_number(value) if is_number else str(value)
