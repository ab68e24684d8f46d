"""Figures. Of a run and of a sweep, in two steps: `result_info` and `sweep_info` compute what is to be seen, `draw_result`
and `draw_sweep` draw it. Of a comparison: `draw_comparison`."""

from __future__ import annotations

import functools
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import AnyArray, Counts, Floats
from .errors import MissingExtra
from .files import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .comparison import Comparison
    from .result import RunResult
    from .sweep import SweepResult

# Okabe and Ito's palette, which colour-blind readers can tell apart; line styles differ too, for print in grey.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"
DASHED: dict[str, Any] = {"color": GREY, "linestyle": "--", "zorder": 3}  # on top, so that it is seen where the curves coincide
DPI = 150
LOG_SPAN = 1000  # last count over first from which on a logarithmic axis shows more than a linear one
MOST_BAR_LABELS = 8

# For many curves: colours that differ in hue, line styles and markers that differ without it.
FIRST_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
COLOURS = (*FIRST_COLOURS, "#7B3294", "#8B0000", "#8F8F8F", "#9ACD32")  # one for each policy of a comparison of all
STYLES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*Xh<>d"
WIDE = 20  # largest over smallest from which on an axis is logarithmic
MOST_TICKS, MOST_LEGEND = 8, 8
XLABELS = {"horizon": "horizon (pulls)"}
YLABELS = {"regret": "cumulative regret", "communication": "communications (cumulative)"}
BOUNDS_NOTE = "   thin dashed: the order of its bound in Table 1, with the constant 1"


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


def result_info(result: RunResult) -> ResultInfo:
    """The small object between a result and its figure: test it, or draw it with another library."""
    algorithm = result.spec.get("algorithm", {})
    label = algorithm.get("variant", "run")
    return ResultInfo(
        title=_title(result, algorithm, label),
        label=label,
        pulls=result.pulls,
        regret=result.regret,
        uniform_regret=result.uniform_regret,
        communication=result.communication,
        layer_pulls=result.layer_pulls,
    )


def _title(result: RunResult, algorithm: dict[str, Any], label: str) -> str:
    """Variant, preset and sizes; and, where it was stopped early, how far it got."""
    preset = f", preset {algorithm['preset']}" if "preset" in algorithm else ""
    sizes = {"d": "dim", "K": "n_arms", "M": "n_clients"}
    shown = [f"{symbol} = {algorithm[name]:,}" for symbol, name in sizes.items() if name in algorithm]
    horizon = result.spec.get("horizon", result.n_pulls)
    ended = "" if result.complete else f" (stopped early after {result.n_pulls:,})"
    return f"{label}{preset}:  {',  '.join([*shown, f'T = {horizon:,}'])}{ended}"


# --- drawing ---------------------------------------------------------------------------------------------------------


def draw_result(result: RunResult, path: str | os.PathLike[str] | None = None) -> Figure:
    """Regret, communication and pulls by layer side by side; also written to `path` when one is given.

    >>> import fedsuplin as fsl
    >>> result = fsl.run("async", fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0), horizon=200)
    >>> len(draw_result(result).axes)
    3
    """
    return saved(draw(result_info(result)), path)


def draw(info: ResultInfo) -> Figure:
    figure = new_figure((13, 4.2))
    figure.suptitle(info.title, fontsize=12)
    for axes, panel in zip(figure.subplots(1, 3), (draw_regret, draw_communication, draw_layers), strict=True):
        panel(axes, info)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_regret(axes: Axes, info: ResultInfo) -> None:
    """Cumulative regret against that of uniform random play on the same rounds."""
    finish_axes(axes, title="Regret", y="cumulative regret")
    if not len(info.pulls):
        return _say(axes, "nothing recorded")
    pulls = _from_zero(info.pulls)
    solid: dict[str, Any] = {"color": BLUE, "linewidth": 2.2}
    for label, values, style in (
        ("uniform random play", info.uniform_regret, DASHED),
        (info.label, info.regret, solid),
    ):
        axes.plot(pulls, _from_zero(values), label=f"{label}: {compact(values[-1])}", **style)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", frameon=False)


