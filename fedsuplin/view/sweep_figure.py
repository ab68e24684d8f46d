"""Figures. Of a run and of a sweep, in two steps: `result_info` and `sweep_info` compute what is to be seen, `draw_result`
and `draw_sweep` draw it. Of a comparison: `draw_comparison`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.text import format_compact
from .style import (
    MOST_LEGEND,
    MOST_TICKS,
    WIDE,
    YLABELS,
    draw_means,
    finish_axes,
    make_figure,
    save_if_asked,
    say_in_middle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..study.sweeps import SweepResult


XLABELS = {"horizon": "horizon (pulls)"}


@dataclass(frozen=True, eq=False)
class SweepInfo:
    """What the figure of a sweep shows: means and half-widths against one axis, a line for each combination of the others."""

    axis: str
    ticks: list[Any]
    """The values of the axis; words where they are not numbers."""
    lines: dict[str, dict[str, tuple[list[float], list[float], list[float]]]]
    """By label, then "regret" or "communication": places on the axis, means, halves of 95 % intervals."""


def compute_sweep_info(found: SweepResult) -> SweepInfo:
    """Along the axis of numbers that has the most values; without one, along the policies."""
    rows = [row for row in found.summary() if row["seeds"]]
    values = {
        axis: list(dict.fromkeys(map(_format_value, (row[axis] for row in rows))))
        for axis in found.varied
    }
    numbers = [axis for axis in values if all(isinstance(row[axis], (int, float)) for row in rows)]
    axis = max(numbers or values, key=lambda name: len(values[name]), default="policy")
    ticks = (
        sorted({row[axis] for row in rows})
        if axis in numbers
        else values.get(axis) or [_format_value(row[axis]) for row in rows]
    )
    lines: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: row[axis]) if axis in numbers else rows:
        place = row[axis] if axis in numbers else ticks.index(_format_value(row[axis]))
        line = lines.setdefault(
            _format_label(found, row, axis),
            {what: ([], [], []) for what in ("regret", "communication")},
        )
        for what, into in line.items():
            for values_of, value in zip(
                into, (place, row[what], _compute_half_width(row, what)), strict=True
            ):
                values_of.append(value)
    return SweepInfo(axis, ticks, lines)


def _format_label(found: SweepResult, row: dict[str, Any], axis: str) -> str:
    """What else varies; the policy where nothing does, unless the axis says it."""
    others = [name for name in found.varied if name != axis and row[name] is not None]
    told = ", ".join(
        str(row[name]) if name == "policy" else f"{name} {_format_value(row[name])}"
        for name in others
    )
    return told or ("" if axis == "policy" else str(row["policy"]))


def _compute_half_width(row: dict[str, Any], what: str) -> float:
    """Half the width of the 95 % confidence interval, by Student's t; 0 where there is one seed only."""
    from scipy.special import stdtrit

    return (
        float(stdtrit(row["seeds"] - 1, 0.975) * row[f"{what}_error"]) if row["seeds"] > 1 else 0.0
    )


def _format_value(value: Any) -> str:
    return (
        format_compact(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else str(value)
    )


def draw_sweep(found: SweepResult, path: str | os.PathLike[str] | None = None) -> Figure:
    """Regret and communication with 95 % confidence intervals against an axis of the sweep; also written to `path`."""
    info = compute_sweep_info(found)
    figure = make_figure((13, 5.4))
    seeds = len({row["seed"] for row in found.rows})
    over = f"{seeds} seeds, mean and 95 % confidence interval" if seeds > 1 else "one seed"
    figure.suptitle(f"{' × '.join(found.varied) or 'one point'}  ({over})", fontsize=12)
    for axes, what in zip(figure.subplots(1, 2), ("regret", "communication"), strict=True):
        for number, (label, line) in enumerate(info.lines.items()):
            draw_means(axes, *line[what], label=label, number=number)
        finish_axes(
            axes, title=what.capitalize(), y=YLABELS[what], x=XLABELS.get(info.axis, info.axis)
        )
        scale_axes(axes, info)
        axes.spines[["top", "right"]].set_visible(False)
    if not info.lines:
        for axes in figure.axes:
            say_in_middle(axes, "no run succeeded")
    elif len(info.lines) <= MOST_LEGEND:
        if any(info.lines):
            figure.axes[0].legend(frameon=False, fontsize=8.5)
    else:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=7)
    return save_if_asked(figure, path)


def scale_axes(axes: Axes, info: SweepInfo) -> None:
    """Logarithmic where values span more than a factor of 20; words, which no lines connect, for places that are not numbers."""
    if all(isinstance(tick, str) for tick in info.ticks):
        axes.set_xticks(
            range(len(info.ticks)), info.ticks, rotation=20 if len(info.ticks) > 4 else 0
        )
        for line, *_ in axes.containers:
            line.set_linestyle("none")
    elif min(info.ticks) > 0:
        if max(info.ticks) > WIDE * min(info.ticks):
            axes.set_xscale("log")
        if len(info.ticks) <= MOST_TICKS:
            axes.set_xticks(info.ticks, [format_compact(tick) for tick in info.ticks])
            axes.set_xticks([], minor=True)
    drawn = [np.asarray(line.get_ydata(), float) for line in axes.lines]
    heights = [float(value) for values in drawn for value in values[np.isfinite(values)]]
    if heights and min(heights) > 0 and max(heights) > WIDE * min(heights):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: format_compact(value))
