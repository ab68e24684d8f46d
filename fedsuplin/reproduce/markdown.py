"""The page of `fedsuplin reproduce` as Markdown, with small figures beside it: docs/results.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..files import whole
from ..markup import markdown_table
from .experiment import Experiment, Measured, Options, Outcome
from .page import MARKS, circumstances, command, means, trouble
from .verdicts import OPEN

DPI = 80  # a page has several of them, and the folder of the run has them as SVG


def write_markdown(path: Path, outcomes: Sequence[Outcome], options: Options) -> Path:
    """The page, and NAME.png of each experiment in a folder called like the page, without its suffix."""
    folder = path.with_suffix("")
    told = circumstances(outcomes, options)
    told["command"] = f"`{told['command']} --markdown {path.name if path.is_absolute() else path}`"
    sections = "\n".join(section(outcome, folder) for outcome in outcomes)
    page = f"""\
# Results

What `fedsuplin reproduce` measured, and its verdict on each claim. A 95 % confidence interval over the seeds decides; where it
holds zero the claim is {OPEN}. This page is made by the command; what to make of it is in [the paper's claims](reproduction.md).

{markdown_table(("", ""), told.items())}

{markdown_table(("experiment", *MARKS), (overview(outcome) for outcome in outcomes))}

{sections}"""
    with whole(path, encoding="utf-8") as file:
        file.write(page)
    return path


def overview(outcome: Outcome) -> list[str]:
    """How its claims fared."""
    link = f"[{outcome.experiment.title}](#{anchor(outcome.experiment.title)})"
    if outcome.measured is None:
        return [link, trouble(outcome), "", ""]
    return [link, *(str(sum(verdict.outcome == which for verdict in outcome.verdicts)) for which in MARKS)]


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def section(outcome: Outcome, folder: Path) -> str:
    experiment, measured = outcome.experiment, outcome.measured
    head = f"## {experiment.title}\n\n> {experiment.says}\n"
    if measured is None:
        return f"{head}\n{trouble(outcome)}\n"
    verdicts = (
        (each.claim, each.source, each.setting, each.measured, f"{MARKS[each.outcome][0]} {each.outcome}")
        for each in outcome.verdicts
    )
    return f"""{head}
![{experiment.title}]({folder.name}/{draw(experiment, measured, folder).name})

{markdown_table(("claim", "whose", "setting", "measured, mean ± standard error", "verdict"), verdicts)}

### Settings of {experiment.name}

{markdown_table(("", ""), experiment.settings().items())}

### Means of {experiment.name}

{mean_table(experiment, measured)}

`{command(experiment)}`: {len(outcome.sweep.rows)} runs, {experiment.n_seeds} seeds.
"""


def draw(experiment: Experiment, measured: Measured, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.png"
    with whole(path, "wb") as file:
        experiment.draw(measured).savefig(file, format="png", dpi=DPI)
    return path


def mean_table(experiment: Experiment, measured: Measured) -> str:
    heads, cases = means(experiment, measured)
    return markdown_table(heads, ([*case, *numbers] for case, numbers in cases))
