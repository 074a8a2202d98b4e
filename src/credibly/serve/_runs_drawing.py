"""Charts of several runs: lines told apart by colour, dashes and marks, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from markupsafe import Markup, escape

WIDTH, HEIGHT = 420, 250
LEFT, TOP, RIGHT, BOTTOM = 50, 10, 10, 36
STYLES = 8
"""Colours with marks and dashes; further lines begin again."""
MOST_POINTS = 400
_MARKS = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",  # circle
    "M-3 -3H3V3H-3Z",  # square
    "M0 -4L4 3H-4Z",  # triangle
    "M0 -4.5L4.5 0L0 4.5L-4.5 0Z",  # diamond
    "M0 4L4 -3H-4Z",  # triangle, point down
    "M-4 -1.2H-1.2V-4H1.2V-1.2H4V1.2H1.2V4H-1.2V1.2H-4Z",  # plus
    "M-3.5 -1.5L0 -4.5L3.5 -1.5L2 3.5H-2Z",  # pentagon
    "M-1.2 -4H1.2V4H-1.2Z",  # bar
)


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: of the run.
        style: number of its colour, dashes and mark.
        points: x and y; points that are not finite are left out.
        marked: the x of a point to mark, beside the last one; None for none.
    """

    name: str
    style: int
    points: Sequence[tuple[float, float]]
    marked: float | None = None

    @property
    def shown(self) -> list[tuple[float, float]]:
        """Return at most ``MOST_POINTS`` points, the last one among them."""
        finite = [(x, y) for x, y in self.points if isfinite(x) and isfinite(y)]
        step = max(1, -(-len(finite) // MOST_POINTS))
        return finite[::-1][::step][::-1]


@dataclass(frozen=True)
class Axes:
    """What a chart is about: its name for readers, its axes, and limits that are given."""

    title: str
    x: str
    x_limits: tuple[float, float]
    y_limits: tuple[float, float] | None = None
    diagonal: bool = False


def line_chart(lines: Sequence[Line], axes: Axes) -> Markup:
    """Return lines as SVG; the axis of y fits them unless its limits are given."""
    drawn = [(line, line.shown) for line in lines]
    values = [y for _, points in drawn for _, y in points]
    if not values:
        return Markup("")
    low, high = axes.y_limits or (min(values), max(values))
    margin = 0.0 if axes.y_limits else 0.06 * ((high - low) or abs(high) or 1.0)
    low, high = low - margin, high + margin
    start, end = axes.x_limits

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - start) / ((end - start) or 1)
        up = (y - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), TOP + (1 - up) * (HEIGHT - TOP - BOTTOM)

    bottom = HEIGHT - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>']
    if axes.diagonal:
        (a, b), (c, d) = place(start, low), place(end, high)
        parts.append(f'<path class="axis" d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}"/>')
    for value in ticks(low, high):
        y = place(start, value)[1]
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
        parts.append(f'<path class="rule" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
    for value in ticks(start, end, whole=end > 2):
        x = place(value, low)[0]
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{value:.4g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{axes.x}</text>')
    for line, points in drawn:
        placed = [place(*point) for point in points]
        if not placed:
            continue
        style = line.style % STYLES
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<g class="s{style}"><title>{escape(line.name)}</title>')
        parts.append(f'<polyline class="line" points="{path}"/>')
        ends = [placed[-1]]
        if line.marked is not None:
            ends += [place(x, y) for x, y in points if x == line.marked]
        else:
            ends = placed[:: max(1, len(placed) // 6)]
        parts += [
            f'<path class="dot" transform="translate({x:.1f} {y:.1f})" d="{_MARKS[style]}"/>'
            for x, y in ends
        ]
        parts.append("</g>")
    head = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(axes.title)}" '
        'class="drawing lines">'
    )
    return Markup(head + "".join(parts) + "</svg>")


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return about five round values between two limits.

    Example:
        >>> ticks(0.21, 0.34)
        [0.25, 0.3]
        >>> ticks(1, 40, whole=True)
        [10, 20, 30, 40]
    """
    span = high - low
    if span <= 0:
        return [low]
    unit = 10.0 ** floor(log10(span / 4))
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= span / 5)
    if whole:
        step = max(1.0, round(step))
    first = -(-low // step)
    count = int((high - first * step) / step + 1e-9) + 1
    found = [round((first + place) * step, 12) for place in range(max(count, 0))]
    return [int(value) for value in found] if whole else found


def swatch(style: int) -> Markup:
    """Return a short piece of a line with its mark, for a legend."""
    kind = style % STYLES
    return Markup(
        f'<svg class="swatch s{kind}" viewBox="0 0 30 12" width="30" height="12" '
        f'aria-hidden="true"><path class="line" d="M1 6H29"/>'
        f'<path class="dot" transform="translate(15 6)" d="{_MARKS[kind]}"/></svg>'
    )


@dataclass(frozen=True)
class Dumbbell:
    """The values of one label: of the two runs that are compared, and of the others."""

    first: tuple[int, float]
    second: tuple[int, float]
    others: Sequence[tuple[int, float]] = ()


def dumbbell(each: Dumbbell, reach: float) -> Markup:
    """Return two marks joined by a bar, those of the other runs faint behind them.

    The second run is in the middle of the drawing, so that the side and the length of the bar are
    the difference; all labels of a table share one scale.

    Args:
        each: the values.
        reach: the difference that ends at the border of the drawing.
    """
    (one, a), (other, b) = each.first, each.second
    if not (isfinite(a) and isfinite(b)):
        return Markup("")

    def x(value: float) -> float:
        return 80 + 74 * max(-1.0, min(1.0, (value - b) / (reach or 1)))

    def mark(style: int, value: float, kind: str) -> str:
        return (
            f'<g class="s{style % STYLES} {kind}"><path class="dot" '
            f'transform="translate({x(value):.1f} 9)" d="{_MARKS[style % STYLES]}"/></g>'
        )

    faint = "".join(mark(k, value, "faint") for k, value in each.others if isfinite(value))
    bar = f'<path class="bar-line" d="M{x(a):.1f} 9H{x(b):.1f}"/>'
    track = '<path class="rule" d="M6 9H154M80 1V17"/>'
    return Markup(
        '<svg class="dumbbell" viewBox="0 0 160 18" width="160" height="18" aria-hidden="true">'
        f"{track}{bar}{faint}{mark(other, b, '')}{mark(one, a, '')}</svg>"
    )
