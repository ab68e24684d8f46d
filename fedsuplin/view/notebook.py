"""What a notebook shows of a result, an algorithm, a comparison or a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.text import format_compact, format_count
from .html import escape_html, format_pairs, format_table
from .run_figure import compute_result_info
from .style import spans_widely
from .svg import FAINT, Line, choose_look, draw_chart, draw_swatch
from .sweep_figure import compute_sweep_info

if TYPE_CHECKING:
    from ..algorithm.algorithm import Algorithm
    from ..algorithm.doubling import Doubling
    from ..simulation.result import RunResult
    from ..study.comparison import Comparison
    from ..study.sweeps import SweepResult


MOST_ROWS, MOST_LINES = 20, 12  # of a table and of a chart; a note names what is left out


def render_result(result: RunResult) -> str:
    """Return what a notebook shows of a run: regret beside uniform play's, communication."""
    info = compute_result_info(result)
    if not len(info.pulls):
        return wrap_form(info.title, format_line("nothing was played"))
    regret = [
        Line(info.pulls, info.uniform_regret, FAINT, "uniform random play"),
        Line(info.pulls, info.regret, choose_look(0), info.label),
    ]
    last, uniform = float(info.regret[-1]), float(info.uniform_regret[-1])
    pulls = format_count(result.n_pulls, "pull")
    talked = [Line(info.pulls, info.communication, choose_look(2), info.label)]
    return wrap_form(
        info.title,
        format_line(
            f"regret {format_compact(last)} in {pulls}, "
            f"of uniform random play {format_compact(uniform)}"
        ),
        format_line(
            f"communication {info.communication[-1]:,}; {result.microseconds:.3g} µs per pull"
        ),
        place_side_by_side(
            draw_chart(
                "regret (dashed: uniform)", regret, x="pulls", log_y=spans_widely((last, uniform))
            ),
            draw_chart("communication", talked, x="pulls"),
        ),
        format_line("pulls by layer: " + ", ".join(f"{pulls:,}" for pulls in info.layer_pulls)),
        format_guarantee(result.departures),
    )


def format_guarantee(departures: Sequence[str], theorem: str | None = None) -> str:
    """Return the line in a notebook on whether the paper's guarantee holds, and if not, why."""
    if not departures:
        return format_line("guarantee: holds" + (f" ({theorem})" if theorem else ""))
    return format_line("guarantee: does not hold: " + "; ".join(departures))


def render_algorithm(algorithm: Algorithm) -> str:
    """Return what a notebook shows of an algorithm: parts, radii and widths, and its guarantee."""
    setting, layers = algorithm.setting, np.arange(algorithm.n_layers)
    sizes = (
        f"d = {setting.dim}, K = {setting.n_arms}, M = {setting.n_clients}, T = {setting.horizon:,}"
    )
    decides = (
        "decides from its last download (lazy)"
        if algorithm.lazy
        else "decides from all it has (eager)"
    )
    parts = {
        "policy": algorithm.policy,
        "trigger": algorithm.trigger,
        "noise assumed": algorithm.noise,
        "weighting": algorithm.weighting,
        "syncs": f"{algorithm.sync_description}; {decides}",
        "ridge λ": format_compact(setting.ridge),
    }
    curves = {"radius": algorithm.radii, "target width": algorithm.target_widths}
    charts = [
        draw_chart(
            f"{name} by layer",
            [Line(layers, values, choose_look(number), name)],
            x="layer",
            log_y=spans_widely(values),
            marks=True,
        )
        for number, (name, values) in enumerate(curves.items())
    ]
    rows = [
        [str(layer), *(f"{values[layer]:.5g}" for values in curves.values())] for layer in layers
    ]
    grows = format_line("The radii grow with ln det A.") if algorithm.radius_growth[0] else ""
    return wrap_form(
        f"{algorithm.name}, preset {algorithm.preset}: {sizes}",
        format_pairs({name: str(part) for name, part in parts.items()}),
        place_side_by_side(*charts),
        grows,
        format_folded(
            format_count(algorithm.n_layers, "layer"), format_table(("layer", *curves), rows)
        ),
        format_guarantee(algorithm.departures(), algorithm.theorem),
    )


def render_doubling(doubling: Doubling) -> str:
    """Return what a notebook shows of an unknown horizon: the rule, and the first epoch."""
    words = f"Epoch e has {doubling.first:,} · 2^e pulls, and begins from nothing. The first epoch:"
    return wrap_form("unknown horizon", format_line(words), render_algorithm(doubling.algorithm(0)))


