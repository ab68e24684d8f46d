"""The page of `fedsuplin bench` in Markdown."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from .._shared.files import open_atomically
from .._shared.version import __version__
from ..errors import MissingExtra
from ..view.benchmark_figure import draw_rounds
from ..view.markdown import format_markdown_table
from .machine import read_processor_name
from .tables import (
    LEGEND,
    list_facts,
    make_costs_table,
    make_peers_table,
    make_rounds_table,
    make_widths_table,
)


def write_benchmark_page(
    path: Path, numbers: dict[str, Any], *, quick: bool, busy: float | None
) -> tuple[list[Path], list[str]]:
    """Write the benchmark page in Markdown: the tables, with how, when and where they were made.

    Returns the files written, and a notice if there is no chart because matplotlib is missing.
    """
    shown = path.name if path.is_absolute() else path
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    circumstances = {
        "command": f"`fedsuplin bench{' --quick' if quick else ''} --markdown {shown}`",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": f"fedsuplin {__version__}, Python {python}, NumPy {np.__version__}",
        "machine": f"{read_processor_name()}, {system}, {os.cpu_count()} cores, one measured",
        "load before": "not known" if busy is None else f"{busy:.1f}{format_load_warning(busy)}",
    }
    chart, notices = path.with_suffix(".png"), []
    files, picture = [path, chart], f"![A round beside NumPy and peers]({chart.name})"
    try:
        draw_rounds(numbers["rounds"], numbers["peers"], chart)
    except MissingExtra as error:
        files, notices = [path], [f"no chart: {error}"]
        picture = "There is no chart: matplotlib was not installed when this page was made."
    page = f"""\
# Benchmarks

`fedsuplin bench` measured this on one core. Each is CPU time, the best of several, and what is
compared is timed side by side. How the engine gets there is in
[The engine and what it costs](speed.md).
This page is made by the command below.

{format_markdown_table(("", ""), circumstances.items())}

## The machine

{format_markdown_table(("", ""), list_facts(numbers))}

## Widths and estimates of one layer

{format_page_table(make_widths_table(numbers["widths"]))}

## A whole round

{format_page_table(make_rounds_table(numbers["rounds"]))}

## Other libraries

{format_page_table(make_peers_table(numbers["peers"]))}

{LEGEND}

{picture}
"""
    with open_atomically(path, encoding="utf-8") as file:
        file.write(page)
    return files, notices


def format_load_warning(busy: float) -> str:
    """Return the benchmark page's warning if the machine was busy, else nothing."""
    if busy < 0.5 * (os.cpu_count() or 1):
        return ""
    return (
        ". Other processes wanted the cores while this was measured: "
        "read ratios, not times, and measure again on a quiet machine"
    )


def format_page_table(table: Table) -> str:
    """Return a table of the terminal in Markdown, for the benchmark page."""
    heads = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    return format_markdown_table(heads, rows, numbers_from=1)


def format_costs_page(rows: list[dict[str, Any]]) -> str:
    """Return the page of `fedsuplin bench NAMES` in Markdown: its table, and where it was made."""
    return f"""\
# What a round costs

{format_page_table(make_costs_table(rows))}

CPU time on one core of {read_processor_name()}, the best of {rows[0]["turns"]} turns.
±%: how much longer the median turn took; times: against the first row of this size.
Shares are of the loop.
"""
