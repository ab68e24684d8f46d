"""Write the page of `fedsuplin reproduce` as one HTML file that needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._shared.files import open_atomically
from ..view.html import escape_html, format_pairs, format_table
from .experiment import Experiment, Measured, Options, Outcome
from .page_content import (
    MARKS,
    count_outcomes,
    describe_circumstances,
    explain_no_verdicts,
    format_command,
    tabulate_means,
)
from .verdicts import OPEN, Verdict

KEPT = "section.html"  # in the folder of an experiment: its part of the page
TITLE = "FedSupLinUCB: the paper's experiments, reproduced"
VERDICT_HEADS = ("claim", "whose", "setting", "measured (mean ± standard error)", "verdict")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1.5rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.8rem 0.35rem 0;
  border-bottom: 1px solid #e5e5e5; }
td { font-variant-numeric: tabular-nums; }
td.verdict { white-space: nowrap; font-weight: 600; }
.good { color: #00654a; } .bad { color: #a63d00; } .open { color: #555; }
img { max-width: 100%; height: auto; display: block; }
details { margin: 1rem 0; } summary { cursor: pointer; }
blockquote { margin: 0.5rem 0; padding-left: 1rem; border-left: 3px solid #0072b2; color: #444; }
.quiet { color: #666; font-size: 0.9rem; }
"""


def write_html_page(
    path: Path, outcomes: Sequence[Outcome], options: Options, order: Sequence[str] = ()
) -> Path:
    """Write the HTML page: these outcomes, and the parts in `order` that earlier starts left."""
    parts = collect_parts(path.parent, outcomes, order)
    facts = describe_circumstances(outcomes, options)
    new = {outcome.experiment.name for outcome in outcomes}
    if earlier := [name for name in parts if name not in new]:
        facts["from earlier starts"] = ", ".join(earlier)
    sections = "\n".join(part.section for part in parts.values())
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{TITLE}</title><style>{STYLE}</style></head>
<body><h1>{TITLE}</h1>
<p>Fan, Zhou, Tian, Shen: <i>Federated Linear Bandits with Finite Adversarial Actions</i>,
NeurIPS 2023. Each claim is decided by a 95 % confidence interval over the seeds; where that holds
zero, it is {OPEN}. Nothing was tuned until it held, and every setting is stated.</p>
{format_overview(parts.values())}
{sections}
<h2>How this was made</h2>
{format_pairs(facts)}
</body></html>
"""
    with open_atomically(path, encoding="utf-8") as file:
        file.write(page)
    return path


@dataclass(frozen=True)
class PagePart:
    """An experiment's part of the page: a row of the overview, and a section."""

    line: str
    section: str


def collect_parts(
    folder: Path, outcomes: Sequence[Outcome], order: Sequence[str]
) -> dict[str, PagePart]:
    """Return the parts of the HTML page by experiment, in order, and keep the new ones.

    A part is kept beside its data, so that a later page about other experiments has it too.
    """
    found = {name: kept for name in order if (kept := read_part(folder / name / KEPT)) is not None}
    for outcome in outcomes:
        name = outcome.experiment.name
        part = PagePart(format_overview_row(outcome), format_section(outcome))
        if outcome.measured is not None:
            write_part(folder / name / KEPT, part)
        if outcome.missing is None or name not in found:
            found[name] = part
    return {name: found[name] for name in dict.fromkeys([*order, *found]) if name in found}


def write_part(path: Path, part: PagePart) -> None:
    """Write a part of the HTML page to its file."""
    with open_atomically(path, encoding="utf-8") as file:
        file.write(f"{part.line}\n{part.section}")


def read_part(path: Path) -> PagePart | None:
    """Read a part of the HTML page; None if there is no such file."""
    if not path.is_file():
        return None
    line, _, rest = path.read_text(encoding="utf-8").partition("\n")
    return PagePart(line, rest)


def format_overview(parts: Iterable[PagePart]) -> str:
    """Return the table of experiments at the top of the HTML page."""
    rows = "".join(part.line for part in parts)
    return f"<table><tr><th>experiment</th><th>claims</th></tr>{rows}</table>"


def format_overview_row(outcome: Outcome) -> str:
    """Return an experiment's row in the overview of the HTML page: a link and its counts."""
    link = f'<a href="#{outcome.experiment.name}">{escape_html(outcome.experiment.title)}</a>'
    counts = ", ".join(
        f'<span class="{MARKS[which][1]}">{n} {which}</span>'
        for which, n in count_outcomes(outcome).items()
        if n
    )
    return f"<tr><td>{link}</td><td>{counts or escape_html(explain_no_verdicts(outcome))}</td></tr>"


def format_section(outcome: Outcome) -> str:
    """Return the section of an experiment as HTML: figure, verdicts, settings and means."""
    experiment = outcome.experiment
    title, statement = escape_html(experiment.title), escape_html(experiment.statement)
    head = f'<h2 id="{experiment.name}">{title}</h2><blockquote>{statement}</blockquote>'
    if outcome.measured is None:
        return f"{head}<p>{escape_html(explain_no_verdicts(outcome))}</p>"
    settings = format_pairs(experiment.describe_settings())
    means = format_mean_table(experiment, outcome.measured)
    runs = f"{len(outcome.sweep.rows)} runs, {experiment.n_seeds} seeds, {outcome.seconds:.0f} s"
    return f"""{head}
{embed_figure(outcome)}
{format_verdict_table(outcome.verdicts)}
<details open><summary>Settings</summary>{settings}</details>
<details><summary>Means over seeds</summary>{means}</details>
<p class="quiet">{runs}; <code>{escape_html(format_command(experiment))}</code></p>"""


def embed_figure(outcome: Outcome) -> str:
    """Return the figure of an experiment as an HTML image with the SVG inside."""
    drawn = next(file for file in outcome.files if file.suffix == ".svg")
    data = base64.b64encode(drawn.read_bytes()).decode()
    title = escape_html(outcome.experiment.title)
    return f'<img alt="{title}" src="data:image/svg+xml;base64,{data}">'


def format_verdict_table(verdicts: Iterable[Verdict]) -> str:
    """Return the table of verdicts as HTML, one row per claim."""
    rows = []
    for verdict in verdicts:
        mark, look = MARKS[verdict.outcome]
        cells = "".join(
            f"<td>{escape_html(text)}</td>"
            for text in (verdict.claim, verdict.source, verdict.setting, verdict.measured)
        )
        rows.append(f'<tr>{cells}<td class="verdict {look}">{mark} {verdict.outcome}</td></tr>')
    heads = "".join(f"<th>{head}</th>" for head in VERDICT_HEADS)
    return f"<table><tr>{heads}</tr>{''.join(rows)}</table>"


def format_mean_table(experiment: Experiment, measured: Measured) -> str:
    """Return the table of means over the seeds as HTML, one row per case."""
    heads, cases = tabulate_means(experiment, measured)
    return format_table(heads, ([*map(escape_html, case), *numbers] for case, numbers in cases))
