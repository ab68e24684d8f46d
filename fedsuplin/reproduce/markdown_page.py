"""The page of `fedsuplin reproduce` as Markdown, with small figures beside it: docs/results.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .._shared.files import open_atomically
from ..view.markdown import format_markdown_table
from .experiment import Experiment, Measured, Options, Outcome
from .page_content import (
    MARKS,
    describe_circumstances,
    explain_no_verdicts,
    format_command,
    tabulate_means,
)
from .verdicts import OPEN

DPI = 80  # a page has several of them, and the folder of the run has them as SVG


def write_markdown_page(path: Path, outcomes: Sequence[Outcome], options: Options) -> Path:
    """The page, and NAME.png of each experiment in a folder called like the page, without its suffix."""
    folder = path.with_suffix("")
    told = describe_circumstances(outcomes, options)
    told["command"] = f"`{told['command']} --markdown {path.name if path.is_absolute() else path}`"
    sections = "\n".join(format_section(outcome, folder) for outcome in outcomes)
    page = f"""\
# Results

What `fedsuplin reproduce` measured, and its verdict on each claim. A 95 % confidence interval over the seeds decides; where it
holds zero the claim is {OPEN}. This page is made by the command; what to make of it is in [the paper's claims](reproduction.md).

{format_markdown_table(("", ""), told.items())}

{format_markdown_table(("experiment", *MARKS), (format_overview_row(outcome) for outcome in outcomes))}

{sections}"""
    with open_atomically(path, encoding="utf-8") as file:
        file.write(page)
    return path


def format_overview_row(outcome: Outcome) -> list[str]:
    """How its claims fared."""
    link = f"[{outcome.experiment.title}](#{make_anchor(outcome.experiment.title)})"
    if outcome.measured is None:
        return [link, explain_no_verdicts(outcome), "", ""]
    return [
        link,
        *(str(sum(verdict.outcome == which for verdict in outcome.verdicts)) for which in MARKS),
    ]


def make_anchor(title: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def format_section(outcome: Outcome, folder: Path) -> str:
    experiment, measured = outcome.experiment, outcome.measured
    head = f"## {experiment.title}\n\n> {experiment.says}\n"
    if measured is None:
        return f"{head}\n{explain_no_verdicts(outcome)}\n"
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
![{experiment.title}]({folder.name}/{save_small_figure(experiment, measured, folder).name})

{format_markdown_table(("claim", "whose", "setting", "measured, mean ± standard error", "verdict"), verdicts)}

### Settings of {experiment.name}

{format_markdown_table(("", ""), experiment.settings().items())}

### Means of {experiment.name}

{format_mean_table(experiment, measured)}

`{format_command(experiment)}`: {len(outcome.sweep.rows)} runs, {experiment.n_seeds} seeds.
"""


def save_small_figure(experiment: Experiment, measured: Measured, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.png"
    with open_atomically(path, "wb") as file:
        experiment.draw(measured).savefig(file, format="png", dpi=DPI)
    return path


def format_mean_table(experiment: Experiment, measured: Measured) -> str:
    heads, cases = tabulate_means(experiment, measured)
    return format_markdown_table(heads, ([*case, *numbers] for case, numbers in cases))
