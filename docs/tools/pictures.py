"""Draw the pictures of docs/algorithm.md into docs/pictures/: `python docs/tools/pictures.py`.

Each is drawn for light and for dark pages. Lines come from the paper's arithmetic on small
problems. The arms of the first picture are made up, and the rules are applied to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import FancyBboxPatch  # noqa: E402

FOLDER = Path(__file__).parents[1] / "pictures"


@dataclass(frozen=True)
class Look:
    """Colours that differ clearly on this background, also for most colour-blind readers."""

    ink: str
    quiet: str
    panel: str
    blue: str
    orange: str
    green: str


LOOKS = {
    "light": Look("#1f2933", "#8a94a0", "#eef1f5", "#0b66a8", "#c84e00", "#00785a"),
    "dark": Look("#e6eaf0", "#8f99a8", "#2b3040", "#6cb8f0", "#ffa34d", "#3fd6ac"),
}


# --- one decision ---------------------------------------------------------------------------------


def draw_layers(look: Look) -> Figure:
    """Draw the initial screening, a layer that is passed, and a layer that plays.

    The second is not layer 0, where the initial screening has dropped all that the target width
    would.
    """
    everyone = np.ones(8, bool)
    estimates = np.array([0.10, 0.62, 0.35, 0.80, 0.28, 0.72, 0.95, -0.05])
    widths = np.array([0.30, 0.33, 0.24, 0.36, 0.22, 0.38, 0.34, 0.26])
    lowest = (estimates - widths).max()
    first = estimates + widths >= lowest

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.9), sharey=True)
    draw_arms(axes[0], look, estimates, widths, everyone, first, None)
    draw_line(axes[0], look, lowest, "max(r̂ − w)")
    set_title(axes[0], "Layer 0: initial screening", "keep arms whose top reaches the line")

    estimates = np.array([0.0, 0.38, 0.0, 0.84, 0.0, 0.66, 0.92, 0.0])
    widths = np.array([0.0, 0.17, 0.0, 0.13, 0.0, 0.19, 0.16, 0.0])
    lowest = estimates[first].max() - 2 * 0.2
    second = first & (estimates >= lowest)
    draw_arms(axes[1], look, estimates, widths, first, second, None)
    draw_line(axes[1], look, lowest, "max r̂ − 2w̄₁")
    set_title(axes[1], "Layer 1: every width ≤ w̄₁", "keep estimates above the line, next layer")

    estimates = np.array([0.0, 0.0, 0.0, 0.86, 0.0, 0.70, 0.90, 0.0])
    widths = np.array([0.0, 0.0, 0.0, 0.08, 0.0, 0.16, 0.07, 0.0])
    played = int(np.where(second, widths, -1).argmax())
    draw_arms(axes[2], look, estimates, widths, second, second, played)
    set_title(axes[2], "Layer 2: a width > w̄₂", "play the widest, learn in this layer")
    draw_arrow(axes[2], look.orange, (played - 1.6, 0.24), (played - 0.15, 0.5))
    axes[2].text(
        played - 1.7, 0.2, "played", color=look.orange, fontsize=11, ha="right", va="center"
    )
    axes[0].set_ylabel("estimate r̂ ± width w")
    for each in axes:
        each.set(xlabel="arm", xlim=(-2.7, 7.6), ylim=(-0.45, 1.42))
        each.set_xticks(range(8), range(1, 9))
    return figure


def draw_arms(
    axes: Axes,
    look: Look,
    estimates: np.ndarray,
    widths: np.ndarray,
    there: np.ndarray,
    kept: np.ndarray,
    played: int | None,
) -> None:
    """Draw estimates and widths of arms: those kept, those dropped, and the one played."""
    for arm in np.flatnonzero(there):
        colour = look.orange if arm == played else look.blue if kept[arm] else look.quiet
        style: Any = {"color": colour, "lw": 2.6 if kept[arm] else 1.6, "capsize": 5, "ms": 7}
        axes.errorbar(arm, estimates[arm], widths[arm], fmt="o" if kept[arm] else "x", **style)


def draw_line(axes: Axes, look: Look, height: float, words: str) -> None:
    """Draw a dashed line across a picture, with its name."""
    axes.axhline(height, color=look.green, ls="--", lw=1.6)
    axes.text(-2.6, height + 0.03, words, color=look.green, va="bottom", fontsize=10.5)


def set_title(axes: Axes, words: str, below: str) -> None:
    """Set the title of a picture, and a line below it."""
    axes.set_title(f"{words}\n", fontsize=12, fontweight="bold", loc="left")
    axes.text(0, 1.03, below, transform=axes.transAxes, fontsize=10.5)


# --- what is sent, and when -----------------------------------------------------------------------

DIM, CLIENTS, PULLS = 6, 4, 160


def play_federation(fires: Callable[[float, int], bool], all_sync: bool) -> dict[str, Any]:
    """Play a small one-layer federation, and return what client 0 sees pull by pull.

    That is its lazy and its eager width of one arm, its gain, the time since its last sync, and
    its syncs.
    """
    rng = np.random.default_rng(3)
    server, watched = np.eye(DIM), np.eye(DIM)[0]
    known, new = (
        [np.eye(DIM) for _ in range(CLIENTS)],
        [np.zeros((DIM, DIM)) for _ in range(CLIENTS)],
    )
    since = [0] * CLIENTS
    seen: dict[str, Any] = {"lazy": [], "eager": [], "gain": [], "elapsed": [], "syncs": []}
    for pull in range(PULLS):
        asked = []
        for client in range(CLIENTS):
            x = rng.standard_normal(DIM)
            x /= np.linalg.norm(x)
            new[client] += np.outer(x, x)
            since[client] += 1
            gain = (
                np.linalg.slogdet(known[client] + new[client])[1]
                - np.linalg.slogdet(known[client])[1]
            )
            if client == 0:
                seen["lazy"].append(float(np.sqrt(watched @ np.linalg.inv(known[0]) @ watched)))
                seen["eager"].append(
                    float(np.sqrt(watched @ np.linalg.inv(known[0] + new[0]) @ watched))
                )
                seen["gain"].append(gain)
                seen["elapsed"].append(since[0])
            if fires(gain, since[client]):
                asked.append(client)
        for client in range(CLIENTS) if all_sync and asked else asked:
            server = server + new[client]
            new[client] = np.zeros((DIM, DIM))
            since[client] = 0
            if client == 0:
                seen["syncs"].append(pull + 1)
        for client in range(CLIENTS) if all_sync and asked else asked:
            known[client] = server
    return seen


def draw_lazy_eager(look: Look) -> Figure:
    """Draw the lazy and the eager width of one arm over time."""
    seen = play_federation(lambda gain, elapsed: gain > np.log(10), all_sync=False)
    figure, axes = pyplot.subplots(figsize=(11, 3.4))
    pulls = np.arange(1, PULLS + 1)
    axes.step(
        pulls,
        seen["lazy"],
        where="post",
        color=look.blue,
        lw=2.4,
        label="lazy: from the last download alone (async family)",
    )
    axes.plot(
        pulls,
        seen["eager"],
        color=look.orange,
        lw=2.0,
        label="eager: with what was gathered since (sync family)",
    )
    for number, sync in enumerate(seen["syncs"]):
        axes.axvline(
            sync, color=look.quiet, lw=0.9, ls=":", label=None if number else "this client syncs"
        )
    axes.set(
        xlabel="pulls of one client",
        ylabel="‖x‖ in A⁻¹, for one arm",
        xlim=(0, PULLS),
        yscale="log",
    )
    axes.set_yticks([0.1, 0.2, 0.5, 1.0], ["0.1", "0.2", "0.5", "1"])
    axes.minorticks_off()
    axes.legend(frameon=False, labelcolor=look.ink, loc="upper right", fontsize=10.5)
    return figure


def draw_triggers(look: Look) -> Figure:
    """Draw the two triggers over time."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 3.5))
    pulls = np.arange(1, PULLS + 1)
    one = play_federation(lambda gain, elapsed: gain > np.log(2), all_sync=False)
    draw_saw(left, look, pulls, np.array(one["gain"]), float(np.log(2)), "ln(1 + C)")
    set_title(
        left,
        "async: det(A+ΔA)/det(A) > 1 + C",
        "what one client has gained since its own last sync",
    )
    left.set(xlabel="pulls of one client", ylabel="gain, ln det ratio")
    every = play_federation(lambda gain, elapsed: elapsed * gain > 12, all_sync=True)
    draw_saw(right, look, pulls, np.array(every["elapsed"]) * np.array(every["gain"]), 12, "D")
    set_title(
        right, "sync: (t − t_last) · ln det ratio > D", "time counts too; if one fires, all sync"
    )
    right.set(xlabel="rounds", ylabel="elapsed · gain, of one client")
    return figure


