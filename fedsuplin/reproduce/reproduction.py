"""Run experiments by name and write their pages."""

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
    """Run experiments and write their data, figures and verdicts, and one page about all of them.

    Each experiment is a sweep: started again, it continues where it stopped. The page also has
    the other experiments that were run into this folder before.

    Parameters
    ----------
    names : str or sequence of str
        The experiments, or "all".
    folder : str or Path
        Where folder/NAME/ and folder/report.html are written.
    size : str
        "quick", "normal" or "full".
    seeds : int, optional
        Runs per case; each experiment has its own default.
    movielens : str or Path, optional
        The folder of a MovieLens release; without one, the experiment "movielens" is not run.
    markdown : str or Path, optional
        A file for the page as Markdown, with small figures in a folder beside it.
    backend : str
        What runs the sweeps, as in `sweep`.
    workers : int, optional
        How many runs at a time.
    progress : callable, optional
        Called with the name of the experiment and its progress.
    ended : callable, optional
        Called with the outcome of each experiment.

    Returns
    -------
    list of Outcome
        One per experiment, up to the one that was stopped. Where runs failed or were stopped,
        `measured` is None.
    """
    chosen = choose_experiments(names)
    options = Options(
        size=size, seeds=seeds, movielens=None if movielens is None else Path(movielens)
    )
    check_extras()
    experiments = [EXPERIMENTS[name](options) for name in chosen]
    check_any_can_run(experiments)
    for experiment in experiments:
        if experiment.explain_missing() is None:
            experiment.list_cases()  # errors in any of them come before the first one runs
    folder, outcomes = Path(folder), []
    for experiment in experiments:
        report = None if progress is None else lambda now, name=experiment.name: progress(name, now)
        outcome = run_experiment(
            experiment, folder / experiment.name, report, backend=backend, workers=workers
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
    """Return the names of a reproduction's experiments in the paper's order, refusing others."""
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            raise unknown("experiment", name, ["all", *EXPERIMENTS])
    if not names:
        raise InvalidInput(f"name an experiment, or all: {', '.join(EXPERIMENTS)}")
    return [name for name in EXPERIMENTS if name in names or "all" in names]


def check_any_can_run(experiments: Sequence[Experiment]) -> None:
    """Check that a reproduction has an experiment that can run; the page says why others can't."""
    missing = {experiment.name: experiment.explain_missing() for experiment in experiments}
    if all(missing.values()):
        raise InvalidInput(
            "; ".join(f"{name} can't be run: {reason}" for name, reason in missing.items())
        )


def check_extras() -> None:
    """Check that the packages of a reproduction are installed, before any experiment runs."""
    missing = [name for name in ("joblib", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"the experiments need {' and '.join(missing)}: pip install 'fedsuplin[reproduce]'"
        )


def run_experiment(experiment: Experiment, folder: Path, progress: Any, **where: Any) -> Outcome:
    """Run one experiment of a reproduction, and write its files if all of its runs ended well."""
    missing = experiment.explain_missing()
    if missing is not None:
        return Outcome(experiment, SweepResult([], [], [], ()), missing=missing)
    began = time.perf_counter()
    found = experiment.run(folder, progress, **where)
    if not found.complete or found.failed:
        return Outcome(experiment, found)
    return dataclasses.replace(
        experiment.report(found, folder), seconds=time.perf_counter() - began
    )
