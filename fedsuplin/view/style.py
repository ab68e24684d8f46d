"""Colours, axes and saving, shared by all figures."""

from __future__ import annotations

import functools
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.files import open_atomically
from .._shared.text import format_compact
from ..errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's palette, which colour-blind readers can tell apart.
# Line styles differ too, for print in grey.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"
# On top, so that it is seen where the curves coincide.
DASHED: dict[str, Any] = {"color": GREY, "linestyle": "--", "zorder": 3}
DPI = 150
# For many curves: colours that differ in hue, line styles and markers that differ without it.
FIRST_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C6D1F",
)
# Enough for a comparison of all policies.
COLOURS = (*FIRST_COLOURS, "#7B3294", "#8B0000", "#8F8F8F", "#9ACD32")
STYLES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*Xh<>d"
WIDE = 20  # an axis is logarithmic if its largest value is this many times its smallest
MOST_TICKS, MOST_LEGEND = 8, 8
YLABELS = {"regret": "cumulative regret", "communication": "communications (cumulative)"}


def make_figure(size: tuple[float, float]) -> Figure:
    """Make an empty figure in the style that all share, without pyplot and its global state."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtra("a figure needs matplotlib: pip install 'fedsuplin[plot]'") from None
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.05, w_pad=0.1, h_pad=0.1))
    # What a notebook shows, even where pyplot was never imported.
    vars(figure)["_repr_png_"] = functools.partial(_render_png, figure)
    return figure


def finish_axes(axes: Axes, title: str, y: str, x: str = "pulls") -> None:
    """Set title and labels of a panel in the style that all figures share."""
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: format_compact(value))


def hide_box(axes: Axes) -> None:
    """Hide the upper and right border of a panel: the style that all figures share."""
    axes.spines[["top", "right"]].set_visible(False)


def say_in_middle(axes: Axes, words: str) -> None:
    """Write words into an empty panel in the style that all figures share."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set(xticks=[], yticks=[])


def choose_style(number: int) -> dict[str, Any]:
    """Return the style of a figure's n-th curve; no two of the first 48 look the same."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[(number + number // len(COLOURS)) % len(STYLES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def draw_means(axes: Axes, x: Any, mean: Any, half: Any, *, label: str, number: int) -> None:
    """Draw means with intervals in the style that all figures share: colour, dashes, marker."""
    mean, half = np.asarray(mean, float), np.asarray(half, float)
    axes.errorbar(
        x,
        mean,
        yerr=half,
        label=label,
        capsize=2.5,
        markersize=5,
        linewidth=1.6,
        **choose_style(number),
    )


def spans_widely(values: Iterable[float]) -> bool:
    """Return True if values span so much that the style of all figures is a log axis."""
    there = [value for value in values if math.isfinite(value)]
    return bool(there) and min(there) > 0 and max(there) > WIDE * min(there)


def save_if_asked(figure: Figure, path: str | os.PathLike[str] | None) -> Figure:
    """Save a figure in the style that all share if there is a path, and return it."""
    if path is not None:
        save_figure(figure, path)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Save a figure of any kind, in the format of the suffix, in the style that all share.

    The same figure gives the same file.
    """
    kind = Path(path).suffix.lstrip(".") or "png"
    with open_atomically(path, "wb") as file:
        figure.savefig(
            file, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None
        )


def _render_png(figure: Figure) -> bytes:
    """Return a figure in the style that all share as a PNG, at half a file's resolution."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI // 2)
    return buffer.getvalue()
