"""The figure of a comparison: compute what it shows, then draw it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.array_types import Counts, Floats
from .._shared.text import format_compact
from .style import (
    MOST_LEGEND,
    YLABELS,
    choose_style,
    finish_axes,
    hide_box,
    make_figure,
    save_if_asked,
    say_in_middle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..study.comparison import Comparison


BOUNDS_NOTE = "   thin dashed: the order of its bound in Table 1, with the constant 1"
LEAST = {"regret": 1e-12, "communication": 1}  # below it a logarithmic axis shows nothing


@dataclass(frozen=True, eq=False)
class CurveInfo:
    """One curve of the figure of a comparison."""

    pulls: Counts
    mean: Floats
    half: Floats
    """Half the width of the 95 % confidence band."""
    bound: Floats | None
    """The order of the bound in Table 1, where it was asked for and the paper states one."""


@dataclass(frozen=True, eq=False)
class ComparisonInfo:
    """What the figure of a comparison shows: plain arrays and words."""

    title: str
    has_bands: bool
    has_bounds: bool
    curves: dict[str, dict[str, CurveInfo]]
    """By policy, then "regret" or "communication"; only what a logarithmic axis can show.

    The worst policy is first, as the curves lie on the page: the legend is read beside them.
    """


def compute_comparison_info(comparison: Comparison, *, bounds: bool = False) -> ComparisonInfo:
    """Compute what the figure of a comparison shows. Test it, or draw it with another library."""
    policies = sorted(comparison.runs, key=lambda policy: -comparison.last(policy, "regret").mean())
    curves = {
        policy: {
            what: curve
            for what in LEAST
            if (curve := _compute_curve(comparison, policy, what, bounds)) is not None
        }
        for policy in policies
    }
    title = _format_title(comparison) + (BOUNDS_NOTE if bounds else "")
    return ComparisonInfo(title, comparison.has_errors, bounds, curves)


def _compute_curve(
    comparison: Comparison, policy: str, what: str, bounds: bool
) -> CurveInfo | None:
    """Return a policy's curve in the comparison's figure; None if there is nothing to see."""
    pulls, mean, half = comparison.curve(policy, what)
    there = mean >= LEAST[what]
    if not there.any():
        return None
    pulls, mean, half = pulls[there], mean[there], half[there]
    bound = comparison.bound_curve(policy, what, pulls) if bounds else None
    return CurveInfo(pulls, mean, half, bound)


def _format_title(comparison: Comparison) -> str:
    """Return the title of a comparison's figure: sizes of the problem, number of seeds."""
    setting = next(iter(comparison.algorithms.values())).setting
    sizes = {"d": setting.dim, "K": setting.n_arms, "M": setting.n_clients, "T": setting.horizon}
    shown = ",  ".join(f"{symbol} = {size:,}" for symbol, size in sizes.items())
    return f"{shown}  ({comparison.seeds_in_words})"


def draw_comparison(
    comparison: Comparison, path: str | os.PathLike[str] | None = None, *, bounds: bool = False
) -> Figure:
    """Draw the figure of a comparison: regret with bands, communication; save it if asked."""
    info = compute_comparison_info(comparison, bounds=bounds)
    return save_if_asked(draw_comparison_info(info), path)


def draw_comparison_info(info: ComparisonInfo) -> Figure:
    """Draw regret and communication of each compared policy side by side, on log axes."""
    figure = make_figure((13, 5.4))
    figure.suptitle(info.title, fontsize=12)
    left, right = figure.subplots(1, 2)
    for number, (policy, curves) in enumerate(info.curves.items()):
        style = choose_style(number) | {
            "linewidth": 1.8,
            "markersize": 5,
            "markevery": (10 + 5 * number, 60),
        }
        for axes, what in ((left, "regret"), (right, "communication")):
            if what in curves:
                draw_curve(axes, curves[what], policy, style)
    band = " (mean over seeds, 95 % confidence band)" if info.has_bands else ""
    finish_axes(left, title=f"Regret{band}", y=YLABELS["regret"])
    finish_axes(right, title="Communication", y=YLABELS["communication"])
    if not right.lines:
        say_in_middle(right, "no communication" if info.curves else "no run was finished")
    if not info.curves:
        say_in_middle(left, "no run was finished")
    for axes in (left, right):
        hide_box(axes)
    add_legend(figure, left, info)
    return figure


def draw_curve(axes: Axes, curve: CurveInfo, label: str, style: dict[str, Any]) -> None:
    """Draw one policy's mean in a comparison's figure, with its band, and its bound dashed."""
    pulls, mean, half = curve.pulls, curve.mean, curve.half
    axes.loglog(pulls, mean, label=f"{label}: {format_compact(mean[-1])}", **style)
    low = np.maximum(mean - half, mean / 3)  # a band down to 0 would fill a logarithmic axis
    axes.fill_between(pulls, low, mean + half, color=style["color"], alpha=0.18, linewidth=0)
    if curve.bound is not None:
        dashed = {"linestyle": (0, (6, 4)), "linewidth": 0.9, "alpha": 0.7}
        axes.loglog(pulls, curve.bound, color=style["color"], **dashed)


def add_legend(figure: Figure, axes: Axes, info: ComparisonInfo) -> None:
    """Add a legend to a comparison's figure: in the panel, or beside it if it is too long."""
    handles, labels = axes.get_legend_handles_labels()
    if info.has_bounds or len(info.curves) > MOST_LEGEND:
        look: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "title": "regret"}
        figure.legend(handles, labels, loc="outside right center", **look)
    else:
        axes.legend(handles, labels, loc="upper left", frameon=False, fontsize=8.5)
