"""`fedsuplin bench`: measure this machine, or what a round of some policies costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, TextColumn

from .._shared.files import open_atomically
from .._shared.terminal import make_console, print_json
from ..microbench.machine import read_load
from ..microbench.measurements import measure_all
from ..microbench.opponents import OPPONENTS
from ..microbench.page import format_costs_page, write_benchmark_page
from ..microbench.round_costs import Benchmark, benchmark
from ..microbench.settings import FULL, PAPER, QUICK
from ..microbench.tables import make_costs_table, make_tables
from .completers import complete_variants, make_name_completer
from .manuals import BENCH
from .options import FILE_PATH, JSON_OPTION, make_markdown_option, output_option, parse_pairs
from .output import check_folder, print_notices_and_files, write_figure
from .progress import make_progress
from .sections import SectionedCommand, add_options, make_option_factory

LARGEST = 4096  # of d and K: a layer of d = 4096 has 128 MB
_measuring_option = make_option_factory("Measuring")
_rounds_option = make_option_factory("With names")


def parse_sizes(context: click.Context, parameter: click.Parameter, text: str) -> list[int]:
    """Parse sizes: a whole number of at least 1, or several with commas between them."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a whole number, nor several such as 5,25,64"
        ) from None
    for size in sizes:
        if not 1 <= size <= LARGEST:
            raise click.BadParameter(f"{size} is not between 1 and {LARGEST}")
    return sizes


MEASURING_OPTIONS = [
    _measuring_option(
        "--quick", is_flag=True, help="Take a few seconds instead of half a minute; less exact."
    ),
    _rounds_option(
        "--against",
        metavar="NAME",
        shell_complete=complete_variants,
        help=f"What to compare with: a policy, or one of {', '.join(OPPONENTS)}. "
        "[default: nothing]",
    ),
    _rounds_option(
        "--trigger",
        metavar="NAME",
        shell_complete=make_name_completer("triggers"),
        help="Another trigger for NAMES, as in `fedsuplin run`. [default: the variant's]",
    ),
    _rounds_option(
        "--weighting",
        metavar="NAME",
        shell_complete=make_name_completer("weightings"),
        help="Another weighting for NAMES. [default: the variant's]",
    ),
    _rounds_option(
        "--set",
        "extra",
        multiple=True,
        callback=parse_pairs,
        metavar="KEY=VALUE",
        help="Any other parameter of NAMES. May be repeated.",
    ),
    _rounds_option(
        "--dim",
        default=str(PAPER["dim"]),
        callback=parse_sizes,
        metavar="d",
        help="Dimension, or several: 5,25,64. [default: 25]",
    ),
    _rounds_option(
        "--arms",
        default=str(PAPER["n_arms"]),
        callback=parse_sizes,
        metavar="K",
        help="Arms per round, or several. [default: 20]",
    ),
    _rounds_option(
        "--clients",
        type=click.IntRange(min=1),
        default=PAPER["n_clients"],
        metavar="M",
        help="Number of clients. [default: 20]",
    ),
    _rounds_option(
        "--turns",
        type=click.IntRange(min=1),
        metavar="N",
        help="How often each is timed; the best counts. [default: 8, or 3 with --quick]",
    ),
    make_markdown_option(
        "Write a page in Markdown, which also names the machine, the date and the load."
    ),
    output_option(
        "--figure",
        type=FILE_PATH,
        metavar="FILE",
        help="With names: write a figure of µs per round over d and K.",
    ),
]


@click.command("bench", cls=SectionedCommand, manual=BENCH)
@click.argument("names", nargs=-1, shell_complete=complete_variants)
@add_options(MEASURING_OPTIONS, JSON_OPTION)
def bench_command(
    names: tuple[str, ...],
    quick: bool,
    markdown: Path | None,
    figure: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure what a round of NAMES costs, and which stages cost it. Without names, measure this
    machine: the cost of a round and of a layer by size, the share of the FMA peak, a sync,
    drawing, and memory.

    Times are CPU times of one core, the best of several. What is compared is measured side by
    side, after its answers were compared. Without names this takes half a minute.
    """
    for file in (markdown, figure):
        if file is not None:
            check_folder(file.parent)
    if not names and (figure is not None or given["against"] is not None):
        raise click.UsageError("--figure and --against need NAMES, such as async")
    if not names and (given["turns"] is not None or given["extra"]):
        raise click.UsageError("--turns and --set need NAMES, such as async")
    busy = read_load()
    with make_progress(TextColumn("measuring {task.description}"), BarColumn()) as bar:
        task = bar.add_task("the FMA peak", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        if names:
            found = measure_names(names, quick, given, show)
        else:
            numbers = measure_all(QUICK if quick else FULL, show)
    if names:
        print_costs(found, markdown, figure, as_json=as_json)
        return
    if as_json:
        print_json(numbers)
    else:
        make_console().print(make_tables(numbers))
    if markdown is not None:
        files, notices = write_benchmark_page(markdown, numbers, quick=quick, busy=busy)
        print_notices_and_files(make_console(stderr=as_json), notices, files)


def measure_names(
    names: tuple[str, ...], quick: bool, given: dict[str, Any], show: Any
) -> Benchmark:
    """Measure the rounds of `fedsuplin bench NAMES`."""
    parts = {part: given[part] for part in ("trigger", "weighting") if given[part] is not None}
    return benchmark(
        list(names),
        against=given["against"],
        dim=given["dim"],
        n_arms=given["arms"],
        n_clients=given["clients"],
        turns=given["turns"] or (3 if quick else 8),
        progress=show,
        **parts,
        **given["extra"],
    )


def print_costs(
    found: Benchmark, markdown: Path | None, figure: Path | None, *, as_json: bool
) -> None:
    """Print what `fedsuplin bench NAMES` measured, and write its page and figure if asked."""
    files, notices = write_figure(found.plot, figure) if figure is not None else ([], [])
    if markdown is not None:
        with open_atomically(markdown, encoding="utf-8") as file:
            file.write(format_costs_page(found.rows))
        files = [markdown, *files]
    if as_json:
        print_json({"rows": found.rows, "notices": notices, "files": files})
        return
    console = make_console()
    console.print(make_costs_table(found.rows))
    print_notices_and_files(console, notices, files)
