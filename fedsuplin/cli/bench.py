"""`fedsuplin bench`: measure this machine."""

from __future__ import annotations

from pathlib import Path

import click
from rich.progress import BarColumn, TextColumn

from .._shared.terminal import make_console, print_json
from ..microbench.machine import read_load
from ..microbench.measurements import measure_all
from ..microbench.page import write_benchmark_page
from ..microbench.settings import FULL, QUICK
from ..microbench.tables import make_tables
from .manuals import BENCH
from .options import JSON_OPTION, make_markdown_option
from .output import check_folder
from .progress import make_progress
from .sections import SectionedCommand, add_options, make_option_factory

MEASURING_OPTIONS = [
    make_option_factory("Measuring")(
        "--quick", is_flag=True, help="Take a few seconds instead of half a minute; less exact."
    ),
    make_markdown_option(
        "Write a page in Markdown, which also names the machine, the date and the load."
    ),
]


@click.command("bench", cls=SectionedCommand, manual=BENCH)
@add_options(MEASURING_OPTIONS, JSON_OPTION)
def bench_command(quick: bool, markdown: Path | None, as_json: bool) -> None:
    """Measure this machine: the cost of a round and of a layer by size, the share of the FMA
    peak, a sync, drawing, and memory.

    Times are of one core, the best of several. What is compared is measured side by side.
    Takes half a minute.
    """
    if markdown is not None:
        check_folder(markdown.parent)
    busy = read_load()
    with make_progress(TextColumn("measuring {task.description}"), BarColumn()) as bar:
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
