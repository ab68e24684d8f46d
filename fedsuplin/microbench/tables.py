"""The tables of `fedsuplin bench` in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from .settings import HORIZON, PAPER
from .timing import count_width_flops

LEGEND = """\
All times in µs of CPU. layers: looked at, on average; drawing: its contexts,
besides the loop; NumPy: a one-layer LinUCB round, and how many times ours it
takes; same job: NumPy that does what async does, over the first rounds, and
how many times ours over the same rounds it takes. A peer's round is that of a
one-layer LinUCB, and so is the one of oful beside it."""


def make_tables(numbers: dict[str, Any]) -> Group:
    """Return all benchmark tables and their legend."""
    return Group(
        make_machine_table(numbers),
        make_widths_table(numbers["widths"]),
        make_rounds_table(numbers["rounds"]),
        make_peers_table(numbers["peers"]),
        LEGEND,
    )


def make_machine_table(numbers: dict[str, Any]) -> Table:
    """Return the first benchmark table: the facts about the machine and the engine."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in list_facts(numbers):
        table.add_row(*row)
    return table


def list_facts(numbers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of the first benchmark table: name and text of each fact measured."""
    d, k, m = PAPER.values()
    talk = numbers["communication"]
    step, factorisation = numbers["sync"].values()
    yield "code path", f"{numbers['kernels']} (this CPU can run {', '.join(numbers['available'])})"
    yield (
        "FMA peak",
        f"{numbers['fma_gigaflops']:.1f} Gflop/s in double precision with "
        f"{numbers['available'][0]}, one core, measured",
    )
    yield (
        "a sync",
        f"{step:.2f} µs per observation, or {factorisation:.2f} µs for many at once, "
        "in each layer uploaded",
    )
    yield (
        "many syncs",
        f"a round of async with C=1/M², where {talk['many_syncs_a_pull']:.0%} of pulls sync, takes "
        f"{talk['many_microseconds']:.2f} µs, {talk['ratio']:.2f} times one with C=1",
    )
    yield (
        "memory",
        f"{numbers['memory']['idle_client']:,.0f} bytes for a client that has not played, d={d}",
    )
    yield (
        "paper's setting",
        f"d={d}, K={k}, M={m}, T={HORIZON:,}; practical preset; best of several",
    )


def make_widths_table(rows: list[dict[str, Any]]) -> Table:
    """Return the benchmark table of widths: µs and Gflop/s of one layer, one row per size."""
    table = make_plain_table("kernel", "d", "K", "µs", "Gflop/s", "% of peak")
    for row in rows:
        rate = count_width_flops(row["dim"], row["n_arms"]) / row["microseconds"] / 1e3
        cells = (f"{row['microseconds']:,.2f}", f"{rate:.1f}", f"{100 * row['share_of_peak']:.0f}")
        table.add_row("widths", str(row["dim"]), str(row["n_arms"]), *cells)
    return keep_numbers_whole(table)


def make_rounds_table(rows: list[dict[str, Any]]) -> Table:
    """Return the benchmark table of rounds: µs of the loop, of drawing, and of the NumPy LinUCB."""
    table = make_plain_table(
        "a round of",
        "d",
        "K",
        "µs",
        "layers",
        "per layer",
        "drawing",
        "NumPy",
        "times",
        "same job",
        "times",
    )
    for row in rows:
        table.add_row(
            row["variant"],
            str(row["dim"]),
            str(row["n_arms"]),
            f"{row['microseconds']:.2f}",
            f"{row['layers']:.1f}",
            f"{row['microseconds_a_layer']:.2f}",
            f"{row['microseconds_drawing']:.2f}",
            f"{row['numpy_microseconds']:.1f}",
            f"{row['times_numpy']:.1f}",
            *(
                "" if row[key] is None else f"{row[key]:.1f}"
                for key in ("layered_microseconds", "times_layered")
            ),
        )
    return keep_numbers_whole(table)


def make_peers_table(rows: list[dict[str, Any]]) -> Table:
    """Return the benchmark table of other libraries; one that is missing has its row too."""
    table = make_plain_table("a round of", "d", "K", "µs", "oful µs", "times", "job")
    for row in rows:
        name = row["peer"] if row["version"] is None else f"{row['peer']} {row['version']}"
        numbers = ("microseconds", ".1f"), ("ours", ".2f"), ("times", ".0f")
        table.add_row(
            name,
            str(row["dim"]),
            str(row["n_arms"]),
            *("–" if row[key] is None else format(row[key], how) for key, how in numbers),
            row["trouble"] or row["job"],
        )
    keep_numbers_whole(table)
    table.columns[-1].min_width = None  # words, which may fold
    return table


SHOWN_STAGES = ("kernels", "screening", "update", "rule", "sync", "other")


def make_costs_table(rows: list[dict[str, Any]]) -> Table:
    """Return the table of `fedsuplin bench NAMES`: µs per round, and each stage's share in %."""
    table = make_plain_table(
        "a round of", "d", "K", "µs", "±%", "times", *(f"{s[:6]}%" for s in SHOWN_STAGES), "draw µs"
    )
    for row in rows:
        shares = [
            f"{100 * row['stages'][stage] / row['microseconds']:.0f}" if row["stages"] else ""
            for stage in SHOWN_STAGES
        ]
        table.add_row(
            row["policy"],
            str(row["dim"]),
            str(row["n_arms"]),
            f"{row['microseconds']:.2f}",
            f"{100 * row['spread']:.0f}",
            f"{row['times']:.2f}",
            *shares,
            "" if row["drawing"] is None else f"{row['drawing']:.2f}",
        )
    return keep_numbers_whole(table)


def make_plain_table(what: str, *numbers: str) -> Table:
    """Return an empty benchmark table with words on the left and numbers on the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column(what, style="bold", overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def keep_numbers_whole(table: Table) -> Table:
    """Make a benchmark table fold headings and words in a narrow terminal, never numbers."""
    for column in table.columns[1:]:
        column.min_width = max((len(str(cell)) for cell in column.cells), default=0)
    return table
