"""`fedsuplin compare`: play several policies on one problem."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click
from rich.progress import TextColumn
from rich.table import Table

from .._shared.checks import check_positive_integer
from .._shared.terminal import make_console, print_json
from ..study.comparison import Comparison, compare
from .build import BUILD_KEYWORDS, build_comparison
from .completers import complete_variants
from .exit_codes import INTERRUPTED
from .manuals import COMPARE
from .options import (
    CONSTANT_OPTIONS,
    SIZE_OPTIONS,
    make_output_options,
    make_problem_options,
    name_options_in_errors,
)
from .output import (
    check_folder,
    format_value_and_error,
    make_table,
    print_notices_and_files,
    write_figure,
)
from .progress import make_progress_bar
from .sections import SectionedCommand, add_options, make_option_factory

_comparing_option = make_option_factory("Comparing")
COMPARING_OPTIONS = [
    _comparing_option(
        "--seeds",
        type=int,
        default=10,
        metavar="N",
        help="Runs of each policy; their seeds begin at --seed. [default: 10]",
    ),
    _comparing_option(
        "--bounds",
        is_flag=True,
        help="Draw the bounds of the paper's Table 1 as dashed lines, with the constant 1.",
    ),
    _comparing_option(
        "--threads", type=int, metavar="N", help="Runs at a time. [default: one per core]"
    ),
]


@click.command(
    "compare",
    cls=SectionedCommand,
    manual=COMPARE,
)
@click.argument("policies", nargs=-1, shell_complete=complete_variants)
@add_options(
    COMPARING_OPTIONS,
    SIZE_OPTIONS,
    make_problem_options("synthetic", "gaussian"),
    CONSTANT_OPTIONS,
    make_output_options("nothing is written"),
)
@click.pass_context
def compare_command(
    context: click.Context,
    /,
    policies: tuple[str, ...],
    seeds: int,
    bounds: bool,
    threads: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Play POLICIES on the same problem with the same seeds. Shows means with standard errors,
    and the paper's Table 1 with what was measured.

    A constant such as --alpha-scale goes to every policy that takes it; without one, each policy
    has its preset's. Ctrl-C keeps the runs that were finished.
    """
    if out is not None:
        check_folder(out)
    names, make_problem, keywords = build_comparison(policies, given)
    bar = make_progress_bar(quiet, TextColumn("{task.completed:.0f} of {task.total:.0f} runs"))
    with bar, name_options_in_errors(BUILD_KEYWORDS):
        task = bar.add_task("comparing", total=seeds * len(names))
        found = compare(
            names,
            make_problem,
            seeds=range(given["seed"], given["seed"] + check_positive_integer("--seeds", seeds)),
            horizon=check_positive_integer("horizon", given["horizon"]),
            threads=threads,
            progress=lambda done, total, name: bar.update(task, completed=done, description=name),
            **keywords,
        )
    files: list[Path] = []
    notices: list[str] = []
    if out is not None and found.runs:  # without runs, the files of an earlier comparison stay
        files, notices = write_comparison_files(found, out, bounds)
    print_comparison(found, files, notices, as_json=as_json, quiet=quiet)
    if not found.complete:
        context.exit(INTERRUPTED)


def print_comparison(
    found: Comparison, files: list[Path], notices: list[str], *, as_json: bool, quiet: bool
) -> None:
    """Print what `fedsuplin compare` found: tables and files, or JSON."""
    notices = [*notices, *([] if found.complete else [describe_stopped_comparison(found)])]
    if as_json:
        data = {
            "policies": found.rows(),
            "seeds": list(found.played),
            "complete": found.complete,
            "notices": notices,
        }
        print_json(data | {"files": files})
        return
    if quiet:
        return
    console = make_console()
    if found.runs:
        console.print(make_comparison_table(found))
    if any(row["system"] for row in found.rows()):
        console.print(make_table_1(found))
    print_notices_and_files(console, notices, files)


def describe_stopped_comparison(found: Comparison) -> str:
    """Describe what Ctrl-C left of the comparison of `fedsuplin compare`."""
    if not found.runs:
        return "stopped before any run was finished: nothing was written"
    without = [policy for policy in found.algorithms if policy not in found.runs]
    return f"stopped early: {found.seeds_in_words} played" + (
        f", none of {', '.join(without)}" if without else ""
    )


def make_comparison_table(found: Comparison) -> Table:
    """Make the table that `fedsuplin compare` prints, with the least regret first."""
    algorithm = next(iter(found.algorithms.values()))
    setting = algorithm.setting
    sizes = f"d={setting.dim}, K={setting.n_arms}, M={setting.n_clients}, T={setting.horizon:,}"
    table = make_table(f"{sizes}, preset {algorithm.preset}\n{found.description}")
    for heading in ("policy", "regret", "% of uniform", "communication", "kB sent", "µs"):
        table.add_column(
            heading, justify="left" if heading == "policy" else "right", overflow="fold"
        )
    for row in sorted(found.rows(), key=lambda row: row["regret"]):
        share = row["percent_of_uniform"]
        table.add_row(
            row["policy"],
            format_value_and_error(row, "regret"),
            "" if share is None else f"{share:.{1 if share >= 1 else 2}f}",
            format_value_and_error(row, "communication"),
            f"{(row['bytes_up'] + row['bytes_down']) / 1000:,.0f}",
            f"{row['microseconds']:.2f}",
        )
    return table


def make_table_1(found: Comparison) -> Table:
    """Make the paper's Table 1 for `fedsuplin compare`: orders, and what was measured."""
    table = make_table("Table 1 of the paper: orders of growth, and measured")
    for heading in ("policy", "system and arms", "regret", "measured", "communication", "measured"):
        table.add_column(
            heading,
            justify="right" if heading == "measured" else "left",
            no_wrap=heading in ("policy", "regret"),
        )
    for row in found.rows():
        if row["system"]:
            communication = (row["communication_bound"] or "none", f"{row['communication']:,.0f}")
            regret = (row["regret_bound"], f"{row['regret']:,.0f}")
            table.add_row(
                row["policy"], f"{row['system']}, {row['actions']}", *regret, *communication
            )
    return table


def write_comparison_files(
    found: Comparison, folder: Path, bounds: bool
) -> tuple[list[Path], list[str]]:
    """Write the files of `fedsuplin compare`; return them, and notices about missing ones."""
    files = [found.write_csv(folder / "comparison.csv"), found.write_curves(folder / "curves.csv")]
    figures, notices = write_figure(
        functools.partial(found.plot, bounds=bounds), folder / "comparison.png"
    )
    return [*files, *figures], notices