def draw_communication(axes: Axes, info: ResultInfo) -> None:
    """How often clients talked to the server, on logarithmic axes where the count spans much."""
    from matplotlib.ticker import MaxNLocator

    counts, talked = info.communication, info.communication > 0
    style: dict[str, Any] = {"color": GREEN, "linewidth": 2.2, "drawstyle": "steps-post"}
    if talked.any() and counts[-1] >= LOG_SPAN * counts[talked][0]:
        ends = info.pulls[talked][[0, -1]]
        axes.loglog(ends, ends, label="one at every pull", **DASHED)
        axes.loglog(info.pulls[talked], counts[talked], label=f"{info.label}: {compact(counts[-1])}", **style)
    elif talked.any():
        axes.plot(_from_zero(info.pulls), _from_zero(counts), label=f"{info.label}: {compact(counts[-1])}", **style)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    finish_axes(axes, title="Communication", y="communications (cumulative)")
    if not talked.any():
        return _say(axes, "no communication" if len(counts) else "nothing recorded")
    axes.legend(loc="upper left" if axes.get_yscale() == "log" else "lower right", frameon=False)


def draw_layers(axes: Axes, info: ResultInfo) -> None:
    """How many pulls each layer of the screening played."""
    from matplotlib.ticker import MaxNLocator

    n = len(info.layer_pulls)
    bars = axes.bar(np.arange(n), info.layer_pulls, color=ORANGE, edgecolor="black", linewidth=0.8, width=0.7)
    finish_axes(axes, title="Pulls by layer", x="layer", y="pulls")
    empty = max(0, 4 - n) / 2  # so that a single layer is no wall
    axes.set_xlim(-0.6 - empty, n - 0.4 + empty)
    if n <= MOST_BAR_LABELS:
        axes.set_xticks(np.arange(n))
        axes.bar_label(bars, labels=[compact(pulls) for pulls in info.layer_pulls], padding=2, fontsize=9)
        axes.margins(y=0.1)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))


# --- several policies ------------------------------------------------------------------------------------------------


def draw_comparison(comparison: Comparison, path: str | os.PathLike[str] | None = None, *, bounds: bool = False) -> Figure:
    """Regret with confidence bands and communication of each policy, on logarithmic axes; also written to `path`."""
    figure = new_figure((13, 5.4))
    policies = _by_last_regret(comparison)
    figure.suptitle(_comparison_title(comparison) + (BOUNDS_NOTE if bounds else ""), fontsize=12)
    left, right = figure.subplots(1, 2)
    for number, policy in enumerate(policies):
        style = style_of(number) | {"linewidth": 1.8, "markersize": 5, "markevery": (10 + 5 * number, 60)}
        _draw_policy(left, comparison, policy, "regret", style, bounds)
        _draw_policy(right, comparison, policy, "communication", style, bounds)
    what = "Regret (mean over seeds, 95 % confidence band)" if comparison.has_errors else "Regret"
    finish_axes(left, title=what, y="cumulative regret")
    finish_axes(right, title="Communication", y="communications (cumulative)")
    if not right.lines:
        _say(right, "no communication" if policies else "no run was finished")
    if not policies:
        _say(left, "no run was finished")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    if bounds or len(policies) > MOST_LEGEND:  # within the panel, it would lie on the dashed lines, or be too long
        figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8.5, title="regret")
    else:
        left.legend(*left.get_legend_handles_labels(), loc="upper left", frameon=False, fontsize=8.5)
    return saved(figure, path)


def _by_last_regret(comparison: Comparison) -> list[str]:
    """Worst first, as the curves lie on the page: a legend is read beside them."""
    return sorted(comparison.runs, key=lambda policy: -comparison.last(policy, "regret").mean())


