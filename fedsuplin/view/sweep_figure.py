"""The figure of a sweep: compute what it shows, then draw it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.statistics import compute_student_factor
from .._shared.text import format_compact
from .style import (
    MOST_LEGEND,
    MOST_TICKS,
    YLABELS,
    draw_means,
    finish_axes,
    hide_box,
    make_figure,
    save_if_asked,
    say_in_middle,
    spans_widely,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..study.sweeps import SweepResult


XLABELS = {"horizon": "horizon (pulls)"}


@dataclass(frozen=True, eq=False)
class SweepInfo:
    """What the figure of a sweep shows: means against one axis, a line per combination."""

    title: str
    axis: str
    ticks: list[Any]
    """The values of the axis; words where they are not numbers."""
    lines: dict[str, dict[str, tuple[list[float], list[float], list[float]]]]
    """By label, then "regret" or "communication": places, means, halves of 95 % intervals."""

    @property
    def has_words(self) -> bool:
        """Return True if the axis of a sweep's figure has words, which have no order."""
        return all(isinstance(tick, str) for tick in self.ticks)


def compute_sweep_info(found: SweepResult) -> SweepInfo:
    """Compute what the figure of a sweep shows. Test it, or draw it with another library.

    It is drawn along the axis of numbers that has the most values; without one, along the policies.
    """
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
        label = _format_label(found, row, axis)
        line = lines.setdefault(label, {what: ([], [], []) for what in YLABELS})
        for what, (places, means, halves) in line.items():
            places.append(place)
            means.append(row[what])
            halves.append(_compute_half_width(row, what))
    return SweepInfo(_format_title(found), axis, ticks, lines)


def _format_title(found: SweepResult) -> str:
    """Return the title of a sweep's figure: what varies, and over how many seeds."""
    seeds = len({row["seed"] for row in found.rows})
    over = f"{seeds} seeds, mean and 95 % confidence interval" if seeds > 1 else "one seed"
    return f"{' × '.join(found.varied) or 'one point'}  ({over})"


def _format_label(found: SweepResult, row: dict[str, Any], axis: str) -> str:
    """Return the label of a line in a sweep's figure: what varies besides the axis."""
    others = [name for name in found.varied if name != axis and row[name] is not None]
    label = ", ".join(
        str(row[name]) if name == "policy" else f"{name} {_format_value(row[name])}"
        for name in others
    )
    return label or ("" if axis == "policy" else str(row["policy"]))


def _compute_half_width(row: dict[str, Any], what: str) -> float:
    """Return half a mean's confidence interval in a sweep's figure; 0 where there is one seed."""
    if row["seeds"] < 2:
        return 0.0
    return float(compute_student_factor(row["seeds"] - 1) * row[f"{what}_error"])


def _format_value(value: Any) -> str:
    """Return a value of a grid as text for a sweep's figure, a number in few digits."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return format_compact(value) if is_number else str(value)


def draw_sweep(found: SweepResult, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw the figure of a sweep: regret and communication by an axis; save it if asked."""
    return save_if_asked(draw_sweep_info(compute_sweep_info(found)), path)


def draw_sweep_info(info: SweepInfo) -> Figure:
    """Draw the panels of a sweep's figure: means with 95 % intervals, side by side."""
    figure = make_figure((13, 5.4))
    figure.suptitle(info.title, fontsize=12)
    x = XLABELS.get(info.axis, info.axis)
    for axes, what in zip(figure.subplots(1, 2), YLABELS, strict=True):
        for number, (label, line) in enumerate(info.lines.items()):
            draw_means(axes, *line[what], label=label, number=number)
        finish_axes(axes, title=what.capitalize(), y=YLABELS[what], x=x)
        scale_axes(axes, info)
        hide_box(axes)
    if not info.lines:
        for axes in figure.axes:
            say_in_middle(axes, "no run succeeded")
    elif len(info.lines) <= MOST_LEGEND:
        if any(info.lines):
            figure.axes[0].legend(frameon=False, fontsize=8.5)
    else:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=7)
    return figure


def scale_axes(axes: Axes, info: SweepInfo) -> None:
    """Make the axes of a sweep's figure logarithmic where values span much, or write words.

    No line connects words, as they have no order.
    """
    ticks = info.ticks
    if info.has_words:
        axes.set_xticks(range(len(ticks)), ticks, rotation=20 if len(ticks) > 4 else 0)
        for line, *_ in axes.containers:
            line.set_linestyle("none")
    elif min(ticks) > 0:
        if spans_widely(ticks):
            axes.set_xscale("log")
        if len(ticks) <= MOST_TICKS:
            axes.set_xticks(ticks, [format_compact(tick) for tick in ticks])
            axes.set_xticks([], minor=True)
    if spans_widely(value for line in axes.lines for value in np.asarray(line.get_ydata(), float)):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: format_compact(value))