def draw_saw(
    axes: Axes, look: Look, pulls: np.ndarray, values: np.ndarray, threshold: float, words: str
) -> None:
    """Draw the value that a trigger compares, its threshold, and where it fires."""
    axes.plot(pulls, values, color=look.blue, lw=1.8)
    fired = values > threshold
    axes.plot(pulls[fired], values[fired], "o", color=look.orange, ms=6)
    axes.axhline(threshold, color=look.green, ls="--", lw=1.6)
    axes.text(
        PULLS, threshold * 1.03, words, color=look.green, ha="right", va="bottom", fontsize=11
    )
    axes.set(xlim=(0, PULLS), ylim=(0, 1.12 * max(values.max(), 1.2 * threshold)))


# --- who talks to whom ----------------------------------------------------------------------------


def draw_talk(look: Look) -> Figure:
    """Draw who talks to whom."""
    figure, axes = pyplot.subplots(1, 4, figsize=(11, 3.6))
    cases = [
        ("One", 'syncs="one"', "async, variance, robust, fedlinucb", [1], [1], "all layers"),
        (
            "All",
            'syncs="all"',
            "sync, dislinucb",
            [0, 1, 2, 3],
            [0, 1, 2, 3],
            "the layers that ask",
        ),
        ("Push", 'syncs="push"', "async-linucb", [1], [0, 3], "to whom it is news"),
        ("None", 'trigger="never"', "oful, suplinucb, pe, greedy, uniform", [], [], ""),
    ]
    for each, (name, keyword, who, up, down, what) in zip(axes, cases, strict=True):
        each.set(xlim=(-0.7, 3.7), ylim=(-1.15, 2.9))
        each.axis("off")
        each.text(1.5, 2.95, name, ha="center", fontsize=13, fontweight="bold")
        each.text(1.5, 2.58, keyword, ha="center", fontsize=10.5, family="monospace")
        draw_box(each, look, 0.6, 1.75, 1.8, 0.55, "server")
        for client in range(4):
            spoken = client in up or client in down
            each.plot(
                client,
                0,
                "o",
                ms=25,
                color=look.panel,
                markeredgecolor=look.ink if spoken else look.quiet,
                mew=1.6,
            )
            each.text(
                client,
                -0.02,
                str(client),
                ha="center",
                va="center",
                fontsize=11,
                color=look.ink if spoken else look.quiet,
            )
        both = set(up) & set(down)
        for clients, colour, upwards in ((up, look.blue, True), (down, look.orange, False)):
            for client in clients:
                shift = (-0.11 if upwards else 0.11) if client in both else 0
                low, high = (client + shift, 0.36), (0.9 + 0.4 * client + shift, 1.7)
                ends = (high, low) if upwards else (low, high)
                each.annotate(
                    "",
                    *ends,
                    arrowprops={
                        "arrowstyle": "-|>",
                        "color": colour,
                        "lw": 1.9,
                        "shrinkA": 0,
                        "shrinkB": 0,
                    },
                )
        each.text(
            1.5,
            -0.68,
            who.replace(", greedy", ",\ngreedy").replace(", robust", ",\nrobust"),
            ha="center",
            va="top",
            fontsize=9.5,
        )
        each.text(
            3.75,
            1.02,
            what.replace(" that ", "\nthat ").replace(" it ", "\nit "),
            ha="right",
            fontsize=9,
            color=look.orange,
        )
    figure.text(0.5, 0.0, "blue: ΔA, Δb up        orange: A, b down", ha="center", fontsize=10.5)
    return figure


