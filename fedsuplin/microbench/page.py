"""What this machine does, in a minute: the numbers and tables of `fedsuplin bench`.

Whatever is compared is measured side by side, the timings taking turns, and the best of each counts: a noisy neighbour slows a
core down for seconds, nothing speeds it up. The NumPy LinUCB that everything is compared with is here too; `bench/` uses it.
"""

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
from ..view.markdown import format_markdown_table
from .machine import read_processor_name
from .tables import LEGEND, list_facts, make_rounds_table, make_widths_table


def write_benchmark_page(
    path: Path, numbers: dict[str, Any], *, quick: bool, busy: float | None
) -> Path:
    """The tables in Markdown, with what made them."""
    told = {
        "command": f"`fedsuplin bench{' --quick' if quick else ''} --markdown {path.name if path.is_absolute() else path}`",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": f"fedsuplin {__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
        "machine": f"{read_processor_name()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, of which one is measured",
        "load before": "not known" if busy is None else f"{busy:.1f}{format_load_warning(busy)}",
    }
    page = f"""\
# Benchmarks

What `fedsuplin bench` measured, on one core; the best of several, and what is compared is timed side by side. How the engine gets
there is in [The engine and what it costs](speed.md). This page is made by the command below.

{format_markdown_table(("", ""), told.items())}

## The machine

{format_markdown_table(("", ""), list_facts(numbers))}

## Widths and estimates of one layer

{format_page_table(make_widths_table(numbers["widths"]))}

## A whole round

{format_page_table(make_rounds_table(numbers["rounds"]))}

{LEGEND}
"""
    with open_atomically(path, encoding="utf-8") as file:
        file.write(page)
    return path


def format_load_warning(busy: float) -> str:
    """A warning for the reader, where others were at work."""
    if busy < 0.5 * (os.cpu_count() or 1):
        return ""
    return ". Other processes wanted the cores while this was measured: read ratios, not times, and measure again on a quiet machine"


def format_page_table(table: Table) -> str:
    heads = [str(column.header) for column in table.columns]
    return format_markdown_table(
        heads, zip(*(column.cells for column in table.columns), strict=True), numbers_from=1
    )
