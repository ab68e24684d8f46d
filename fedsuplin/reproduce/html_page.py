"""One self-contained HTML page with every figure, table, setting and version: to be mailed to a colleague as it is."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._shared.files import open_atomically
from ..view.html import format_pairs
from .experiment import Experiment, Measured, Options, Outcome
from .page_content import (
    MARKS,
    describe_circumstances,
    explain_no_verdicts,
    format_command,
    tabulate_means,
)
from .verdicts import OPEN, Verdict

KEPT = "section.html"  # in the folder of an experiment: its part of the page
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1.5rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.8rem 0.35rem 0; border-bottom: 1px solid #e5e5e5; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.verdict { white-space: nowrap; font-weight: 600; }
.good { color: #00654a; } .bad { color: #a63d00; } .open { color: #555; }
img { max-width: 100%; height: auto; display: block; } details { margin: 1rem 0; } summary { cursor: pointer; }
blockquote { margin: 0.5rem 0; padding-left: 1rem; border-left: 3px solid #0072b2; color: #444; }
.quiet { color: #666; font-size: 0.9rem; }
"""


def write_html_page(
    path: Path, outcomes: Sequence[Outcome], options: Options, order: Sequence[str] = ()
) -> Path:
    """The page: these outcomes, and of the other experiments in `order` what earlier starts left in the folder."""
    parts = collect_parts(path.parent, outcomes, order)
    told = describe_circumstances(outcomes, options)
    if earlier := [
        name for name in parts if name not in {outcome.experiment.name for outcome in outcomes}
    ]:
        told["from earlier starts"] = ", ".join(earlier)
    sections = "\n".join(part.section for part in parts.values())
    title = "FedSupLinUCB: the paper's experiments, reproduced"
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{STYLE}</style></head>
<body><h1>{title}</h1>
<p>Fan, Zhou, Tian, Shen: <i>Federated Linear Bandits with Finite Adversarial Actions</i>, NeurIPS 2023. Each claim is judged on
what ran: a 95 % confidence interval over the seeds decides, and where it holds zero the claim is {OPEN}. Nothing was tuned
until it held; every setting is stated.</p>
{format_overview(parts.values())}
{sections}
<h2>How this was made</h2>
{format_pairs(told)}
</body></html>
"""
    with open_atomically(path, encoding="utf-8") as file:
        file.write(page)
    return path


@dataclass(frozen=True)
class PagePart:
    """What the page has of an experiment: a line of the overview, and a section."""

    line: str
    section: str


def collect_parts(
    folder: Path, outcomes: Sequence[Outcome], order: Sequence[str]
) -> dict[str, PagePart]:
    """By name, in order. What was measured is kept beside its data: a later page that is made for others shows it too."""
    found = {name: kept for name in order if (kept := read_part(folder / name / KEPT)) is not None}
    for outcome in outcomes:
        name, part = (
            outcome.experiment.name,
            PagePart(format_overview_row(outcome), format_section(outcome)),
        )
        if outcome.measured is not None:
            write_part(folder / name / KEPT, part)
        if outcome.missing is None or name not in found:
            found[name] = part
    return {name: found[name] for name in dict.fromkeys([*order, *found]) if name in found}


def write_part(path: Path, part: PagePart) -> None:
    with open_atomically(path, encoding="utf-8") as file:
        file.write(f"{part.line}\n{part.section}")


def read_part(path: Path) -> PagePart | None:
    if not path.is_file():
        return None
    line, _, rest = path.read_text(encoding="utf-8").partition("\n")
    return PagePart(line, rest)


def format_overview(parts: Iterable[PagePart]) -> str:
    return f"<table><tr><th>experiment</th><th>claims</th></tr>{''.join(part.line for part in parts)}</table>"


def format_overview_row(outcome: Outcome) -> str:
    """How its claims fared."""
    link = f'<a href="#{outcome.experiment.name}">{html.escape(outcome.experiment.title)}</a>'
    counts = {
        which: sum(verdict.outcome == which for verdict in outcome.verdicts) for which in MARKS
    }
    told = ", ".join(
        f'<span class="{MARKS[which][1]}">{n} {which}</span>' for which, n in counts.items() if n
    )
    return f"<tr><td>{link}</td><td>{told or html.escape(explain_no_verdicts(outcome))}</td></tr>"


def format_section(outcome: Outcome) -> str:
    experiment = outcome.experiment
    head = f'<h2 id="{experiment.name}">{html.escape(experiment.title)}</h2><blockquote>{html.escape(experiment.says)}</blockquote>'
    if outcome.measured is None:
        return f"{head}<p>{html.escape(explain_no_verdicts(outcome))}</p>"
    return f"""{head}
{embed_figure(outcome)}
{format_verdict_table(outcome.verdicts)}
<details open><summary>Settings</summary>{format_pairs(experiment.settings())}</details>
<details><summary>Means over seeds</summary>{format_mean_table(experiment, outcome.measured)}</details>
<p class="quiet">{len(outcome.sweep.rows)} runs, {experiment.n_seeds} seeds, {outcome.seconds:.0f} s;
<code>{html.escape(format_command(experiment))}</code></p>"""


def embed_figure(outcome: Outcome) -> str:
    """The SVG, inside the page."""
    drawn = next(file for file in outcome.files if file.suffix == ".svg")
    data = base64.b64encode(drawn.read_bytes()).decode()
    return f'<img alt="{html.escape(outcome.experiment.title)}" src="data:image/svg+xml;base64,{data}">'


def format_verdict_table(verdicts: Iterable[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        mark, look = MARKS[verdict.outcome]
        cells = "".join(
            f"<td>{html.escape(text)}</td>"
            for text in (verdict.claim, verdict.source, verdict.setting, verdict.measured)
        )
        rows.append(f'<tr>{cells}<td class="verdict {look}">{mark} {verdict.outcome}</td></tr>')
    heads = "".join(
        f"<th>{head}</th>"
        for head in ("claim", "whose", "setting", "measured (mean ± standard error)", "verdict")
    )
    return f"<table><tr>{heads}</tr>{''.join(rows)}</table>"


def format_mean_table(experiment: Experiment, measured: Measured) -> str:
    heads, cases = tabulate_means(experiment, measured)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in case)
        + "".join(f'<td class="number">{cell}</td>' for cell in numbers)
        + "</tr>"
        for case, numbers in cases
    )
    return f"<table><tr>{''.join(f'<th>{html.escape(head)}</th>' for head in heads)}</tr>{body}</table>"
