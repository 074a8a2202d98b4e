"""Draw every chart of the web app and the report as SVG.

Charts follow the colours of the page and are readable without scripts. No other module writes SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

import numpy as np
from markupsafe import Markup, escape

from credibly.app.statistics.decisions import CostCurve
from credibly.app.statistics.overview import FirstLook
from credibly.metrics.calibration import ReliabilityDiagram
from credibly.types import Array

WIDTH, HEIGHT = 560, 250
_Place = Callable[[float], float]
_Link = Callable[[str, str], str]
LEFT, TOP, RIGHT, BOTTOM = 52, 26, 12, 34


def cost_chart(curve: CostCurve, bounds: tuple[float, float], cost: float) -> Markup:
    """Return cost over thresholds as SVG: the curve, its band, the three zones, the rule's cost."""
    highest = float(np.nanmax(np.where(np.isnan(curve.high), curve.cost, curve.high))) or 1.0
    low, high = bounds

    def x(value: float) -> float:
        return LEFT + value * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - value / (1.05 * highest)) * (HEIGHT - TOP - BOTTOM)

    parts = [_zones(x(0), x(low), x(high), x(1), look=low < high)]
    if not np.isnan(curve.high).any():
        edge = [(x(t), y(v)) for t, v in zip(curve.thresholds, curve.high, strict=True)]
        back = [(x(t), y(v)) for t, v in zip(curve.thresholds, curve.low, strict=True)][::-1]
        parts.append(f'<polygon class="band" points="{_points(edge + back)}"/>')
    line = [(x(t), y(v)) for t, v in zip(curve.thresholds, curve.cost, strict=True)]
    parts.append(f'<polyline class="curve" points="{_points(line)}"/>')
    parts.append(f'<circle class="dot" cx="{x(high):.1f}" cy="{y(cost):.1f}" r="4"/>')
    parts.append(_axes(x, y, highest))
    alt = (
        f"Cost per row over one threshold for all; the lowest, {curve.cost.min():.4g}, is at "
        f"{curve.best:.3g}. Accept from {high:.4g}, review from {low:.4g}."
    )
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}" class="drawing">'
    return Markup(head + "".join(parts) + "</svg>")


def _zones(start: float, low: float, high: float, end: float, *, look: bool) -> str:
    zones = [("reject", start, low), ("review", low, high), ("accept", high, end)]
    drawn = []
    for name, first, last in zones:
        if name == "review" and not look:
            continue
        width = max(last - first, 0)
        drawn.append(
            f'<rect class="zone {name}" x="{first:.1f}" y="{TOP}" width="{width:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"/>'
        )
        if width > 44:
            middle = (first + last) / 2
            drawn.append(f'<text x="{middle:.1f}" y="{TOP - 8}" text-anchor="middle">{name}</text>')
    return "".join(drawn)


def _axes(x: _Place, y: _Place, highest: float) -> str:
    marks = []
    for value in (0, 0.25, 0.5, 0.75, 1):
        marks.append(
            f'<text x="{x(value):.1f}" y="{HEIGHT - 16}" text-anchor="middle">{value:g}</text>'
        )
    for share in (0, 0.5, 1):
        value = share * highest
        marks.append(
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    bottom = HEIGHT - BOTTOM
    marks.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>')
    marks.append(
        f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 2}" text-anchor="middle">threshold</text>'
    )
    return "".join(marks)


def reliability_chart(diagram: ReliabilityDiagram, alt: str) -> Markup:
    """Return a reliability diagram: what the model says against what is true, with its 95 % band.

    The strip beneath counts how often each probability was given (log scale).
    """
    side, left, top, strip = 300, 46, 10, 36
    bottom = top + side
    base = bottom + 12 + strip

    def x(value: float) -> float:
        return left + side * value

    def y(value: float) -> float:
        return bottom - side * value

    parts = []
    for value in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path class="rule" d="M{left} {y(value):.1f}H{left + side}"/>')
        parts.append(_percent(left - 6, y(value) + 4, value, "end"))
        parts.append(_percent(x(value), base + 15, value, "middle"))
    parts.append(f'<path class="diagonal" d="M{x(0)} {y(0)}L{x(1)} {y(1)}"/>')
    highest = np.log1p(max(1, int(diagram.counts.max())))
    for k in np.flatnonzero(diagram.counts):
        a, b = x(diagram.edges[k]), x(diagram.edges[k + 1])
        tall = strip * np.log1p(diagram.counts[k]) / highest
        parts.append(
            f'<rect class="count" x="{a + 1:.1f}" y="{base - tall:.1f}" width="{b - a - 2:.1f}" '
            f'height="{tall:.1f}"/>'
        )
    parts += [_band(diagram, x, y), _curve(diagram, x, y, "curve")]
    for k in np.flatnonzero(diagram.counts):
        says, true = diagram.confidence[k], diagram.frequency[k]
        words = f"says {_share(says)}, is there {_share(true)}, {int(diagram.counts[k]):,} labels"
        parts.append(
            f'<circle class="point" cx="{x(says):.1f}" cy="{y(true):.1f}" r="3.5">'
            f"<title>{words}</title></circle>"
        )
    middle = left + side / 2
    parts.append(
        f'<text x="{middle}" y="{base + 32}" text-anchor="middle">the model says, %</text>'
        f'<text x="12" y="{top + side / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {top + side / 2})">really there, %</text>'
    )
    return _svg(left + side + 14, base + 38, alt, parts)


