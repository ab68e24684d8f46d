"""Small line charts as inline SVG.

They have the colour of the text around them, so that they are seen on light and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._shared.text import format_compact
from .html import escape_html

# Of middle lightness, which stands out on white and on black. Where colours repeat, dashes differ.
CHART_COLOURS = (
    "#2b8cde",
    "#d9730d",
    "#1a9e77",
    "#c2569a",
    "#b8860b",
    "#8a63d2",
    "#d1495b",
    "#5f8a8b",
)
DASHES = ("none", "6 3", "2 3", "8 3 2 3")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 150, 48, 10, 22, 34
MOST_POINTS = 120  # of a line: more are not seen in so few pixels


class Look(NamedTuple):
    """The look of a line and its points."""

    colour: str
    dash: str = "none"
    opacity: float = 1.0

    @property
    def line(self) -> str:
        """Return the attributes of a line in SVG."""
        seen = f'stroke="{self.colour}" opacity="{self.opacity:g}"'
        return f'fill="none" stroke-width="2" {seen} stroke-dasharray="{self.dash}"'

    @property
    def dot(self) -> str:
        """Return the attributes of a point in SVG."""
        return f'fill="{self.colour}" opacity="{self.opacity:g}"'


FAINT = Look("currentColor", "4 3", 0.55)


def choose_look(number: int) -> Look:
    """Return the look of the n-th line of an SVG chart; the first 32 all differ."""
    return Look(
        CHART_COLOURS[number % len(CHART_COLOURS)],
        DASHES[number // len(CHART_COLOURS) % len(DASHES)],
    )


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a chart."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    look: Look
    name: str = ""

    def points(self, log_x: bool, log_y: bool) -> np.ndarray:
        """Return the points of a line that SVG can draw, but no more than are seen."""
        points: np.ndarray = np.column_stack([np.asarray(self.x, float), np.asarray(self.y, float)])
        points = points[np.isfinite(points).all(axis=1)]
        for column, log in enumerate((log_x, log_y)):
            points = points[points[:, column] > 0] if log else points
        if len(points) > MOST_POINTS:
            points = points.take(
                np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int), axis=0
            )
        return points


@dataclass(frozen=True)
class Axis:
    """An axis of a chart, which turns values into pixels."""

    low: float
    high: float
    start: float
    """The pixel of `low`."""
    stop: float
    log: bool
    alone: float
    """Where a single value is drawn, as a share of the way from `start` to `stop`."""

    @classmethod
    def over(cls, values: np.ndarray, start: float, stop: float, *, log: bool, zero: bool) -> Axis:
        """Return an axis of an SVG chart from the least value, or from zero, to the greatest."""
        low, high = float(values.min()), float(values.max())
        if zero and not log:
            low, high = min(low, 0.0), max(high, 0.0)
        return cls(low, high, start, stop, log, alone=0.0 if zero and low == 0 else 0.5)

    def at(self, value: float) -> float:
        """Return the pixel of a value in the SVG."""
        low, high, value = (
            math.log(each) if self.log else each for each in (self.low, self.high, value)
        )
        scale = max(abs(low), abs(high)) or 1.0  # so that not even the largest doubles overflow
        share = (
            (value / scale - low / scale) / (high / scale - low / scale)
            if high > low
            else self.alone
        )
        return self.start + share * (self.stop - self.start)


def draw_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x: str,
    log_x: bool = False,
    log_y: bool = False,
    marks: bool = False,
) -> str:
    """Draw lines as an SVG chart, with the least and the greatest value at each axis.

    `marks` puts a dot at every point.
    """
    drawn = [(line, line.points(log_x, log_y)) for line in lines]
    drawn = [(line, points) for line, points in drawn if len(points)]
    parts = [draw_words(LEFT, 13, title + (", logarithmic" if log_y else ""), bold=True)]
    if not drawn:
        parts.append(
            draw_words(WIDTH / 2, HEIGHT / 2, "nothing recorded", anchor="middle", faint=True)
        )
    else:
        every = np.vstack([points for _, points in drawn])
        across = Axis.over(every[:, 0], LEFT, WIDTH - RIGHT, log=log_x, zero=False)
        up = Axis.over(every[:, 1], HEIGHT - BOTTOM, TOP, log=log_y, zero=True)
        parts += [draw_frame(), *draw_labels(across, up, x + (", logarithmic" if log_x else ""))]
        parts += [
            draw_path(line, [(across.at(px), up.at(py)) for px, py in points], marks)
            for line, points in drawn
        ]
    style = "max-width: 100%; height: auto; margin-right: 8px"
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    label = f'role="img" aria-label="{escape_html(title)}"'
    return f'<svg {size} style="{style}" {label}>{"".join(parts)}</svg>'


def draw_frame() -> str:
    """Draw the two axes of an SVG chart."""
    down, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    look = 'fill="none" stroke="currentColor" stroke-opacity="0.4"'
    return f'<path d="M{LEFT} {TOP}V{down}H{right}" {look}/>'


def draw_labels(across: Axis, up: Axis, x: str) -> list[str]:
    """Draw the values at the ends of both axes of an SVG chart, and the name of the one below."""
    below = HEIGHT - BOTTOM + 14
    ends = [draw_words(LEFT - 4, up.at(up.high) + 4, format_compact(up.high), anchor="end")]
    if up.high > up.low:
        ends.append(draw_words(LEFT - 4, up.start + 4, format_compact(up.low), anchor="end"))
    if across.high > across.low:
        ends += [
            draw_words(LEFT, below, format_compact(across.low)),
            draw_words(WIDTH - RIGHT, below, format_compact(across.high), anchor="end"),
        ]
    else:
        ends.append(
            draw_words(across.at(across.low), below, format_compact(across.low), anchor="middle")
        )
    return [
        *ends,
        draw_words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x, anchor="middle", faint=True),
    ]


def draw_path(line: Line, places: Sequence[tuple[float, float]], marks: bool) -> str:
    """Draw a line of an SVG chart through places; a dot where there is only one."""
    name = f"<title>{escape_html(line.name)}</title>" if line.name else ""
    through = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    drawn = f'<path d="M{through}" {line.look.line}>{name}</path>' if len(places) > 1 else ""
    dots = places if marks or len(places) == 1 else ()
    return drawn + "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" {line.look.dot}>{name}</circle>'
        for x, y in dots
    )


def draw_words(
    x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, faint: bool = False
) -> str:
    """Draw a text in an SVG chart."""
    look = ' font-weight="bold"' if bold else ' fill-opacity="0.7"' if faint else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="11" fill="currentColor"{look}>{escape_html(text)}</text>'


def draw_swatch(number: int) -> str:
    """Draw a bit of an SVG chart's n-th line, for a table that is its legend."""
    line = f'<path d="M1 4H21" {choose_look(number).line}/>'
    return f'<svg width="22" height="8" role="presentation">{line}</svg>'
