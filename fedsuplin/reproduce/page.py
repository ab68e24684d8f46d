"""One self-contained HTML page with every figure, table, setting and version: to be mailed to a colleague as it is."""

from __future__ import annotations

import base64
import datetime
import html
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from ..files import whole
from ..markup import pairs
from ..version import __version__
from .experiment import Experiment, Measured, Options, Outcome
from .verdicts import FAILS, HOLDS, OPEN, Verdict, number, with_error

KEPT = "section.html"  # in the folder of an experiment: its part of the page
MARKS = {HOLDS: ("✓", "good"), FAILS: ("✗", "bad"), OPEN: ("?", "open")}

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


def write_page(path: Path, outcomes: Sequence[Outcome], options: Options, order: Sequence[str] = ()) -> Path:
    """The page: these outcomes, and of the other experiments in `order` what earlier starts left in the folder."""
    parts = parts_of(path.parent, outcomes, order)
    told = circumstances(outcomes, options)
    if earlier := [name for name in parts if name not in {outcome.experiment.name for outcome in outcomes}]:
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
{overview(parts.values())}
{sections}
<h2>How this was made</h2>
{pairs(told)}
</body></html>
"""
    with whole(path, encoding="utf-8") as file:
        file.write(page)
    return path


@dataclass(frozen=True)
class Part:
    """What the page has of an experiment: a line of the overview, and a section."""

    line: str
    section: str


def parts_of(folder: Path, outcomes: Sequence[Outcome], order: Sequence[str]) -> dict[str, Part]:
    """By name, in order. What was measured is kept beside its data: a later page that is made for others shows it too."""
    found = {name: kept for name in order if (kept := read_part(folder / name / KEPT)) is not None}
    for outcome in outcomes:
        name, part = outcome.experiment.name, Part(line_of(outcome), section(outcome))
        if outcome.measured is not None:
            write_part(folder / name / KEPT, part)
        if outcome.missing is None or name not in found:
            found[name] = part
    return {name: found[name] for name in dict.fromkeys([*order, *found]) if name in found}


def write_part(path: Path, part: Part) -> None:
    with whole(path, encoding="utf-8") as file:
        file.write(f"{part.line}\n{part.section}")


def read_part(path: Path) -> Part | None:
    if not path.is_file():
        return None
    line, _, rest = path.read_text(encoding="utf-8").partition("\n")
    return Part(line, rest)


def overview(parts: Iterable[Part]) -> str:
    return f"<table><tr><th>experiment</th><th>claims</th></tr>{''.join(part.line for part in parts)}</table>"


def line_of(outcome: Outcome) -> str:
    """How its claims fared."""
    link = f'<a href="#{outcome.experiment.name}">{html.escape(outcome.experiment.title)}</a>'
    counts = {which: sum(verdict.outcome == which for verdict in outcome.verdicts) for which in MARKS}
    told = ", ".join(f'<span class="{MARKS[which][1]}">{n} {which}</span>' for which, n in counts.items() if n)
    return f"<tr><td>{link}</td><td>{told or html.escape(trouble(outcome))}</td></tr>"


def trouble(outcome: Outcome) -> str:
    """Why an experiment has no verdicts."""
    if outcome.missing is not None:
        return f"not run: {outcome.missing}"
    if outcome.sweep.failed:
        return f"{len(outcome.sweep.failed)} runs failed, the first with {outcome.sweep.failed[0]['error']}"
    return "stopped before its end"


def section(outcome: Outcome) -> str:
    experiment = outcome.experiment
    head = (
        f'<h2 id="{experiment.name}">{html.escape(experiment.title)}</h2><blockquote>{html.escape(experiment.says)}</blockquote>'
    )
    if outcome.measured is None:
        return f"{head}<p>{html.escape(trouble(outcome))}</p>"
    return f"""{head}
{figure(outcome)}
{verdict_table(outcome.verdicts)}
<details open><summary>Settings</summary>{pairs(experiment.settings())}</details>
<details><summary>Means over seeds</summary>{mean_table(experiment, outcome.measured)}</details>
<p class="quiet">{len(outcome.sweep.rows)} runs, {experiment.n_seeds} seeds, {outcome.seconds:.0f} s;
<code>{html.escape(command(experiment))}</code></p>"""


def figure(outcome: Outcome) -> str:
    """The SVG, inside the page."""
    drawn = next(file for file in outcome.files if file.suffix == ".svg")
    data = base64.b64encode(drawn.read_bytes()).decode()
    return f'<img alt="{html.escape(outcome.experiment.title)}" src="data:image/svg+xml;base64,{data}">'


def verdict_table(verdicts: Iterable[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        mark, look = MARKS[verdict.outcome]
        cells = "".join(
            f"<td>{html.escape(text)}</td>" for text in (verdict.claim, verdict.source, verdict.setting, verdict.measured)
        )
        rows.append(f'<tr>{cells}<td class="verdict {look}">{mark} {verdict.outcome}</td></tr>')
    heads = "".join(f"<th>{head}</th>" for head in ("claim", "whose", "setting", "measured (mean ± standard error)", "verdict"))
    return f"<table><tr>{heads}</tr>{''.join(rows)}</table>"


def means(experiment: Experiment, measured: Measured) -> tuple[list[str], list[tuple[list[str], list[str]]]]:
    """Heads, and a row a case: what tells it apart, and its measures, a column each."""
    labels, measures = measured.labels, experiment.measures
    cases: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in measured.summary(measures):
        cells = cases.setdefault(tuple(row[name] for name in labels), {})
        cells[row["measure"]] = with_error(row["mean"], row["error"])
    heads = [head.replace("_", " ") for head in (*labels, *measures)]
    return heads, [([shown(value) for value in case], [cells[what] for what in measures]) for case, cells in cases.items()]


def mean_table(experiment: Experiment, measured: Measured) -> str:
    heads, cases = means(experiment, measured)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in case)
        + "".join(f'<td class="number">{cell}</td>' for cell in numbers)
        + "</tr>"
        for case, numbers in cases
    )
    return f"<table><tr>{''.join(f'<th>{html.escape(head)}</th>' for head in heads)}</tr>{body}</table>"


def circumstances(outcomes: Sequence[Outcome], options: Options) -> dict[str, str]:
    """Versions, machine and time, from the runs themselves where they say it."""
    names = " ".join(outcome.experiment.name for outcome in outcomes)
    return {
        "command": f"fedsuplin reproduce {names}{flags(options)}",
        "versions": f"fedsuplin {__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seconds": f"{sum(outcome.seconds for outcome in outcomes):.0f}, less what was there from an earlier start",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def command(experiment: Experiment) -> str:
    return f"fedsuplin reproduce {experiment.name}{flags(experiment.options)}"


def flags(options: Options) -> str:
    size = "" if options.size == "normal" else f" --{options.size}"
    seeds = "" if options.seeds is None else f" --seeds {options.seeds}"
    return f"{size}{seeds}" + ("" if options.movielens is None else f" --movielens {options.movielens.name}")


def shown(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
