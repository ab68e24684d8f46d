"""What the command line tells: the closing table of a run, its files, and the tables of variants and plugins.

Numbers first (`summary`, `variant_rows`, `plugin_rows`: plain data, also for --json), words and tables after.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich import box
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
from .output import check_folder, open_sweep_bar
from .sections import SectionedCommand, add_options, make_option_factory

VERDICT_STYLES = {HOLDS: "green", FAILS: "red", OPEN: "yellow"}
_reproducing_option = make_option_factory("How much")
REPRODUCING_OPTIONS = [
    _reproducing_option(
        "--quick",
        "size",
        flag_value="quick",
        help="A minute's version: fewer seeds, shorter horizons.",
    ),
    _reproducing_option(
        "--full", "size", flag_value="full", help="The longest horizons, up to 10⁸ pulls."
    ),
    _reproducing_option(
        "--seeds",
        type=int,
        metavar="N",
        help="Runs of each case. [default: 20, of the longest fewer; --quick 3]",
    ),
    _reproducing_option(
        "--movielens",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="A MovieLens release: ml-20m, ml-25m, ml-latest-small, ml-1m, … [default: none; movielens is left out]",
    ),
    make_markdown_option(
        "--markdown",
        "The page as Markdown too, with its figures in a folder called like FILE beside it.",
    ),
]


def complete_experiments(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    known = {"all": "every one"} | {name: each.title for name, each in EXPERIMENTS.items()}
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
@add_options(REPRODUCING_OPTIONS, BACKEND_OPTIONS, make_output_options("reproduction"))
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
    """Run the paper's experiments NAMES, judge each claim, and write data, figures and one page for all.

    \b
    arrivals    who plays when: three arrival patterns, and sync
    clients     regret per client as there are more of them, against SupLinUCB
    tradeoff    regret against communication, over C and D
    movielens   reward on real ratings (needs --movielens FOLDER)
    variance    regret as the noise's variance shrinks: variance against async
    corruption  regret as the adversary's budget grows: robust against async
    theorem     regret and communication at the theorems' own constants

    What was stopped goes on where it was when it is started again.
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
    """A table of verdicts for each experiment, and where the page is."""
    page = folder / "report.html"
    if as_json:
        found = {
            outcome.experiment.name: collect_experiment_numbers(outcome) for outcome in outcomes
        }
        print_json({"experiments": found, "page": page})
        return
    to = make_console()
    for outcome in outcomes:
        if outcome.measured is None:
            to.print(
                f"{outcome.experiment.title}: {explain_no_verdicts(outcome)}",
                style="yellow",
                soft_wrap=True,
            )
        elif not quiet:
            to.print(make_verdict_table(outcome))
    if not quiet:
        to.print(
            f"figures, data and verdicts: {folder}/NAME; all on one page: {page}", soft_wrap=True
        )


def make_verdict_table(outcome: Outcome) -> Table:
    """Each verdict beside its claim, with the numbers below."""
    title = (
        f"{outcome.experiment.title} ({outcome.experiment.n_seeds} seeds, {outcome.seconds:.0f} s)"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    table.add_column("verdict", no_wrap=True)
    table.add_column(
        "claim (whose, at which setting), and what was measured as mean ± standard error",
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
    return {
        "trouble": None if outcome.measured is not None else explain_no_verdicts(outcome),
        "verdicts": [verdict.row() for verdict in outcome.verdicts],
        "files": outcome.files,
        "seconds": outcome.seconds,
    }
