"""Figures. Of a run and of a sweep, in two steps: `result_info` and `sweep_info` compute what is to be seen, `draw_result`
and `draw_sweep` draw it. Of a comparison: `draw_comparison`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.text import format_compact
from .style import MOST_LEGEND, choose_style, finish_axes, make_figure, save_if_asked, say_in_middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..study.comparison import Comparison


BOUNDS_NOTE = "   thin dashed: the order of its bound in Table 1, with the constant 1"


def draw_comparison(
    comparison: Comparison, path: str | os.PathLike[str] | None = None, *, bounds: bool = False
) -> Figure:
    """Regret with confidence bands and communication of each policy, on logarithmic axes; also written to `path`."""
    figure = make_figure((13, 5.4))
    policies = _order_by_regret(comparison)
    figure.suptitle(_format_title(comparison) + (BOUNDS_NOTE if bounds else ""), fontsize=12)
    left, right = figure.subplots(1, 2)
    for number, policy in enumerate(policies):
        style = choose_style(number) | {
            "linewidth": 1.8,
            "markersize": 5,
            "markevery": (10 + 5 * number, 60),
        }
        _draw_policy(left, comparison, policy, "regret", style, bounds)
        _draw_policy(right, comparison, policy, "communication", style, bounds)
    what = "Regret (mean over seeds, 95 % confidence band)" if comparison.has_errors else "Regret"
    finish_axes(left, title=what, y="cumulative regret")
    finish_axes(right, title="Communication", y="communications (cumulative)")
    if not right.lines:
        say_in_middle(right, "no communication" if policies else "no run was finished")
    if not policies:
        say_in_middle(left, "no run was finished")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    if (
        bounds or len(policies) > MOST_LEGEND
    ):  # within the panel, it would lie on the dashed lines, or be too long
        figure.legend(
            *left.get_legend_handles_labels(),
            loc="outside right center",
            frameon=False,
            fontsize=8.5,
            title="regret",
        )
    else:
        left.legend(
            *left.get_legend_handles_labels(), loc="upper left", frameon=False, fontsize=8.5
        )
    return save_if_asked(figure, path)


def _order_by_regret(comparison: Comparison) -> list[str]:
    """Worst first, as the curves lie on the page: a legend is read beside them."""
    return sorted(comparison.runs, key=lambda policy: -comparison.last(policy, "regret").mean())


def _format_title(comparison: Comparison) -> str:
    setting = next(iter(comparison.algorithms.values())).setting
    sizes = f"d = {setting.dim:,},  K = {setting.n_arms:,},  M = {setting.n_clients:,},  T = {setting.horizon:,}"
    return f"{sizes}  ({comparison.over})"


def _draw_policy(
    axes: Axes, comparison: Comparison, policy: str, what: str, style: dict[str, Any], bounds: bool
) -> None:
    pulls, mean, half = comparison.curve(policy, what)
    there = mean >= (
        1 if what == "communication" else 1e-12
    )  # before the first message there is nothing to see
    if not there.any():
        return
    pulls, mean, half = pulls[there], mean[there], half[there]
    axes.loglog(pulls, mean, label=f"{policy}: {format_compact(mean[-1])}", **style)
    axes.fill_between(
        pulls,
        np.maximum(mean - half, mean / 3),
        mean + half,
        color=style["color"],
        alpha=0.18,
        linewidth=0,
    )
    curve = comparison.bound_curve(policy, what, pulls) if bounds else None
    if curve is not None:
        axes.loglog(
            pulls, curve, color=style["color"], linestyle=(0, (6, 4)), linewidth=0.9, alpha=0.7
        )
