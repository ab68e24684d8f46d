"""What a notebook shows of a result, an algorithm, a comparison or a sweep (`_repr_html_`): a few numbers and a small plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .markup import FAINT, Line, chart, escaped, look, pairs, swatch, table, wide
from .plotting import compact, result_info, sweep_info

if TYPE_CHECKING:
    from .algorithm import Algorithm
    from .comparison import Comparison
    from .doubling import Doubling
    from .result import RunResult
    from .sweep import SweepResult

MOST_ROWS, MOST_LINES = 20, 12  # of a table and of a chart; the rest is said to be left out


def form(title: str, *parts: str) -> str:
    """All of it: a line in bold, and the parts below one another."""
    return f'<div style="line-height: 1.5"><div><b>{escaped(title)}</b></div>{"".join(parts)}</div>'


def line(text: str) -> str:
    return f"<div>{escaped(text)}</div>"


def side_by_side(*charts: str) -> str:
    return f"<div>{''.join(charts)}</div>"


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "pull"), counted(2000, "pull")
    ('1 pull', '2,000 pulls')
    """
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def folded(summary: str, markup: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{markup}</details>"


# --- one run -----------------------------------------------------------------------------------------------------------


def result_form(result: RunResult) -> str:
    """Regret against uniform play, and communication."""
    info = result_info(result)
    if not len(info.pulls):
        return form(info.title, line("nothing was played"))
    regret = [
        Line(info.pulls, info.uniform_regret, FAINT, "uniform random play"),
        Line(info.pulls, info.regret, look(0), info.label),
    ]
    last, uniform = float(info.regret[-1]), float(info.uniform_regret[-1])
    talked = [Line(info.pulls, info.communication, look(2), info.label)]
    return form(
        info.title,
        line(f"regret {compact(last)}, of uniform random play {compact(uniform)}, in {counted(result.n_pulls, 'pull')}"),
        line(f"communication {info.communication[-1]:,}; {result.microseconds:.3g} µs a pull"),
        side_by_side(
            chart("regret (dashed: uniform)", regret, x="pulls", log_y=wide((last, uniform))),
            chart("communication", talked, x="pulls"),
        ),
        line("pulls by layer: " + ", ".join(f"{pulls:,}" for pulls in info.layer_pulls)),
        guarantee(result.departures),
    )


def guarantee(departures: Sequence[str], theorem: str | None = None) -> str:
    """Does the paper's hold; if not, why not."""
    if not departures:
        return line("guarantee: holds" + (f" ({theorem})" if theorem else ""))
    return line("guarantee: does not hold: " + "; ".join(departures))


# --- an algorithm --------------------------------------------------------------------------------------------------------


def algorithm_form(algorithm: Algorithm) -> str:
    """Its parts with their thresholds, radii and target widths by layer, and whether the guarantee holds."""
    from .algorithm import SYNCS

    setting, layers = algorithm.setting, np.arange(algorithm.n_layers)
    sizes = f"d = {setting.dim}, K = {setting.n_arms}, M = {setting.n_clients}, T = {setting.horizon:,}"
    decides = "decides from its last download (lazy)" if algorithm.lazy else "decides from all it has (eager)"
    parts = {
        "policy": algorithm.policy,
        "trigger": algorithm.trigger,
        "noise assumed": algorithm.noise,
        "weighting": algorithm.weighting,
        "syncs": f"{SYNCS[algorithm.syncs]}; {decides}",
        "ridge λ": compact(setting.ridge),
    }
    curves = {"radius": algorithm.radii, "target width": algorithm.target_widths}
    charts = [
        chart(f"{name} by layer", [Line(layers, values, look(number), name)], x="layer", log_y=wide(values), marks=True)
        for number, (name, values) in enumerate(curves.items())
    ]
    rows = [[str(layer), *(f"{values[layer]:.5g}" for values in curves.values())] for layer in layers]
    grows = line("The radii grow with ln det A.") if algorithm.radius_growth[0] else ""
    return form(
        f"{algorithm.name}, preset {algorithm.preset}: {sizes}",
        pairs({name: str(part) for name, part in parts.items()}),
        side_by_side(*charts),
        grows,
        folded(counted(algorithm.n_layers, "layer"), table(("layer", *curves), rows)),
        guarantee(algorithm.departures(), algorithm.theorem),
    )


def doubling_form(doubling: Doubling) -> str:
    """What an unknown horizon means, and the first epoch's algorithm."""
    words = f"Epoch e is made for {doubling.first:,} · 2^e pulls, and begins from nothing. The first:"
    return form("unknown horizon", line(words), algorithm_form(doubling.algorithm(0)))


# --- several runs ----------------------------------------------------------------------------------------------------------


def comparison_form(found: Comparison) -> str:
    """A table with the least regret first, which is the legend of the curves."""
    rows = sorted(found.rows(), key=lambda row: row["regret"])
    stopped = "" if found.complete else line("stopped early: policies have the seeds that were finished")
    title = f"Comparison over {found.over}" + (", mean ± standard error" if found.has_errors else "")
    if not rows:
        return form(title, stopped or line("nothing was played"))
    curves = {what: [found.curve(row["policy"], what)[:2] for row in rows[:MOST_LINES]] for what in ("regret", "communication")}
    charts = [
        chart(
            what,
            [Line(*curve, look(number), rows[number]["policy"]) for number, curve in enumerate(each)],
            x="pulls",
            log_y=wide(curve[1][-1] for curve in each if len(curve[1])),
        )
        for what, each in curves.items()
    ]
    shown = [
        (
            f"{swatch(number) if number < MOST_LINES else ''} {escaped(row['policy'])}",
            *(mean_and_error(row, what) for what in ("regret", "communication")),
            f"{row['microseconds']:.3g}",
        )
        for number, row in enumerate(rows)
    ]
    return form(title, table(("policy", "regret", "communication", "µs a pull"), shown), side_by_side(*charts), stopped)


def sweep_form(found: SweepResult) -> str:
    """A row a point of the grids, and the means against the axis with the most values."""
    rows, over = found.summary(), " × ".join(found.varied) or "one point"
    title = f"Sweep of {counted(len(found.rows), 'run')} over {over}"
    notes = []
    if found.failed:
        notes.append(line(f"{counted(len(found.failed), 'run')} failed, the first with {found.failed[0]['error']}"))
    if not found.complete:
        notes.append(line(f"stopped early with {counted(len(found.points) - len(found.rows), 'run')} to go"))
    if not rows:
        return form(title, *notes)
    axes = found.varied or ("policy",)
    shown = [(*(escaped(shown_value(row[axis])) for axis in axes), *means(row)) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        notes.append(line(f"The first {MOST_ROWS} of {len(rows):,} points are listed; summary() has all."))
    return form(title, table((*axes, "regret", "communication"), shown), sweep_charts(found), *notes)


def sweep_charts(found: SweepResult) -> str:
    """As `plot` has it: a line for each combination of what is not on the axis."""
    info = sweep_info(found)
    words = all(isinstance(tick, str) for tick in info.ticks)
    if words or not info.lines:  # places without an order: the table says it better
        return ""
    lines = list(info.lines.items())[:MOST_LINES]
    charts = [
        chart(
            what,
            [Line(*each[what][:2], look(number), label) for number, (label, each) in enumerate(lines)],
            x=info.axis,
            log_x=wide(info.ticks),
            log_y=wide(value for _, each in lines for value in each[what][1]),
            marks=True,
        )
        for what in ("regret", "communication")
    ]
    legend = ", ".join(f"{swatch(number)} {escaped(label)}" for number, (label, _) in enumerate(lines) if label)
    more = f" and {len(info.lines) - MOST_LINES} more" if len(info.lines) > MOST_LINES else ""
    return f"{side_by_side(*charts)}<div>{legend}{more}</div>"


def means(row: Mapping[str, Any]) -> Iterable[str]:
    return (mean_and_error(row, what) if row["seeds"] else "failed" for what in ("regret", "communication"))


def mean_and_error(row: Mapping[str, Any], what: str) -> str:
    value, error = row[what], row[f"{what}_error"]
    return compact(value) + (f" ± {compact(error)}" if error is not None and error > 0 else "")


def shown_value(value: Any) -> str:
    return "" if value is None else compact(value) if isinstance(value, float) else str(value)
