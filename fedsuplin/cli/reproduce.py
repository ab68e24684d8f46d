"""`fedsuplin reproduce`: run the paper's experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.table import Table
from rich.text import Text

from .._shared.terminal import make_console, print_json
from ..reproduce.experiment import Outcome
from ..reproduce.page_content import explain_no_verdicts
from ..reproduce.reproduction import EXPERIMENTS, reproduce
from ..reproduce.verdicts import FAILS, HOLDS, OPEN
from .exit_codes import INTERRUPTED
from .manuals import REPRODUCE
from .options import BACKEND_OPTIONS, make_markdown_option, make_output_options
from .output import check_folder, make_table
from .progress import open_sweep_bar
from .sections import SectionedCommand, add_options, make_option_factory

VERDICT_STYLES = {HOLDS: "green", FAILS: "red", OPEN: "yellow"}
_reproducing_option = make_option_factory("How much")
REPRODUCING_OPTIONS = [
    _reproducing_option(
        "--quick",
        "size",
        flag_value="quick",
        help="Take a minute: fewer seeds, shorter horizons.",
    ),
    _reproducing_option(
        "--full", "size", flag_value="full", help="Play the longest horizons, up to 10⁸ pulls."
    ),
    _reproducing_option(
        "--seeds",
        type=int,
        metavar="N",
        help="Runs of each case. [default: 20, fewer of the longest; 3 with --quick]",
    ),
    _reproducing_option(
        "--movielens",
        type=click.Path(exists=True, path_type=Path),
        metavar="RELEASE",
        help="A MovieLens release, its folder or its zip file: ml-20m, ml-latest-small.zip, … "
        "[default: none; movielens is left out]",
    ),
]
PAGE_OPTION = [
    make_markdown_option(
        "Also write the page as Markdown, with its figures in a folder named after FILE."
    )
]


def complete_experiments(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of an experiment for `fedsuplin reproduce`."""
    known = {"all": "all of them"} | {name: each.title for name, each in EXPERIMENTS.items()}
    return [
        CompletionItem(name, help=title)
        for name, title in known.items()
        if name.startswith(incomplete)
    ]


@click.command(
    "reproduce",
    cls=SectionedCommand,
    manual=REPRODUCE,
)
@click.argument("names", nargs=-1, shell_complete=complete_experiments)
@add_options(REPRODUCING_OPTIONS, BACKEND_OPTIONS, PAGE_OPTION, make_output_options("reproduction"))
@click.pass_context
def reproduce_command(
    context: click.Context,
    names: tuple[str, ...],
    size: str | None,
    seeds: int | None,
    movielens: Path | None,
    markdown: Path | None,
    backend: str,
    workers: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the paper's experiments NAMES, judge each claim, and write data, figures and one page
    with all of them.

    \b
    arrivals    who plays when: three arrival patterns, and sync
    clients     regret per client as their number grows, against SupLinUCB
    tradeoff    regret against communication, over C and D
    movielens   reward on real ratings (needs --movielens RELEASE)
    variance    regret as the variance of noise shrinks: variance and async
    corruption  regret as the budget of an adversary grows: robust and async
    theorem     regret and communication with the constants of the theorems

    Start a stopped reproduction again, and it continues where it stopped.
    """
    out = out or Path("reproduction")
    for folder in (out, *(() if markdown is None else (markdown.parent,))):
        check_folder(folder)
    with open_sweep_bar(quiet) as show:
        outcomes = reproduce(
            names or "all",
            out,
            size=size or "normal",
            seeds=seeds,
            movielens=movielens,
            markdown=markdown,
            backend=backend,
            workers=workers,
            progress=show,
        )
    print_reproduction(outcomes, out, as_json=as_json, quiet=quiet)
    if not all(outcome.sweep.complete for outcome in outcomes):
        context.exit(INTERRUPTED)
    if any(outcome.sweep.failed for outcome in outcomes):
        context.exit(1)


def print_reproduction(
    outcomes: Sequence[Outcome], folder: Path, *, as_json: bool, quiet: bool
) -> None:
    """Print what `fedsuplin reproduce` found: a table of verdicts per experiment, or JSON."""
    page = folder / "report.html"
    if as_json:
        found = {
            outcome.experiment.name: collect_experiment_numbers(outcome) for outcome in outcomes
        }
        print_json({"experiments": found, "page": page})
        return
    console = make_console()
    for outcome in outcomes:
        if outcome.measured is None:
            console.print(
                f"{outcome.experiment.title}: {explain_no_verdicts(outcome)}",
                style="yellow",
                soft_wrap=True,
            )
        elif not quiet:
            console.print(make_verdict_table(outcome))
    if not quiet:
        console.print(
            f"figures, data and verdicts: {folder}/NAME; all on one page: {page}",
            soft_wrap=True,
        )


def make_verdict_table(outcome: Outcome) -> Table:
    """Make the table that `fedsuplin reproduce` prints of an experiment: verdicts and claims."""
    experiment = outcome.experiment
    table = make_table(f"{experiment.title} ({experiment.n_seeds} seeds, {outcome.seconds:.0f} s)")
    table.title_justify = "left"
    table.add_column("verdict", no_wrap=True)
    table.add_column(
        "claim (source, setting), and what was measured as mean ± standard error",
        overflow="fold",
    )
    for verdict in outcome.verdicts:
        table.add_row(
            Text(verdict.outcome, style=VERDICT_STYLES[verdict.outcome]),
            Text.assemble(
                (verdict.claim, "bold"),
                f" ({verdict.source}, {verdict.setting})\n{verdict.measured}",
            ),
        )
    return table


def collect_experiment_numbers(outcome: Outcome) -> dict[str, Any]:
    """Return an experiment's verdicts, files and time for `fedsuplin reproduce --json`."""
    return {
        "trouble": None if outcome.measured is not None else explain_no_verdicts(outcome),
        "verdicts": [verdict.to_row() for verdict in outcome.verdicts],
        "files": outcome.files,
        "seconds": outcome.seconds,
    }
