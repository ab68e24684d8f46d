"""The command `fedsuplin`: options in, a problem and an algorithm made of them, a run, and what `report.py` tells."""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
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
from rich.text import Text

from ..errors import InvalidInput

if TYPE_CHECKING:
    from ..study.sweeps import SweepProgress


def check_folder(folder: Path) -> None:
    """Make the folder and write a file in it, before a long run finds out that it can't."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (FileExistsError, NotADirectoryError) as error:  # nor will it be another time
        raise InvalidInput(f"can't write to --out {folder}: it is not a folder") from error
    except OSError as error:
        raise click.ClickException(
            f"can't write to --out {folder}: {error.strerror or error}"
        ) from error


def make_progress_bar(quiet: bool, counts: TextColumn) -> Progress:
    """On standard error, where somebody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn())
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )


@contextlib.contextmanager
def open_sweep_bar(quiet: bool) -> Iterator[Callable[[str, SweepProgress], None]]:
    """A bar for sweeps, one after another: runs that are done, and, from the work that is left, the time that is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[runs]},"),
        TimeElapsedColumn(),
        TimeLeft(),
    )
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=1.0, runs="", before=0.0)

        def show(what: str, now: SweepProgress) -> None:
            if what != bar.tasks[0].description:
                bar.reset(task, description=what, before=now.share, runs="")
            failed = f", {now.failed} failed" if now.failed else ""
            bar.update(task, completed=now.share, runs=f"{now.done} of {now.total} runs{failed}")

        yield show


class TimeLeft(ProgressColumn):
    """At the pace of the work since the sweep was started: runs that were there before say nothing of it."""

    def render(self, task: Task) -> Text:
        done = task.completed - task.fields["before"]
        if done <= 0 or task.elapsed is None:
            return Text("-:--:-- left")
        return Text(f"{timedelta(seconds=round(task.elapsed * (1 - task.completed) / done))} left")


def format_value_and_error(row: Mapping[str, Any], what: str) -> str:
    value, error = row[what], row[f"{what}_error"]
    digits = 0 if value >= 1000 else 1
    return f"{value:,.{digits}f}" + (
        "" if error is None or math.isnan(error) or not value else f" ± {error:,.{digits}f}"
    )


def describe_parts(parts: Mapping[str, str]) -> str:
    return f"{parts['policy']} policy, {parts['trigger']} trigger\n{parts['noise']} noise, {parts['weighting']} weighting"
