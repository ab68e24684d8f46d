"""The figure of one run: compute what it shows, then draw it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.array_types import AnyArray, Counts, Floats
from .._shared.text import format_compact
from .style import (
    BLUE,
    DASHED,
    GREEN,
    ORANGE,
    YLABELS,
    finish_axes,
    hide_box,
    make_figure,
    save_if_asked,
    say_in_middle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..simulation.result import RunResult


LOG_SPAN = 1000  # the axes are logarithmic if the last count is this many times the first
MOST_BAR_LABELS = 8


@dataclass(frozen=True, eq=False)
class ResultInfo:
    """What the figure of one run shows: plain arrays and words."""

    title: str
    label: str
    pulls: Counts
    regret: Floats
    uniform_regret: Floats
    communication: Counts
    layer_pulls: Counts


def compute_result_info(result: RunResult) -> ResultInfo:
    """Compute what the figure of a run shows. Test it, or draw it with another library."""
    algorithm = result.spec.get("algorithm", {})
    label = algorithm.get("variant", "run")
    return ResultInfo(
        title=_format_title(result, algorithm, label),
        label=label,
        pulls=result.pulls,
        regret=result.regret,
        uniform_regret=result.uniform_regret,
        communication=result.communication,
        layer_pulls=result.layer_pulls,
    )


def _format_title(result: RunResult, algorithm: dict[str, Any], label: str) -> str:
    """Return the title of a run's figure: variant, preset and sizes, and how far it got."""
    preset = f", preset {algorithm['preset']}" if "preset" in algorithm else ""
    sizes = {"d": "dim", "K": "n_arms", "M": "n_clients"}
    shown = [
        f"{symbol} = {algorithm[name]:,}" for symbol, name in sizes.items() if name in algorithm
    ]
    horizon = result.spec.get("horizon", result.n_pulls)
    ended = "" if result.complete else f" (stopped early after {result.n_pulls:,})"
    return f"{label}{preset}:  {',  '.join([*shown, f'T = {horizon:,}'])}{ended}"


def draw_result(result: RunResult, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw the figure of a run: regret, communication and pulls by layer; save it if asked.

    >>> import fedsuplin as fsl
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0)
    >>> result = fsl.run("async", problem, horizon=200)
    >>> len(draw_result(result).axes)
    3
    """
    return save_if_asked(draw_result_info(compute_result_info(result)), path)


def draw_result_info(info: ResultInfo) -> Figure:
    """Draw the three panels of a run's figure side by side."""
    figure = make_figure((13, 4.2))
    figure.suptitle(info.title, fontsize=12)
    for axes, panel in zip(
        figure.subplots(1, 3), (draw_regret, draw_communication, draw_layers), strict=True
    ):
        panel(axes, info)
        hide_box(axes)
    return figure


def draw_regret(axes: Axes, info: ResultInfo) -> None:
    """Draw, in a run's figure, the regret beside that of uniform random play."""
    finish_axes(axes, title="Regret", y=YLABELS["regret"])
    if not len(info.pulls):
        return say_in_middle(axes, "nothing recorded")
    pulls = _prepend_zero(info.pulls)
    solid: dict[str, Any] = {"color": BLUE, "linewidth": 2.2}
    for label, values, style in (
        ("uniform random play", info.uniform_regret, DASHED),
        (info.label, info.regret, solid),
    ):
        axes.plot(
            pulls, _prepend_zero(values), label=f"{label}: {format_compact(values[-1])}", **style
        )
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", frameon=False)


def draw_communication(axes: Axes, info: ResultInfo) -> None:
    """Draw, in a run's figure, how often clients talked to the server."""
    from matplotlib.ticker import MaxNLocator

    counts, talked = info.communication, info.communication > 0
    style: dict[str, Any] = {"color": GREEN, "linewidth": 2.2, "drawstyle": "steps-post"}
    if talked.any() and counts[-1] >= LOG_SPAN * counts[talked][0]:
        ends = info.pulls[talked][[0, -1]]
        axes.loglog(ends, ends, label="one at every pull", **DASHED)
        axes.loglog(
            info.pulls[talked],
            counts[talked],
            label=f"{info.label}: {format_compact(counts[-1])}",
            **style,
        )
    elif talked.any():
        axes.plot(
            _prepend_zero(info.pulls),
            _prepend_zero(counts),
            label=f"{info.label}: {format_compact(counts[-1])}",
            **style,
        )
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    finish_axes(axes, title="Communication", y=YLABELS["communication"])
    if not talked.any():
        return say_in_middle(axes, "no communication" if len(counts) else "nothing recorded")
    axes.legend(loc="upper left" if axes.get_yscale() == "log" else "lower right", frameon=False)


def draw_layers(axes: Axes, info: ResultInfo) -> None:
    """Draw, in a run's figure, how many pulls each layer of the screening played."""
    from matplotlib.ticker import MaxNLocator

    n = len(info.layer_pulls)
    bars = axes.bar(
        np.arange(n), info.layer_pulls, color=ORANGE, edgecolor="black", linewidth=0.8, width=0.7
    )
    finish_axes(axes, title="Pulls by layer", x="layer", y="pulls")
    empty = max(0, 4 - n) / 2  # so that the bar of a single layer does not fill the panel
    axes.set_xlim(-0.6 - empty, n - 0.4 + empty)
    if n <= MOST_BAR_LABELS:
        axes.set_xticks(np.arange(n))
        axes.bar_label(
            bars,
            labels=[format_compact(pulls) for pulls in info.layer_pulls],
            padding=2,
            fontsize=9,
        )
        axes.margins(y=0.1)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))


def _prepend_zero(values: AnyArray) -> AnyArray:
    """Return a cumulative curve of a run's figure with the 0 before the first pull."""
    return np.concatenate([[0], values])
