"""The options of the command line, in groups, with the small click classes that print them under headings."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from .._shared.terminal import make_console, print_json
from ..microbench.machine import read_load
from ..microbench.measurements import measure_all
from ..microbench.page import write_benchmark_page
from ..microbench.settings import FULL, QUICK
from ..microbench.tables import make_tables
from .manuals import BENCH
from .options import JSON_OPTION, make_markdown_option
from .output import check_folder
from .sections import SectionedCommand, add_options, make_option_factory

MEASURING_OPTIONS = [
    make_option_factory("Measuring")(
        "--quick", is_flag=True, help="A few seconds instead of half a minute, and less exact."
    ),
    make_markdown_option(
        "--markdown",
        "Write a page in Markdown, which also says on which machine, when and how busy it was.",
    ),
]


@click.command("bench", cls=SectionedCommand, manual=BENCH)
@add_options(MEASURING_OPTIONS, JSON_OPTION)
def bench_command(quick: bool, markdown: Path | None, as_json: bool) -> None:
    """Measure what this machine does: a round and a layer by size, share of the FMA peak, a sync, drawing, memory.

    Times are of one core, the best of several, and what is compared is measured side by side. Takes half a minute.
    """
    if markdown is not None:
        check_folder(markdown.parent)
    busy = read_load()
    columns = (TextColumn("measuring {task.description}"), BarColumn())
    bar = Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    )
    with bar:
        task = bar.add_task("the FMA peak", total=None)
        numbers = measure_all(
            QUICK if quick else FULL,
            lambda what, done, total: bar.update(
                task, description=what, completed=done, total=total
            ),
        )
    if as_json:
        print_json(numbers)
    else:
        make_console().print(make_tables(numbers))
    if markdown is not None:
        write_benchmark_page(markdown, numbers, quick=quick, busy=busy)
        click.echo(f"wrote {markdown}", err=as_json)
