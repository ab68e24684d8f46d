"""Experiments by name, one after another: each into a folder of its own, and all of them onto one page."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, MissingExtra, unknown
from ..study.sweeps import SweepProgress, SweepResult
from .arrivals import Arrivals
from .clients import Clients
from .corruption import Corruption
from .experiment import Experiment, Options, Outcome
from .html_page import write_html_page
from .markdown_page import write_markdown_page
from .movielens import MovieLens
from .theorem import Theorem
from .tradeoff import Tradeoff
from .variance import VarianceAdaptive

EXPERIMENTS: dict[str, type[Experiment]] = {
    each.name: each
    for each in (Arrivals, Clients, Tradeoff, MovieLens, VarianceAdaptive, Corruption, Theorem)
}


def reproduce(
    names: str | Sequence[str],
    folder: str | Path,
    *,
    size: str = "normal",
    seeds: int | None = None,
    movielens: str | Path | None = None,
    markdown: str | Path | None = None,
    backend: str = "threads",
    workers: int | None = None,
    progress: Callable[[str, SweepProgress], None] | None = None,
    ended: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run experiments ("all" for every one) and write their data, figures and verdicts into folder/NAME, and folder/report.html.

    `size` is "quick", "normal" or "full". Each is a sweep: one that was stopped goes on where it was. `ended` is called with
    each outcome. One whose runs failed, or that was stopped, has no `measured` in its outcome. The page also shows what earlier
    starts left of other experiments in the folder. `markdown` names a file for the
    page as Markdown, with small figures in a folder beside it: docs/results.md is made by it.
    """
    chosen = choose_experiments(names)
    options = Options(
        size=size, seeds=seeds, movielens=None if movielens is None else Path(movielens)
    )
    check_extras()
    experiments = [EXPERIMENTS[name](options) for name in chosen]
    check_any_can_run(experiments)
    for experiment in experiments:
        if experiment.missing() is None:
            experiment.cases()  # what is wrong with one is told before the first begins
    folder, outcomes = Path(folder), []
    for experiment in experiments:
        tell = None if progress is None else lambda now, name=experiment.name: progress(name, now)
        outcome = run_experiment(
            experiment, folder / experiment.name, tell, backend=backend, workers=workers
        )
        outcomes.append(outcome)
        if ended is not None:
            ended(outcome)
        if not outcome.sweep.complete:
            break
    write_html_page(folder / "report.html", outcomes, options, list(EXPERIMENTS))
    if markdown is not None:
        write_markdown_page(Path(markdown), outcomes, options)
    return outcomes


def choose_experiments(names: str | Sequence[str]) -> list[str]:
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            raise unknown("experiment", name, ["all", *EXPERIMENTS])
    if not names:
        raise InvalidInput(f"name an experiment, or all: {', '.join(EXPERIMENTS)}")
    return [name for name in EXPERIMENTS if name in names or "all" in names]


def check_any_can_run(experiments: Sequence[Experiment]) -> None:
    """Where none can be run, that is an error; one among others is told on the page."""
    missing = {experiment.name: experiment.missing() for experiment in experiments}
    if all(missing.values()):
        raise InvalidInput(
            "; ".join(f"{name} can't be run: {reason}" for name, reason in missing.items())
        )


def check_extras() -> None:
    """What all of them need, before an hour's work finds out that it can't be drawn."""
    missing = [name for name in ("joblib", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"the experiments need {' and '.join(missing)}: pip install 'fedsuplin[reproduce]'"
        )


def run_experiment(experiment: Experiment, folder: Path, progress: Any, **where: Any) -> Outcome:
    """An experiment from its cases to its files."""
    missing = experiment.missing()
    if missing is not None:
        return Outcome(experiment, SweepResult([], [], [], ()), missing=missing)
    began = time.perf_counter()
    found = experiment.run(folder, progress, **where)
    if not found.complete or found.failed:
        return Outcome(experiment, found)
    return dataclasses.replace(
        experiment.report(found, folder), seconds=time.perf_counter() - began
    )