def draw_one_pull(look: Look) -> Figure:
    """Draw one pull, from contexts to the server."""
    figure, axes = pyplot.subplots(figsize=(11, 3.5))
    axes.set(xlim=(0, 22), ylim=(0, 6.4))
    axes.axis("off")
    draw_box(axes, look, 0.2, 3.4, 3.7, 2.0, "K contexts\nx₁ … x_K", "select(contexts)")
    draw_box(
        axes, look, 5.3, 3.4, 4.3, 2.0, "layers 0 … S:\nscreen, choose", "decision.arm, .layer"
    )
    draw_box(
        axes,
        look,
        11.0,
        3.4,
        4.5,
        2.0,
        "reward r\nΔA += ω x xᵀ\nΔb += ω r x",
        "observe(decision, r)",
    )
    draw_box(axes, look, 16.9, 3.4, 4.9, 2.0, "trigger, from the\ngain of that layer", "wants_sync")
    draw_box(axes, look, 16.9, 0.5, 4.9, 1.7, "server: A += ΔA, b += Δb", "server.merge(upload)")
    draw_box(
        axes,
        look,
        5.3,
        0.5,
        10.2,
        1.7,
        "the client's A, b of every layer; its Δ is empty again",
        "apply(download)",
    )
    for start, end in (
        ((3.9, 4.4), (5.3, 4.4)),
        ((9.6, 4.4), (11.0, 4.4)),
        ((15.5, 4.4), (16.9, 4.4)),
    ):
        draw_arrow(axes, look.ink, start, end)
    draw_arrow(axes, look.blue, (19.35, 3.4), (19.35, 2.2))
    axes.text(19.6, 2.72, "fires: upload", color=look.blue, fontsize=10.5, va="center")
    draw_arrow(axes, look.orange, (16.9, 1.35), (15.5, 1.35))
    draw_arrow(axes, look.orange, (7.45, 2.2), (7.45, 3.4))
    axes.text(7.7, 2.8, "decides from these", color=look.orange, fontsize=10.5, va="center")
    axes.annotate(
        "",
        (2.05, 5.4),
        (19.35, 5.4),
        arrowprops={
            "arrowstyle": "-|>",
            "color": look.quiet,
            "lw": 1.5,
            "connectionstyle": "bar,fraction=0.035",
        },
    )
    axes.text(
        10.7, 6.2, "quiet: the next pull", color=look.quiet, fontsize=10.5, ha="center", va="bottom"
    )
    return figure


