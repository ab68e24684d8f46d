"""`fedsuplin sweep`: play grids from a TOML file."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from .._shared.files import write_csv_rows
from .._shared.terminal import make_console, print_json
from ..study.sweep_file import read_sweep_file
from ..study.sweeps import SweepResult, sweep
from .exit_codes import INTERRUPTED
from .manuals import SWEEP
from .options import BACKEND_OPTIONS, make_output_options, output_option
from .output import (
    check_folder,
    format_value_and_error,
    make_table,
    print_notices_and_files,
    write_figure,
)
from .progress import open_sweep_bar
from .sections import SectionedCommand, add_options

MOST_FAILURES, MOST_ROWS, MOST_COLUMNS = 5, 60, 3  # on the screen; the files have all of them
EXAMPLE_OPTION = [
    output_option(
        "--example",
        is_flag=True,
        help="Print a file to start from, which shows everything that it may contain.",
    )
]


@click.command(
    "sweep",
    cls=SectionedCommand,
    manual=SWEEP,
)
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@add_options(BACKEND_OPTIONS, make_output_options("a folder named after FILE"), EXAMPLE_OPTION)
@click.pass_context
def sweep_command(
    context: click.Context,
    file: Path | None,
    backend: str,
    workers: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    example: bool,
) -> None:
    """Play every combination in FILE (TOML): each policy on each problem with each seed. The
    result is one table and a figure.

    Runs are kept in --out as they end. Start a stopped or killed sweep again, and it continues
    where it stopped. With more seeds or values, only those are played. Failed runs are tried
    again.
    """
    if example and as_json:
        raise click.UsageError("--json is for the results of a sweep; the example is TOML")
    if example:
        click.echo(EXAMPLE_SWEEP, nl=False)
        return
    if file is None:
        raise click.UsageError(
            "Missing argument 'FILE'. `fedsuplin sweep --example` prints one to start from."
        )
    plan = read_sweep_file(file)
    out = out or file.with_name(file.stem if file.suffix else f"{file.name}-sweep")
    check_folder(out)
    with open_sweep_bar(quiet) as show:
        found = sweep(
            **plan,
            folder=out,
            backend=backend,
            workers=workers,
            progress=functools.partial(show, file.stem),
        )
    files, notices = write_sweep_files(found, out)
    print_sweep(found, files, notices, as_json=as_json, quiet=quiet)
    if not found.complete:
        context.exit(INTERRUPTED)
    if found.failed:
        context.exit(1)


def print_sweep(
    found: SweepResult, files: list[Path], notices: list[str], *, as_json: bool, quiet: bool
) -> None:
    """Print what `fedsuplin sweep` found: table, failed runs and files, or JSON."""
    stopped = [] if found.complete else ["stopped: start it again, and it continues from here"]
    if as_json:
        numbers = {"complete": found.complete, "summary": found.summary(), "failed": found.failed}
        print_json(numbers | {"files": files, "notices": [*notices, *stopped]})
        return
    console = make_console()
    if found.rows and not quiet:
        console.print(make_sweep_table(found))
    for row in found.failed[:MOST_FAILURES]:
        point = describe_point(row, (*found.varied, "seed"))
        console.print(f"failed: {point}: {row['error']}", style="yellow")
    if len(found.failed) > MOST_FAILURES:
        more = f"… and {len(found.failed) - MOST_FAILURES} more, in the column error of {files[0]}"
        console.print(more, style="yellow")
    print_notices_and_files(console, stopped, [])
    if not quiet:
        print_notices_and_files(console, notices, files)


def make_sweep_table(found: SweepResult) -> Table:
    """Make the table that `fedsuplin sweep` prints, with one row per point of the grids.

    Every axis that varies has a column; where they are many, all of them share one.
    """
    seeds, rows = len({row["seed"] for row in found.rows}), found.summary()
    over = f"mean ± standard error over {seeds} seeds" if seeds > 1 else "one seed"
    more = f", the first {MOST_ROWS} of {len(rows)} points" if len(rows) > MOST_ROWS else ""
    table = make_table(over + more)
    axes, failed = found.varied or ("policy",), any(row["failed"] for row in rows)
    many = len(axes) > MOST_COLUMNS
    for heading in ("point",) if many else axes:
        table.add_column(
            heading,
            justify="left" if heading in ("policy", "problem", "point") else "right",
            overflow="fold",
        )
    for heading in ("regret", "% of uniform", "communication", *(["failed"] if failed else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows[:MOST_ROWS]:
        point = (
            [describe_point(row, axes)]
            if many
            else ["" if row[axis] is None else str(row[axis]) for axis in axes]
        )
        table.add_row(
            *point, *format_sweep_numbers(row), *([str(row["failed"] or "")] if failed else [])
        )
    return table


def describe_point(row: Mapping[str, Any], axes: Iterable[str]) -> str:
    """Describe a row of the table of `fedsuplin sweep`: its policy, and its value on each axis."""
    return ", ".join(
        str(row[axis]) if axis == "policy" else f"{axis} {row[axis]}"
        for axis in axes
        if row[axis] is not None
    )


def format_sweep_numbers(row: Mapping[str, Any]) -> list[str]:
    """Format the numbers in a row of `fedsuplin sweep`; they are empty if all runs failed."""
    if not row["seeds"]:
        return [""] * 3
    share = row["percent_of_uniform"]
    return [
        format_value_and_error(row, "regret"),
        "" if share is None else f"{share:.2f}",
        format_value_and_error(row, "communication"),
    ]


def write_sweep_files(found: SweepResult, folder: Path) -> tuple[list[Path], list[str]]:
    """Write the files of `fedsuplin sweep`; return them, and notices about missing ones."""
    files = [
        found.write_csv(folder / "table.csv"),
        write_csv_rows(folder / "summary.csv", found.summary()),
    ]
    if any(curve is not None for curve in found.curves):
        files.append(found.write_curves(folder / "curves.csv"))
    figures, notices = write_figure(found.plot, folder / "sweep.png")
    return [*files, *figures], notices


EXAMPLE_SWEEP = """\
# A sweep: every policy on every problem with every seed. A list is an axis.
seeds = 10              # how many, or which: [3, 5, 8]
# record = "log"        # keep the curves too, in curves.csv

[[policy]]              # name, and any keyword of fsl.make
name = "async"
C = [0.1, 1, 10]

[[policy]]              # as many grids as you like; with one, [policy] will do
name = ["sync", "oful"]

[problem]               # name ("synthetic" unless given) and the keywords of that problem
dim = 10
n_arms = 10
n_clients = [5, 20]
noise_scale = 0.1
horizon = 20_000
"""
