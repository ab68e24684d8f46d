"""The common look of the experiments' figures: panels, curves with bands, points with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .._shared.array_types import Floats
from .._shared.statistics import compute_confidence_band
from ..view.style import GREY, choose_style, draw_means, finish_axes, make_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


HEIGHT = 4.8
Corner = Literal["best", "upper left", "upper right", "lower right"]
WIDTHS = {1: 7.5, 2: 13.0, 3: 17.0}


def make_panels(title: str, n: int, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Make the figure of an experiment, with n panels side by side, in one row or several."""
    columns = -(-n // rows)
    figure = make_figure((WIDTHS[columns], HEIGHT * rows))
    figure.suptitle(title, fontsize=12)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_curve(axes: Axes, x: Floats, values: Floats, *, number: int, label: str) -> None:
    """Draw a curve into an experiment's figure: the mean over seeds with its 95 % band.

    `values` are seeds × x.
    """
    mean, half, style = values.mean(axis=0), compute_confidence_band(values), choose_style(number)
    every = max(1, len(x) // 8)
    axes.plot(
        x,
        mean,
        label=label,
        linewidth=1.8,
        markersize=5,
        markevery=(every // 2 + 3 * number, every),
        **style,
    )
    axes.fill_between(x, mean - half, mean + half, color=style["color"], alpha=0.18, linewidth=0)


def draw_points(axes: Axes, x: Any, values: list[Floats], *, number: int, label: str) -> None:
    """Draw points into an experiment's figure: means over seeds with 95 % intervals.

    `values` has one array over the seeds for each x.
    """
    means = [each.mean() for each in values]
    halves = [compute_confidence_band(each[:, None])[0] for each in values]
    draw_means(axes, x, means, halves, label=label, number=number)


def draw_guide(axes: Axes, x: Any, y: Any, *, label: str) -> None:
    """Draw a line to compare with into an experiment's figure, such as a bound or a slope."""
    axes.plot(x, y, label=label, color=GREY, linestyle=(0, (5, 3)), linewidth=1.1, zorder=1)


def finish_panel(
    axes: Axes, *, title: str, x: str, y: str, log: str = "", legend: Corner | None = "best"
) -> None:
    """Add title, axis labels, scales and legend to a panel of an experiment's figure.

    `log` names the logarithmic scales: "x", "y" or "xy".
    """
    for axis, name in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        if name in log:
            axes.set(**{f"{name}scale": "log"})
        axis.set_minor_formatter(lambda value, _: "")
    finish_axes(axes, title=title, x=x, y=y)
    if "y" not in log and axes.dataLim.ymin >= 0:
        axes.set_ylim(bottom=0)
    if legend is not None:
        axes.legend(loc=legend, frameon=False, fontsize=9)