def _comparison_title(comparison: Comparison) -> str:
    setting = next(iter(comparison.algorithms.values())).setting
    sizes = f"d = {setting.dim:,},  K = {setting.n_arms:,},  M = {setting.n_clients:,},  T = {setting.horizon:,}"
    return f"{sizes}  ({comparison.over})"


def _draw_policy(axes: Axes, comparison: Comparison, policy: str, what: str, style: dict[str, Any], bounds: bool) -> None:
    pulls, mean, half = comparison.curve(policy, what)
    there = mean >= (1 if what == "communication" else 1e-12)  # before the first message there is nothing to see
    if not there.any():
        return
    pulls, mean, half = pulls[there], mean[there], half[there]
    axes.loglog(pulls, mean, label=f"{policy}: {compact(mean[-1])}", **style)
    axes.fill_between(pulls, np.maximum(mean - half, mean / 3), mean + half, color=style["color"], alpha=0.18, linewidth=0)
    curve = comparison.bound_curve(policy, what, pulls) if bounds else None
    if curve is not None:
        axes.loglog(pulls, curve, color=style["color"], linestyle=(0, (6, 4)), linewidth=0.9, alpha=0.7)


# --- a sweep ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SweepInfo:
    """What the figure of a sweep shows: means and half-widths against one axis, a line for each combination of the others."""

    axis: str
    ticks: list[Any]
    """The values of the axis; words where they are not numbers."""
    lines: dict[str, dict[str, tuple[list[float], list[float], list[float]]]]
    """By label, then "regret" or "communication": places on the axis, means, halves of 95 % intervals."""


def sweep_info(found: SweepResult) -> SweepInfo:
    """Along the axis of numbers that has the most values; without one, along the policies."""
    rows = [row for row in found.summary() if row["seeds"]]
    values = {axis: list(dict.fromkeys(map(_shown, (row[axis] for row in rows)))) for axis in found.varied}
    numbers = [axis for axis in values if all(isinstance(row[axis], (int, float)) for row in rows)]
    axis = max(numbers or values, key=lambda name: len(values[name]), default="policy")
    ticks = sorted({row[axis] for row in rows}) if axis in numbers else values.get(axis) or [_shown(row[axis]) for row in rows]
    lines: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: row[axis]) if axis in numbers else rows:
        place = row[axis] if axis in numbers else ticks.index(_shown(row[axis]))
        line = lines.setdefault(_label(found, row, axis), {what: ([], [], []) for what in ("regret", "communication")})
        for what, into in line.items():
            for values_of, value in zip(into, (place, row[what], _half(row, what)), strict=True):
                values_of.append(value)
    return SweepInfo(axis, ticks, lines)


def _label(found: SweepResult, row: dict[str, Any], axis: str) -> str:
    """What else varies; the policy where nothing does, unless the axis says it."""
    others = [name for name in found.varied if name != axis and row[name] is not None]
    told = ", ".join(str(row[name]) if name == "policy" else f"{name} {_shown(row[name])}" for name in others)
    return told or ("" if axis == "policy" else str(row["policy"]))


def _half(row: dict[str, Any], what: str) -> float:
    """Half the width of the 95 % confidence interval, by Student's t; 0 where there is one seed only."""
    from scipy.special import stdtrit

    return float(stdtrit(row["seeds"] - 1, 0.975) * row[f"{what}_error"]) if row["seeds"] > 1 else 0.0