def overview_charts(look: FirstLook, link: _Link | None = None) -> dict[str, Markup]:
    """Return the charts of an overview by name; ``link`` gives the address of two labels."""
    found = {}
    if look.diagram is not None:
        words = "Reliability: how often a label is really there, by what the model says"
        found["reliability"] = reliability_chart(look.diagram, words)
    if look.curve is not None:
        at = look.curve.balanced()
        found["threshold"] = threshold_chart(look.curve.found, look.curve.right, at)
    if look.lift is not None:
        found["lift"] = heat_map(look.lift.labels, look.lift.lift, look.lift.matters, link)
    return found


def small_reliability(*diagrams: ReliabilityDiagram, styles: Sequence[int] = ()) -> Markup:
    """Return a reliability diagram without axes, for a grid of many labels.

    Args:
        diagrams: one, drawn with its band; or several over each other, without bands.
        styles: the numbers of their colours and dashes, where there are several.
    """
    width, height = 100, 60

    def x(value: float) -> float:
        return 2 + (width - 4) * value

    def y(value: float) -> float:
        return height - 2 - (height - 4) * value

    lines = [f'<path class="diagonal" d="M{x(0)} {y(0)}L{x(1)} {y(1)}"/>']
    if not styles:
        lines += [_band(diagrams[0], x, y), _curve(diagrams[0], x, y, "curve")]
    for style, each in zip(styles, diagrams, strict=False):
        lines.append(f'<g class="s{style % STYLES}">{_curve(each, x, y, "line")}</g>')
    head = f'<svg class="multiple" viewBox="0 0 {width} {height}" aria-hidden="true">'
    return Markup(f"{head}{''.join(lines)}</svg>")


def _band(diagram: ReliabilityDiagram, x: _Place, y: _Place) -> str:
    seen = np.flatnonzero(diagram.counts)
    edge = [(x(diagram.confidence[k]), y(diagram.upper[k])) for k in seen]
    back = [(x(diagram.confidence[k]), y(diagram.lower[k])) for k in seen[::-1]]
    return f'<polygon class="band" points="{_points(edge + back)}"/>'


def _curve(diagram: ReliabilityDiagram, x: _Place, y: _Place, style: str) -> str:
    seen = np.flatnonzero(diagram.counts)
    line = [(x(diagram.confidence[k]), y(diagram.frequency[k])) for k in seen]
    return f'<polyline class="{style}" points="{_points(line)}"/>'


def threshold_chart(found: Array, right: Array, at: int) -> Markup:
    """Return recall ("found") and precision ("right") over thresholds from 0 to 100 %."""
    width, height, left, top, below = 420, 220, 40, 10, 34

    def x(step: float) -> float:
        return left + (width - left - 12) * step / 100

    def y(value: float) -> float:
        return top + (height - top - below) * (1 - value)

    parts = []
    for value in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path class="rule" d="M{left} {y(value):.1f}H{width - 12}"/>')
        parts.append(_percent(left - 6, y(value) + 4, value, "end"))
        parts.append(_percent(x(100 * value), height - below + 15, value, "middle"))
    for name, values, style, at_step in (("found", found, 0, 78), ("right", right, 2, 35)):
        line = [(x(k), y(v)) for k, v in enumerate(values) if isfinite(v)]
        if not line:
            continue
        parts.append(f'<g class="s{style}"><polyline class="line" points="{_points(line)}"/>')
        end = line[min(len(line) - 1, at_step)]
        parts.append(
            f'<text x="{end[0]:.1f}" y="{end[1] - 7:.1f}" text-anchor="middle">{name}</text></g>'
        )
    parts.append(
        f'<path class="cut" data-cut data-from="{x(0):.1f}" data-to="{x(100):.1f}" '
        f'transform="translate({x(at):.1f} 0)" d="M0 {top}V{height - below}"/>'
        f'<text x="{(left + width) / 2}" y="{height - 3}" text-anchor="middle">threshold, %</text>'
    )
    alt = (
        f"At a threshold of {at} %, {_share(found[at])} of the labels are found and "
        f"{_share(right[at])} of what is returned is right."
    )
    return _svg(width, height, alt, parts)


