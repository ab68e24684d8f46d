"""The figure of a benchmark: µs per round over d and over K."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .style import (
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

PANELS = {"dim": ("n_arms", "K", "dimension d"), "n_arms": ("dim", "d", "arms K")}


def draw_benchmark(
    rows: Sequence[dict[str, Any]], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw µs per round of each policy over d, with a line per K, and over K, with one per d."""
    figure = make_figure((13, 5.4))
    for axes, (along, (other, symbol, label)) in zip(
        figure.subplots(1, 2), PANELS.items(), strict=True
    ):
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            name = f"{row['policy']}, {symbol} = {row[other]}"
            lines.setdefault(name, []).append((row[along], row["microseconds"]))
        for number, (name, points) in enumerate(lines.items()):
            x, y = zip(*sorted(points), strict=True)
            axes.plot(x, y, label=name, linewidth=1.6, markersize=5, **choose_style(number))
        axes.set(xscale="log", yscale="log")
        finish_axes(axes, title="A round", y="µs of CPU per round", x=label)
        hide_box(axes)
        axes.legend(fontsize=8)
    return save_if_asked(figure, path)


OPPONENTS = {
    "microseconds": "async",
    "numpy_microseconds": "NumPy LinUCB, one layer",
    "layered_microseconds": "NumPy, the same job",
}


def draw_rounds(
    rows: Sequence[dict[str, Any]],
    peers: Sequence[dict[str, Any]],
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw µs per round as bars: of `async` at each size with NumPy beside it, and of peers."""
    shown = sorted(
        (row for row in rows if row["variant"] == "async"),
        key=lambda row: (row["dim"], row["n_arms"]),
    )
    figure = make_figure((13, 4.8))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for number, (key, label) in enumerate(OPPONENTS.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(shown))]
        colour = choose_style(number)["color"]
        left.bar(places, [row[key] for row in shown], width=0.25, label=label, color=colour)
    labels = [f"d={row['dim']}, K={row['n_arms']}" for row in shown]
    left.set_yscale("log")
    finish_axes(left, title="A round of async, beside NumPy", y="µs of CPU per round", x="")
    left.set_xticks(range(len(shown)), labels=labels)
    left.legend()
    draw_peers(right, peers)
    for axes in (left, right):
        hide_box(axes)
    return save_if_asked(figure, path)


def draw_peers(axes: Axes, peers: Sequence[dict[str, Any]]) -> None:
    """Draw a round of `oful` and of other libraries as bars; those without one are named below."""
    bars = {row["peer"]: row["microseconds"] for row in peers if row["microseconds"] is not None}
    ours = [row["ours"] for row in peers if row["ours"] is not None]
    missing = [row["peer"] for row in peers if row["microseconds"] is None]
    below = f"not measured: {', '.join(missing)}" if missing else ""
    if not bars:
        say_in_middle(axes, "no other library was measured")
        axes.set_xlabel(below)
        return
    bars = {"oful": min(ours)} | bars
    colours = [choose_style(number)["color"] for number in (0, *[3] * (len(bars) - 1))]
    axes.bar(range(len(bars)), list(bars.values()), width=0.6, color=colours)
    axes.set_yscale("log")
    where = f"d={peers[0]['dim']}, K={peers[0]['n_arms']}"
    finish_axes(axes, title=f"A one-layer LinUCB, {where}", y="µs of CPU per round", x=below)
    axes.set_xticks(range(len(bars)), labels=list(bars))
