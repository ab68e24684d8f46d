"""Write the page of `fedsuplin reproduce` as Markdown, with small figures: docs/results.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .._shared.files import open_atomically
from ..view.markdown import format_markdown_table
from .experiment import Experiment, Measured, Options, Outcome
from .page_content import (
    MARKS,
    count_outcomes,
    describe_circumstances,
    explain_no_verdicts,
    format_command,
    tabulate_means,
)
from .verdicts import OPEN

DPI = 80  # a page has several figures, and the folder of the run has them as SVG
VERDICT_HEADS = ("claim", "whose", "setting", "measured, mean ± standard error", "verdict")


def write_markdown_page(path: Path, outcomes: Sequence[Outcome], options: Options) -> Path:
    """Write the Markdown page, and each figure as NAME.png in a folder named as the page."""
    folder = path.with_suffix("")
    facts = describe_circumstances(outcomes, options)
    shown = path.name if path.is_absolute() else path
    facts["command"] = f"`{facts['command']} --markdown {shown}`"
    overview = (format_overview_row(outcome) for outcome in outcomes)
    sections = "\n".join(format_section(outcome, folder) for outcome in outcomes)
    page = f"""\
# Results

What `fedsuplin reproduce` measured, and its verdict on each claim. A claim is decided by a 95 %
confidence interval over the seeds; where that holds zero, it is {OPEN}. The command writes
this page; [the paper's claims](reproduction.md) explains the results.

{format_markdown_table(("", ""), facts.items())}

{format_markdown_table(("experiment", *MARKS), overview)}

{sections}"""
    with open_atomically(path, encoding="utf-8") as file:
        file.write(page)
    return path


def format_overview_row(outcome: Outcome) -> list[str]:
    """Return an experiment's row in the overview of the Markdown page: a link and its counts."""
    link = f"[{outcome.experiment.title}](#{make_anchor(outcome.experiment.title)})"
    if outcome.measured is None:
        return [link, explain_no_verdicts(outcome), "", ""]
    return [link, *map(str, count_outcomes(outcome).values())]


def make_anchor(title: str) -> str:
    """Return the anchor of a heading of the Markdown page, as GitHub and the site make it."""
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def format_section(outcome: Outcome, folder: Path) -> str:
    """Return the section of an experiment as Markdown, and save its figure into the folder."""
    experiment, measured = outcome.experiment, outcome.measured
    head = f"## {experiment.title}\n\n> {experiment.statement}\n"
    if measured is None:
        return f"{head}\n{explain_no_verdicts(outcome)}\n"
    figure = save_small_figure(experiment, measured, folder)
    verdicts = (
        (
            each.claim,
            each.source,
            each.setting,
            each.measured,
            f"{MARKS[each.outcome][0]} {each.outcome}",
        )
        for each in outcome.verdicts
    )
    return f"""{head}
![{experiment.title}]({folder.name}/{figure.name})

{format_markdown_table(VERDICT_HEADS, verdicts)}

### Settings of {experiment.name}

{format_markdown_table(("", ""), experiment.describe_settings().items())}

### Means of {experiment.name}

{format_mean_table(experiment, measured)}

`{format_command(experiment)}`: {len(outcome.sweep.rows)} runs, {experiment.n_seeds} seeds.
"""


def save_small_figure(experiment: Experiment, measured: Measured, folder: Path) -> Path:
    """Save an experiment's figure for the Markdown page as a small PNG, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.png"
    with open_atomically(path, "wb") as file:
        experiment.draw(measured).savefig(file, format="png", dpi=DPI)
    return path


def format_mean_table(experiment: Experiment, measured: Measured) -> str:
    """Return the table of means over the seeds as Markdown, one row per case."""
    heads, cases = tabulate_means(experiment, measured)
    return format_markdown_table(heads, ([*case, *numbers] for case, numbers in cases))