def heat_map(
    labels: Sequence[str], lift: Array, matters: Array, link: _Link | None = None
) -> Markup:
    """Return which labels occur together: blue more than chance, red less, grey too few rows.

    Args:
        labels: names of rows and columns.
        lift: (labels, labels) times as often as by chance; NaN where that cannot be said.
        matters: which cells show their number.
        link: the address that the cell of two labels opens; None without links.
    """
    size, left, top = 44, 110, 92
    side = size * len(labels)
    parts = []
    for place, name in enumerate(labels):
        short = escape(name if len(name) <= 14 else name[:13] + "…")
        at = top + size * place + size / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{at:.0f}" text-anchor="end">{short}</text>')
        across = left + size * place + size / 2
        parts.append(
            f'<text transform="translate({across:.0f} {top - 8}) rotate(-45)">{short}</text>'
        )
    for row, first in enumerate(labels):
        for column, second in enumerate(labels):
            if row == column:
                continue
            value = float(lift[row, column])
            where = f'x="{left + size * column}" y="{top + size * row}"'
            cell = (
                f'<rect class="cell {_heat(value)}" {where} width="{size - 2}" '
                f'height="{size - 2}" rx="4"/>'
            )
            words = escape(f"{first} and {second}: {_times(value)}")
            if matters[row, column]:
                middle = f'x="{left + size * column + 21}" y="{top + size * row + 25}"'
                strong = " strong" if _heat(value) == "more3" else ""
                cell += f'<text class="number{strong}" {middle}>{value:.1f}×</text>'
            inner = f"{cell}<title>{words}</title>"
            if link is None:
                parts.append(f"<g>{inner}</g>")
            else:
                where = escape(link(first, second))
                parts.append(f'<a href="{where}" aria-label="{words}">{inner}</a>')
    kind = "img" if link is None else "group"
    head = (
        f'<svg viewBox="0 0 {left + side + 60} {top + side}" class="drawing heat" role="{kind}" '
        'aria-label="Which labels occur together, against chance">'
    )
    return Markup(head + "".join(parts) + "</svg>")


def _heat(lift: float) -> str:
    """Return the class of a cell: more or less than chance, in three steps each."""
    if not isfinite(lift):
        return "few"
    steps = (1.15, 1.6, 3.0)
    for word, value in (("more", lift), ("less", 1 / max(lift, 1e-9))):
        step = sum(value >= limit for limit in steps)
        if step:
            return f"{word}{step}"
    return "chance"


def _times(lift: float) -> str:
    return f"{lift:.2g} times as often as by chance" if isfinite(lift) else "too few rows to say"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if isfinite(value) else "–"


def _percent(x: float, y: float, value: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{100 * value:.0f}</text>'


def _svg(width: float, height: float, alt: str, parts: list[str]) -> Markup:
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(alt)}" '
        'class="drawing">'
    )
    return Markup(head + "".join(parts) + "</svg>")


def _points(pairs: list[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)


def reliability_lines(diagrams: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Markup:
    """Return reliability diagrams in one chart, a line each.

    Args:
        diagrams: by stage, ``confidence``, ``frequency`` and ``counts`` of the bins.
    """
    lines = []
    for place, (name, bins) in enumerate(diagrams.items()):
        pairs = zip(bins["confidence"], bins["frequency"], bins["counts"], strict=True)
        points = [(p, f) for p, f, count in pairs if p is not None and f is not None and count]
        if all(points != line.points for line in lines):  # a link may change nothing
            lines.append(Line(name, place, points))
    title = "Reliability of each stage: share present against probability given"
    axes = ChartAxes(title, "probability given", (0.0, 1.0), (0.0, 1.0), diagonal=True)
    return line_chart(lines, axes)


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
class ChartAxes:
    """What a chart is about: its name for readers, its axes, and limits that are given."""

    title: str
    x: str
    x_limits: tuple[float, float]
    y_limits: tuple[float, float] | None = None
    diagonal: bool = False


def line_chart(lines: Sequence[Line], axes: ChartAxes) -> Markup:
    """Return lines as SVG; the axis of y fits them unless its limits are given."""
    width, height, left, top, right, below = 420, 250, 50, 10, 10, 36
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
        return left + across * (width - left - right), top + (1 - up) * (height - top - below)

    bottom = height - below
    parts = [f'<path class="axis" d="M{left} {top}V{bottom}H{width - right}"/>']
    if axes.diagonal:
        (a, b), (c, d) = place(start, low), place(end, high)
        parts.append(f'<path class="axis" d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}"/>')
    for value in ticks(low, high):
        y = place(start, value)[1]
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
        parts.append(f'<path class="rule" d="M{left} {y:.1f}H{width - right}"/>')
    for value in ticks(start, end, whole=end > 2):
        x = place(value, low)[0]
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{value:.4g}</text>')
    middle = (left + width - right) / 2
    parts.append(f'<text x="{middle}" y="{height - 4}" text-anchor="middle">{axes.x}</text>')
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
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(axes.title)}" '
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
