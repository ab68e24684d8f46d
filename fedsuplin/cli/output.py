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
    """Check that the output folder of a command can be written to before a long run begins."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (FileExistsError, NotADirectoryError) as error:  # trying again won't help
        raise InvalidInput(f"can't write to --out {folder}: it is not a folder") from error
    except OSError as error:
        reason = error.strerror or error
        raise click.ClickException(f"can't write to --out {folder}: {reason}") from error


def write_figure(draw: Callable[[Path], Any], path: Path) -> tuple[list[Path], list[str]]:
    """Write a command's output figure; return the files, and notices if a package is missing."""
    try:
        draw(path)
    except MissingExtra as error:
        return [], [f"no figure: {error}"]
    return [path], []


def print_notices_and_files(
    console: Console, notices: Iterable[str], files: Iterable[Path]
) -> None:
    """Print the last output of several commands: notices, and which files were written."""
    for notice in notices:
        console.print(notice, style="yellow")
    for file in files:
        console.print(f"wrote {file}", soft_wrap=True)


def make_table(title: str | None = None) -> Table:
    """Make the empty table that commands fill for output, with a line below its headings."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title)


def format_value_and_error(row: Mapping[str, Any], what: str) -> str:
    """Format a mean and its standard error for the output of several commands."""
    value, error = row[what], row[f"{what}_error"]
    digits = 0 if value >= 1000 else 1
    known = error is not None and not math.isnan(error) and value
    return f"{value:,.{digits}f}" + (f" ± {error:,.{digits}f}" if known else "")


def describe_parts(parts: Mapping[str, str]) -> str:
    """Describe the parts of a variant in two lines, for the output of several commands."""
    return (
        f"{parts['policy']} policy, {parts['trigger']} trigger\n"
        f"{parts['noise']} noise, {parts['weighting']} weighting"
    )
