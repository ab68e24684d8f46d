"""The output that several commands share: folders, tables, figures and notices."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from ..errors import InvalidInput, MissingExtra


def check_folder(folder: Path) -> None:
    """Make a folder and write a file in it, so that a long run does not fail at its end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (FileExistsError, NotADirectoryError) as error:  # trying again won't help
        raise InvalidInput(f"can't write to --out {folder}: it is not a folder") from error
    except OSError as error:
        reason = error.strerror or error
        raise click.ClickException(f"can't write to --out {folder}: {reason}") from error


def write_figure(draw: Callable[[Path], Any], path: Path) -> tuple[list[Path], list[str]]:
    """Draw a figure into a file; return the files written, and notices if a package is missing."""
    try:
        draw(path)
    except MissingExtra as error:
        return [], [f"no figure: {error}"]
    return [path], []


def print_notices_and_files(
    console: Console, notices: Iterable[str], files: Iterable[Path]
) -> None:
    """Print what a reader of the table should know besides, and which files were written."""
    for notice in notices:
        console.print(notice, style="yellow")
    for file in files:
        console.print(f"wrote {file}", soft_wrap=True)


def make_table(title: str | None = None) -> Table:
    """Make an empty table with a line below its headings and none around it."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title)


def format_value_and_error(row: Mapping[str, Any], what: str) -> str:
    """Format a mean and its standard error, which one seed alone does not have."""
    value, error = row[what], row[f"{what}_error"]
    digits = 0 if value >= 1000 else 1
    known = error is not None and not math.isnan(error) and value
    return f"{value:,.{digits}f}" + (f" ± {error:,.{digits}f}" if known else "")


def describe_parts(parts: Mapping[str, str]) -> str:
    """Describe the parts of a variant in two lines."""
    return (
        f"{parts['policy']} policy, {parts['trigger']} trigger\n"
        f"{parts['noise']} noise, {parts['weighting']} weighting"
    )