def _shown(value: Any) -> str:
    return compact(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def draw_sweep(found: SweepResult, path: str | os.PathLike[str] | None = None) -> Figure:
    """Regret and communication with 95 % confidence intervals against an axis of the sweep; also written to `path`."""
    info = sweep_info(found)
    figure = new_figure((13, 5.4))
    seeds = len({row["seed"] for row in found.rows})
    over = f"{seeds} seeds, mean and 95 % confidence interval" if seeds > 1 else "one seed"
    figure.suptitle(f"{' × '.join(found.varied) or 'one point'}  ({over})", fontsize=12)
    for axes, what in zip(figure.subplots(1, 2), ("regret", "communication"), strict=True):
        for number, (label, line) in enumerate(info.lines.items()):
            draw_line(axes, *line[what], label=label, number=number)
        finish_axes(axes, title=what.capitalize(), y=YLABELS[what], x=XLABELS.get(info.axis, info.axis))
        scale_axes(axes, info)
        axes.spines[["top", "right"]].set_visible(False)
    if not info.lines:
        for axes in figure.axes:
            _say(axes, "no run succeeded")
    elif len(info.lines) <= MOST_LEGEND:
        if any(info.lines):
            figure.axes[0].legend(frameon=False, fontsize=8.5)
    else:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=7)
    return saved(figure, path)


def draw_line(axes: Axes, x: Any, mean: Any, half: Any, *, label: str, number: int) -> None:
    """Means with intervals, told apart by colour, line style and marker."""
    mean, half = np.asarray(mean, float), np.asarray(half, float)
    axes.errorbar(x, mean, yerr=half, label=label, capsize=2.5, markersize=5, linewidth=1.6, **style_of(number))


def style_of(number: int) -> dict[str, Any]:
    """The look of the number-th curve of a figure: no two of the first 48 share colour and line style."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[(number + number // len(COLOURS)) % len(STYLES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def scale_axes(axes: Axes, info: SweepInfo) -> None:
    """Logarithmic where values span more than a factor of 20; words, which no lines connect, for places that are not numbers."""
    if all(isinstance(tick, str) for tick in info.ticks):
        axes.set_xticks(range(len(info.ticks)), info.ticks, rotation=20 if len(info.ticks) > 4 else 0)
        for line, *_ in axes.containers:
            line.set_linestyle("none")
    elif min(info.ticks) > 0:
        if max(info.ticks) > WIDE * min(info.ticks):
            axes.set_xscale("log")
        if len(info.ticks) <= MOST_TICKS:
            axes.set_xticks(info.ticks, [compact(tick) for tick in info.ticks])
            axes.set_xticks([], minor=True)
    drawn = [np.asarray(line.get_ydata(), float) for line in axes.lines]
    heights = [float(value) for values in drawn for value in values[np.isfinite(values)]]
    if heights and min(heights) > 0 and max(heights) > WIDE * min(heights):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: compact(value))


# --- what all figures share --------------------------------------------------------------------------------------------


def new_figure(size: tuple[float, float]) -> Figure:
    """A figure of its own, without pyplot: nothing global is touched, and no window system is needed."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtra("a figure needs matplotlib: pip install 'fedsuplin[plot]'") from None
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.05, w_pad=0.1, h_pad=0.1))
    vars(figure)["_repr_png_"] = functools.partial(_png, figure)  # what a notebook shows, even where pyplot was never imported
    return figure


def saved(figure: Figure, path: str | os.PathLike[str] | None) -> Figure:
    if path is not None:
        save_figure(figure, path)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """As PNG, SVG or whatever the name ends in; the same figure is the same file."""
    kind = Path(path).suffix.lstrip(".") or "png"
    with whole(path, "wb") as file:
        figure.savefig(file, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)


def finish_axes(axes: Axes, title: str, y: str, x: str = "pulls") -> None:
    """Words and tick labels that all panels share."""
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: compact(value))


def _say(axes: Axes, words: str) -> None:
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set(xticks=[], yticks=[])


def _from_zero(values: AnyArray) -> AnyArray:
    """A cumulative curve starts at 0, before the first pull."""
    return np.concatenate([[0], values])


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI // 2)
    return buffer.getvalue()


def compact(value: float) -> str:
    """A number for an axis or a label, in four digits at most.

    >>> [compact(value) for value in (0, 0.25, 640, 1149, 24250, 14731.9, 2_000_000)]
    ['0', '0.25', '640', '1.15k', '24.2k', '14.7k', '2M']
    """
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * unit:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.3g}"