def draw_box(
    axes: Axes,
    look: Look,
    x: float,
    y: float,
    width: float,
    height: float,
    words: str,
    name: str = "",
) -> None:
    """Draw a box with words in it."""
    shape = FancyBboxPatch(
        (x, y),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.12",
        fc=look.panel,
        ec=look.quiet,
        lw=1.3,
    )
    axes.add_patch(shape)
    middle = (
        y
        + height / 2
        + (0.22 * height if name and "\n" not in words else 0.14 * height if name else 0)
    )
    axes.text(
        x + width / 2, middle, words, ha="center", va="center", fontsize=10.5, linespacing=1.25
    )
    if name:
        axes.text(
            x + width / 2,
            y + 0.14 * height,
            name,
            ha="center",
            va="center",
            fontsize=9.5,
            family="monospace",
            color=look.blue,
        )


def draw_arrow(
    axes: Axes, colour: str, start: tuple[float, float], end: tuple[float, float]
) -> None:
    """Draw an arrow."""
    axes.annotate(
        "",
        end,
        start,
        arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.9, "shrinkA": 0, "shrinkB": 0},
    )


# --- all of them ----------------------------------------------------------------------------------

PICTURES: dict[str, Callable[[Look], Figure]] = {
    "one-pull": draw_one_pull,
    "layers": draw_layers,
    "lazy-eager": draw_lazy_eager,
    "triggers": draw_triggers,
    "talk": draw_talk,
}


def write(folder: Path, suffix: str = "svg") -> Iterator[Path]:
    """Draw every picture in both looks, and yield the paths of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        for mode, look in LOOKS.items():
            inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
            style: Any = dict.fromkeys(inks, look.ink) | {
                "svg.hashsalt": name,
                "font.family": "DejaVu Sans",
            }
            style |= {
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.facecolor": "none",
                "font.size": 11,
            }
            with pyplot.rc_context(style):
                figure = draw(look)
                figure.tight_layout()
                path = folder / f"{name}-{mode}.{suffix}"
                metadata = {"Date": None} if suffix == "svg" else {}
                figure.savefig(
                    path, transparent=True, bbox_inches="tight", metadata=metadata, dpi=90
                )
                pyplot.close(figure)
            yield path


if __name__ == "__main__":
    for written in write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(f"wrote {written}")