def render_comparison(found: Comparison) -> str:
    """Return what a notebook shows of a comparison: a table, least regret first, and curves."""
    rows = sorted(found.rows(), key=lambda row: row["regret"])
    stopped = "" if found.complete else format_line("stopped early: some seeds are missing")
    means = ", mean ± standard error" if found.has_errors else ""
    title = f"Comparison over {found.seeds_in_words}{means}"
    if not rows:
        return wrap_form(title, stopped or format_line("nothing was played"))
    curves = {
        what: [found.curve(row["policy"], what)[:2] for row in rows[:MOST_LINES]]
        for what in ("regret", "communication")
    }
    charts = [
        draw_chart(
            what,
            [
                Line(*curve, choose_look(number), rows[number]["policy"])
                for number, curve in enumerate(each)
            ],
            x="pulls",
            log_y=spans_widely(curve[1][-1] for curve in each if len(curve[1])),
        )
        for what, each in curves.items()
    ]
    shown = [
        (
            f"{draw_swatch(number) if number < MOST_LINES else ''} {escape_html(row['policy'])}",
            *(format_mean_and_error(row, what) for what in ("regret", "communication")),
            f"{row['microseconds']:.3g}",
        )
        for number, row in enumerate(rows)
    ]
    return wrap_form(
        title,
        format_table(("policy", "regret", "communication", "µs per pull"), shown),
        place_side_by_side(*charts),
        stopped,
    )


def render_sweep(found: SweepResult) -> str:
    """Return what a notebook shows of a sweep: one row per point of the grids, and the means."""
    rows, over = found.summary(), " × ".join(found.varied) or "one point"
    title = f"Sweep of {format_count(len(found.rows), 'run')} over {over}"
    notes = []
    if found.failed:
        failed, first = format_count(len(found.failed), "run"), found.failed[0]["error"]
        notes.append(format_line(f"{failed} failed, the first with {first}"))
    if not found.complete:
        left = format_count(len(found.points) - len(found.rows), "run")
        notes.append(format_line(f"stopped early with {left} to go"))
    if not rows:
        return wrap_form(title, *notes)
    axes = found.varied or ("policy",)
    shown = [
        (*(escape_html(format_value(row[axis])) for axis in axes), *format_means(row))
        for row in rows[:MOST_ROWS]
    ]
    if len(rows) > MOST_ROWS:
        listed = f"The first {MOST_ROWS} of {len(rows):,} points are listed; summary() has all."
        notes.append(format_line(listed))
    return wrap_form(
        title,
        format_table((*axes, "regret", "communication"), shown),
        draw_sweep_charts(found),
        *notes,
    )


def draw_sweep_charts(found: SweepResult) -> str:
    """Draw a sweep's charts for a notebook: a line for each combination of the other axes."""
    info = compute_sweep_info(found)
    if info.has_words or not info.lines:  # words have no order: the table is enough
        return ""
    lines = list(info.lines.items())[:MOST_LINES]
    charts = [
        draw_chart(
            what,
            [
                Line(*each[what][:2], choose_look(number), label)
                for number, (label, each) in enumerate(lines)
            ],
            x=info.axis,
            log_x=spans_widely(info.ticks),
            log_y=spans_widely(value for _, each in lines for value in each[what][1]),
            marks=True,
        )
        for what in ("regret", "communication")
    ]
    legend = ", ".join(
        f"{draw_swatch(number)} {escape_html(label)}"
        for number, (label, _) in enumerate(lines)
        if label
    )
    more = f" and {len(info.lines) - MOST_LINES} more" if len(info.lines) > MOST_LINES else ""
    return f"{place_side_by_side(*charts)}<div>{legend}{more}</div>"


def format_means(row: Mapping[str, Any]) -> Iterable[str]:
    """Yield regret and communication in a row of a sweep's table in a notebook."""
    return (
        format_mean_and_error(row, what) if row["seeds"] else "failed"
        for what in ("regret", "communication")
    )


def format_mean_and_error(row: Mapping[str, Any], what: str) -> str:
    """Return a mean with its standard error, if it has one, for a table in a notebook."""
    value, error = row[what], row[f"{what}_error"]
    return format_compact(value) + (
        f" ± {format_compact(error)}" if error is not None and error > 0 else ""
    )


def format_value(value: Any) -> str:
    """Return a value of a grid as text for a notebook; None, where there is none, as nothing."""
    if value is None:
        return ""
    return format_compact(value) if isinstance(value, float) else str(value)


def wrap_form(title: str, *parts: str) -> str:
    """Return all that a notebook shows: a title in bold, and the parts below one another."""
    head = f"<div><b>{escape_html(title)}</b></div>"
    return f'<div style="line-height: 1.5">{head}{"".join(parts)}</div>'


def format_line(text: str) -> str:
    """Return a line of text for a notebook."""
    return f"<div>{escape_html(text)}</div>"


def place_side_by_side(*charts: str) -> str:
    """Return charts beside one another, for a notebook."""
    return f"<div>{''.join(charts)}</div>"


def format_folded(summary: str, markup: str) -> str:
    """Return a part that a notebook keeps folded until its summary is clicked."""
    return f"<details><summary>{escape_html(summary)}</summary>{markup}</details>"
