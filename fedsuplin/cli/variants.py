"""`fedsuplin variants`: list the variants, or show one's numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich.table import Table

from .._shared.terminal import make_console, print_json
from ..algorithm.algorithm import Algorithm
from ..contracts.variant import AXES, PRESETS, SYNCS
from ..errors import FedsuplinError
from ..registry import Registry, plugins
from .build import build_problem_and_algorithm, read_build_defaults
from .completers import complete_variants
from .manuals import VARIANTS
from .options import JSON_OPTION, SIZE_OPTIONS
from .output import describe_parts, make_table
from .sections import SectionedCommand, add_options


@click.command(
    "variants",
    cls=SectionedCommand,
    manual=VARIANTS,
)
@click.argument("name", required=False, shell_complete=complete_variants)
@add_options(SIZE_OPTIONS, JSON_OPTION)
def variants_command(name: str | None, as_json: bool, **given: Any) -> None:
    """List the variants: what each is, its parts, and the theorem that covers it.

    With NAME, show the numbers that `fedsuplin run NAME` works with, for both presets: radii,
    target widths, thresholds, and whether the guarantee holds. They depend on the sizes.
    """
    if name is not None:
        as_run = read_build_defaults() | given
        print_algorithm_numbers(
            [
                build_problem_and_algorithm(name, as_run | {"preset": preset})[1]
                for preset in PRESETS
            ],
            as_json,
        )
        return
    rows = list_variant_rows(plugins)
    if as_json:
        print_json(rows)
    else:
        make_console().print(make_variants_table(rows))


def print_algorithm_numbers(algorithms: list[Algorithm], as_json: bool) -> None:
    """Print the numbers that `fedsuplin variants` shows of one variant, by preset."""
    if as_json:
        print_json(
            {algorithm.preset: collect_algorithm_numbers(algorithm) for algorithm in algorithms}
        )
    else:
        click.echo(
            "\n\n".join(
                fold_lines(str(algorithm), make_console().width) for algorithm in algorithms
            )
        )


def collect_algorithm_numbers(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm as `fedsuplin variants --json` prints it: specification and numbers."""
    return {
        **algorithm.spec,
        "radii": algorithm.radii.tolist(),
        "radius_growth": list(algorithm.radius_growth),
        "target_widths": algorithm.target_widths.tolist(),
        "theorem": algorithm.theorem,
        "departures": algorithm.departures(),
    }


def fold_lines(text: str, width: int) -> str:
    """Wrap lines in the table of `fedsuplin variants`; continuations are indented."""
    wrap = textwrap.TextWrapper(
        width, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrap.fill(line) for line in text.splitlines())


def list_variant_rows(registry: Registry) -> list[dict[str, Any]]:
    """Return the rows of `fedsuplin variants`, with an error for one that can't be made."""
    rows = []
    for name in registry.names("variants"):
        try:
            variant = registry.create("variants", name, {})
        except FedsuplinError as error:
            rows.append({"name": name, "error": str(error)})
            continue
        parts = {
            axis: part if isinstance(part := getattr(variant, axis), str) else repr(part)
            for axis in AXES
        }
        rest = {key: getattr(variant, key) for key in ("summary", "syncs", "lazy", "theorem")}
        rows.append({"name": name, **rest, **parts})
    return rows


def make_variants_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Make the table that `fedsuplin variants` prints."""
    table = make_table()
    for heading, ratio in (("variant", None), ("what it is", 2), ("made of", 3)):
        table.add_column(
            heading, ratio=ratio, overflow="fold", style="bold" if heading == "variant" else None
        )
    for row in rows:
        table.add_row(
            row["name"],
            *(
                ("", row["error"])
                if "error" in row
                else (describe_variant(row), describe_composition(row))
            ),
            end_section=True,
        )
    return table


def describe_variant(row: Mapping[str, Any]) -> str:
    """Return the summary of a variant and its theorem, for `fedsuplin variants`."""
    return f"{row['summary']}\n({row['theorem'] or 'no theorem of the paper'})"


def describe_composition(row: Mapping[str, Any]) -> str:
    """Describe a variant for `fedsuplin variants`: parts, who syncs, what decisions use."""
    decides = (
        "lazy (decides from the last download)"
        if row["lazy"]
        else "eager (decides from all that it has)"
    )
    return f"{describe_parts(row)}\n{SYNCS[row['syncs']]}\n{decides}"
