"""The progress bars of the commands."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ..study.sweeps import SweepProgress


def make_progress_bar(quiet: bool, counts: TextColumn) -> Progress:
    """Make a command's progress bar: what is played, how much is done, and the time left."""
    return make_progress(
        TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn(), quiet=quiet
    )


def make_progress(*columns: ProgressColumn, quiet: bool = False) -> Progress:
    """Make a command's progress display on standard error; hidden if that is no terminal."""
    hidden = quiet or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)


@contextlib.contextmanager
def open_sweep_bar(quiet: bool) -> Iterator[Callable[[str, SweepProgress], None]]:
    """Show a command's progress bar for sweeps in turn: finished runs, and the time left."""
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
        """Return the time left for a progress bar, or dashes while there is no pace to go by."""
        done = task.completed - task.fields["before"]
        if done <= 0 or task.elapsed is None:
            return Text("-:--:-- left")
        return Text(f"{timedelta(seconds=round(task.elapsed * (1 - task.completed) / done))} left")
