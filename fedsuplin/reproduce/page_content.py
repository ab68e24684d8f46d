"""One self-contained HTML page with every figure, table, setting and version: to be mailed to a colleague as it is."""

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


def describe_circumstances(outcomes: Sequence[Outcome], options: Options) -> dict[str, str]:
    """Versions, machine and time, from the runs themselves where they say it."""
    names = " ".join(outcome.experiment.name for outcome in outcomes)
    return {
        "command": f"fedsuplin reproduce {names}{format_flags(options)}",
        "versions": f"fedsuplin {__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seconds": f"{sum(outcome.seconds for outcome in outcomes):.0f}, less what was there from an earlier start",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def format_command(experiment: Experiment) -> str:
    return f"fedsuplin reproduce {experiment.name}{format_flags(experiment.options)}"


def format_flags(options: Options) -> str:
    size = "" if options.size == "normal" else f" --{options.size}"
    seeds = "" if options.seeds is None else f" --seeds {options.seeds}"
    return f"{size}{seeds}" + (
        "" if options.movielens is None else f" --movielens {options.movielens.name}"
    )


def explain_no_verdicts(outcome: Outcome) -> str:
    """Why an experiment has no verdicts."""
    if outcome.missing is not None:
        return f"not run: {outcome.missing}"
    if outcome.sweep.failed:
        return f"{len(outcome.sweep.failed)} runs failed, the first with {outcome.sweep.failed[0]['error']}"
    return "stopped before its end"


def tabulate_means(
    experiment: Experiment, measured: Measured
) -> tuple[list[str], list[tuple[list[str], list[str]]]]:
    """Heads, and a row a case: what tells it apart, and its measures, a column each."""
    labels, measures = measured.labels, experiment.measures
    cases: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in measured.summary(measures):
        cells = cases.setdefault(tuple(row[name] for name in labels), {})
        cells[row["measure"]] = format_with_error(row["mean"], row["error"])
    heads = [head.replace("_", " ") for head in (*labels, *measures)]
    return heads, [
        ([format_label(value) for value in case], [cells[what] for what in measures])
        for case, cells in cases.items()
    ]


def format_label(value: Any) -> str:
    return (
        format_number(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else str(value)
    )
