"""What several commands check, show and print."""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ..errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from ..study.sweeps import SweepProgress


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


def make_progress_bar(quiet: bool, counts: TextColumn) -> Progress:
    """Make a bar that shows what is played, how much of it is done, and the time that is left."""
    return make_progress(
        TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn(), quiet=quiet
    )


def make_progress(*columns: ProgressColumn, quiet: bool = False) -> Progress:
    """Make a progress display on standard error; it is hidden where that is not a terminal."""
    hidden = quiet or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)


@contextlib.contextmanager
def open_sweep_bar(quiet: bool) -> Iterator[Callable[[str, SweepProgress], None]]:
    """Show a bar for one sweep after another: finished runs, and the time that is left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[runs]},"),
        TimeElapsedColumn(),
        TimeLeft(),
    )
    with make_progress(*columns, quiet=quiet) as bar:
        task = bar.add_task("", total=1.0, runs="", before=0.0)

        def show(what: str, now: SweepProgress) -> None:
            if what != bar.tasks[0].description:
                bar.reset(task, description=what, before=now.share, runs="")
            failed = f", {now.failed} failed" if now.failed else ""
            bar.update(task, completed=now.share, runs=f"{now.done} of {now.total} runs{failed}")

        yield show


class TimeLeft(ProgressColumn):
    """The time left at the pace since this start; runs from an earlier start don't count."""

    def render(self, task: Task) -> Text:
        """Return the time left, or dashes while there is no pace to go by."""
        done = task.completed - task.fields["before"]
        if done <= 0 or task.elapsed is None:
            return Text("-:--:-- left")
        return Text(f"{timedelta(seconds=round(task.elapsed * (1 - task.completed) / done))} left")


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
