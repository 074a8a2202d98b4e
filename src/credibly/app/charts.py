"""Draw every chart of the web app and the report as SVG.

Charts follow the colours of the page and are readable without scripts. No other module writes SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, isfinite, log10

import numpy as np
from markupsafe import Markup, escape

from credibly.app.rendering import percent, significant
from credibly.app.statistics.decisions import CostCurve
from credibly.app.statistics.labels import Pairs
from credibly.app.statistics.overview import FirstLook
from credibly.metrics.calibration import ReliabilityDiagram
from credibly.notebook import counted
from credibly.types import Array

_Link = Callable[[str, str], str]
_PERCENT = {share: f"{100 * share:.0f}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}


@dataclass(frozen=True)
class _Frame:
    """A drawing: the rectangle in which values have places, and what is drawn so far.

    Attributes:
        width, height: of the whole.
        margins: left, top, right and bottom of the rectangle.
        across, up: the values at its ends.
        parts: SVG.
    """

    width: float
    height: float
    margins: tuple[float, float, float, float]
    across: tuple[float, float] = (0.0, 1.0)
    up: tuple[float, float] = (0.0, 1.0)
    parts: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        left, _, right, _ = self.margins
        start, end = self.across
        return left + (value - start) / ((end - start) or 1) * (self.width - left - right)

    def y(self, value: float) -> float:
        _, top, _, bottom = self.margins
        low, high = self.up
        return top + (high - value) / ((high - low) or 1) * (self.height - top - bottom)

    def points(self, pairs: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in pairs)

    def line(
        self,
        across: Array,
        up: Array,
        style: str = "curve",
        tips: Sequence[str] = (),
        *,
        by_x: bool = False,
    ) -> None:
        """Draw a line; ``tips`` are the words of its points, shown by the pointer.

        Args:
            across, up: the points.
            style: class of the line.
            tips: as many as points, or none.
            by_x: whether the pointer shows the nearest point across, however far above it is.
        """
        points = self.points(zip(across, up, strict=True))
        said = f' data-tips="{escape("|".join(tips))}"' if tips else ""
        said += " data-across" if tips and by_x else ""
        self.parts.append(f'<polyline class="{style}" points="{points}"{said}/>')

    def band(self, across: Array, low: Array, high: Array) -> None:
        edge = [*zip(across, high, strict=True), *zip(across[::-1], low[::-1], strict=True)]
        self.parts.append(f'<polygon class="band" points="{self.points(edge)}"/>')

    def bins(self, diagram: ReliabilityDiagram, style: str = "", tips: Sequence[str] = ()) -> None:
        """Draw frequency against confidence: a line of a style, or the curve with its band."""
        seen = diagram.counts > 0
        if not style:
            self.band(diagram.confidence[seen], diagram.lower[seen], diagram.upper[seen])
        self.line(diagram.confidence[seen], diagram.frequency[seen], style or "curve", tips)

    def diagonal(self, style: str = "diagonal") -> None:
        (a, b), (c, d) = self.across, self.up
        where = f"M{self.x(a):.1f} {self.y(c):.1f}L{self.x(b):.1f} {self.y(d):.1f}"
        self.parts.append(f'<path class="{style}" d="{where}"/>')

    def text(self, x: float, y: float, words: str, anchor: str = "middle") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>')

    def axes(self, across: Mapping[float, str], up: Mapping[float, str], title: str) -> None:
        """Draw rules at values, their words, and what lies across."""
        left, _, right, _ = self.margins
        for value, words in up.items():
            y = self.y(value)
            self.parts.append(f'<path class="rule" d="M{left} {y:.1f}H{self.width - right}"/>')
            self.text(left - 6, y + 4, words, "end")
        for value, words in across.items():
            self.text(self.x(value), self.height - 21, words)
        self.text((left + self.width - right) / 2, self.height - 5, title)

    def svg(self, alt: str, style: str = "drawing", role: str = "img") -> Markup:
        """Return the drawing; without words for those who do not see it, it is decoration."""
        about = f'role="{role}" aria-label="{escape(alt)}"' if alt else 'aria-hidden="true"'
        head = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" {about} class="{style}">'
        return Markup(head + "".join(self.parts) + "</svg>")


def cost_chart(curve: CostCurve, bounds: tuple[float, float], cost: float) -> Markup:
    """Return cost over thresholds as SVG: the curve, its band, the three zones, the rule's cost."""
    highest = float(np.nanmax(np.where(np.isnan(curve.high), curve.cost, curve.high))) or 1.0
    low, high = bounds
    frame = _Frame(420, 220, (50, 26, 12, 36), up=(0.0, 1.05 * highest))
    for name, first, last in (("reject", 0.0, low), ("review", low, high), ("accept", high, 1.0)):
        x, width = frame.x(first), frame.x(max(first, last)) - frame.x(first)
        if width or name != "review":
            frame.parts.append(
                f'<rect class="zone {name}" x="{x:.1f}" y="26" width="{width:.1f}" height="158"/>'
            )
        if width > 44:
            frame.text(x + width / 2, 18, name)
    if not np.isnan(curve.high).any():
        frame.band(curve.thresholds, curve.low, curve.high)
    tips = [
        f"{percent(at)}: cost {significant(each)} per row"
        for at, each in zip(curve.thresholds, curve.cost, strict=True)
    ]
    frame.line(curve.thresholds, curve.cost, "curve", tips, by_x=True)
    frame.parts.append(
        f'<circle class="dot" cx="{frame.x(high):.1f}" cy="{frame.y(cost):.1f}" r="4"/>'
    )
    costs = ticks(*frame.up)
    frame.axes(_PERCENT, {each: f"{each:g}" for each in costs}, "threshold, %")
    return frame.svg(
        f"Cost per row for each threshold. The lowest, {significant(curve.cost.min())}, is at "
        f"{percent(curve.best)}. Accept from {percent(high)}, review from {percent(low)}."
    )


def reliability_chart(diagram: ReliabilityDiagram, alt: str) -> Markup:
    """Return a reliability diagram: what the model says against what is true, with its 95 % band.

    The strip beneath counts how often each probability was given (log scale).
    """
    strip = 36
    frame = _Frame(360, 346, (46, 10, 14, 86))
    frame.axes(_PERCENT, _PERCENT, "the model says, %")
    frame.diagonal()
    base, highest = frame.height - 38, np.log1p(max(1, int(diagram.counts.max())))
    seen = np.flatnonzero(diagram.counts)
    for k in seen:
        a, b = frame.x(diagram.edges[k]), frame.x(diagram.edges[k + 1])
        tall = strip * np.log1p(diagram.counts[k]) / highest
        frame.parts.append(
            f'<rect class="count" x="{a + 1:.1f}" y="{base - tall:.1f}" width="{b - a - 2:.1f}" '
            f'height="{tall:.1f}"/>'
        )
    frame.bins(diagram)
    for k, words in zip(seen, _bin_tips(diagram, "label"), strict=True):
        says, true = diagram.confidence[k], diagram.frequency[k]
        frame.parts.append(
            f'<circle class="point" cx="{frame.x(says):.1f}" cy="{frame.y(true):.1f}" r="3.5">'
            f"<title>{words}</title></circle>"
        )
    frame.parts.append(
        '<text x="12" y="135" text-anchor="middle" transform="rotate(-90 12 135)">really there, %'
        "</text>"
    )
    return frame.svg(alt)


def overview_charts(
    look: FirstLook, link: _Link | None = None, at: int | None = None
) -> dict[str, Markup]:
    """Return the charts of an overview by name.

    Args:
        look: what they show.
        link: the address of two labels; None without links.
        at: the threshold to begin with, in percent; None for the one with the highest F1.
    """
    found = {}
    if look.diagram is not None:
        words = "Reliability: how often a label is really there, by what the model says"
        found["reliability"] = reliability_chart(look.diagram, words)
    if look.curve is not None:
        at = look.curve.balanced() if at is None else at
        found["threshold"] = threshold_chart(look.curve.found, look.curve.right, at)
    if look.lift is not None:
        found["lift"] = heat_map(look.lift, link)
    return found


def small_reliability(*diagrams: ReliabilityDiagram, styles: Sequence[int] = ()) -> Markup:
    """Return a reliability diagram without axes, for a grid of many labels.

    Args:
        diagrams: one, drawn with its band; or several over each other, without bands.
        styles: the numbers of their colours and dashes, where there are several.
    """
    frame = _Frame(100, 60, (2, 2, 2, 2))
    frame.diagonal()
    if not styles:
        frame.bins(diagrams[0], tips=_bin_tips(diagrams[0], "row"))
    for style, each in zip(styles, diagrams, strict=False):
        frame.parts.append(f'<g class="s{style % STYLES}">')
        frame.bins(each, "line", _bin_tips(each, "row"))
        frame.parts.append("</g>")
    return frame.svg("", "multiple")


def threshold_chart(found: Array, right: Array, at: int) -> Markup:
    """Return recall ("found") and precision ("right") over thresholds from 0 to 100 %."""
    frame = _Frame(360, 230, (40, 10, 12, 36))
    frame.axes(_PERCENT, _PERCENT, "threshold, %")
    for name, values, style, at_step in (("found", found, 0, 78), ("right", right, 2, 35)):
        known = np.flatnonzero(np.isfinite(values))
        if not len(known):
            continue
        frame.parts.append(f'<g class="s{style}">')
        tips = [f"{k} %: {_share(found[k])} found, {_share(right[k])} right" for k in known]
        frame.line(known / 100, values[known], "line", tips if name == "found" else (), by_x=True)
        end = known[min(len(known) - 1, at_step)]
        frame.text(frame.x(end / 100), frame.y(float(values[end])) - 7, name)
        frame.parts.append("</g>")
    frame.parts.append(
        f'<path class="cut" data-cut data-from="{frame.x(0):.1f}" data-to="{frame.x(1):.1f}" '
        f'transform="translate({frame.x(at / 100):.1f} 0)" d="M0 10V194"/>'
    )
    return frame.svg(
        f"At a threshold of {at} %, {_share(found[at])} of the labels are found and "
        f"{_share(right[at])} of what is returned is right."
    )


def heat_map(lift: Pairs, link: _Link | None = None) -> Markup:
    """Return which labels occur together: blue more than chance, red less, grey too few rows.

    ``link`` is the address that the cell of two labels opens; None without links.
    """
    wide, tall, left, top = 58, 32, 110, 92
    count, values, matters = len(lift.labels), lift.lift, lift.matters
    frame = _Frame(left + wide * count + 60, top + tall * count, (0, 0, 0, 0))
    for place, name in enumerate(lift.labels):
        short = escape(name if len(name) <= 14 else name[:13] + "…")
        frame.text(left - 8, top + tall * (place + 0.5) + 4, short, "end")
        across = left + wide * (place + 0.5)
        frame.parts.append(
            f'<text transform="translate({across:.0f} {top - 8}) rotate(-45)">{short}</text>'
        )
    for row, column in np.argwhere(~np.eye(count, dtype=bool)).tolist():
        first, second, value = lift.labels[row], lift.labels[column], float(values[row, column])
        x, y, heat = left + wide * column, top + tall * row, _heat(value)
        cell = (
            f'<rect class="cell {heat}" x="{x}" y="{y}" width="{wide - 2}" '
            f'height="{tall - 2}" rx="4"/>'
        )
        words = escape(f"{first} and {second}: {_times(value)}")
        if matters[row, column]:
            strong = " strong" if heat == "more3" else ""
            cell += f'<text class="number{strong}" x="{x + 28}" y="{y + 19}">{value:.1f}×</text>'
        cell += f"<title>{words}</title>"
        if link is None:
            frame.parts.append(f"<g>{cell}</g>")
        else:
            where = escape(link(first, second))
            frame.parts.append(f'<a href="{where}" aria-label="{words}">{cell}</a>')
    role = "img" if link is None else "group"
    return frame.svg("Which labels occur together, against chance", "drawing heat", role)


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
    return f"{lift:.1f} times as often as by chance" if isfinite(lift) else "too few rows to say"


def _bin_tips(diagram: ReliabilityDiagram, noun: str) -> list[str]:
    """Return what each bin that is not empty says: probability, share true, how many."""
    return [
        f"{_point_tip(diagram.confidence[k], diagram.frequency[k])}, "
        f"{counted(int(diagram.counts[k]), noun)}"
        for k in np.flatnonzero(diagram.counts)
    ]


def _point_tip(says: float, true: float) -> str:
    return f"says {percent(says)}, is there {percent(true)}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if isfinite(value) else "–"


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


def reliability_lines(
    diagrams: Mapping[str, Mapping[str, Iterable[float]]],
    styles: Sequence[int] = (),
    *,
    each: str = "stage",
) -> Markup:
    """Return reliability diagrams in one chart, a line each; equal ones once.

    Args:
        diagrams: by name, ``confidence``, ``frequency`` and ``counts`` of the bins.
        styles: the numbers of their colours and dashes; 0, 1, … if empty.
        each: what a line is of.
    """
    lines: list[Line] = []
    for place, (name, bins) in enumerate(diagrams.items()):
        pairs = zip(bins["confidence"], bins["frequency"], bins["counts"], strict=True)
        points = [(float(p), float(f)) for p, f, count in pairs if count]
        if all(points != line.points for line in lines):  # a link may change nothing
            lines.append(Line(name, styles[place] if styles else place, points))
    title = f"Reliability of each {each}: share present against probability given"
    return line_chart(lines, title, "the model says, %", (0.0, 1.0), square=True)


def line_chart(
    lines: Sequence[Line], title: str, x: str, limits: tuple[float, float], *, square: bool = False
) -> Markup:
    """Return lines as SVG.

    Args:
        lines: what to draw.
        title: of the chart, for readers of the page.
        x: what lies across.
        limits: of x.
        square: whether both are probabilities, with the diagonal; else y fits the lines.
    """
    drawn = [(line, line.shown) for line in lines]
    values = [y for _, points in drawn for _, y in points]
    if not values:
        return Markup("")
    low, high = limits if square else (min(values), max(values))
    margin = 0.0 if square else 0.06 * ((high - low) or abs(high) or 1.0)
    frame = _Frame(420, 250, (50, 10, 16, 36), limits, (low - margin, high + margin))
    if square:
        frame.diagonal("axis")
        frame.axes(_PERCENT, _PERCENT, x)
    else:
        across = {value: f"{value:.4g}" for value in ticks(*limits, whole=limits[1] > 2)}
        frame.axes(across, {value: f"{value:.4g}" for value in ticks(*frame.up)}, x)
    for line, points in drawn:
        if not points:
            continue
        style = line.style % STYLES
        frame.parts.append(f'<g class="s{style}"><title>{escape(line.name)}</title>')
        across, up = np.array(points).T
        tips = [_point_tip(a, b) if square else f"{a:.4g}: {significant(b)}" for a, b in points]
        frame.line(across, up, "line", tips)
        marks = points[:: max(1, len(points) // 6)]
        if line.marked is not None:
            marks = [points[-1], *(point for point in points if point[0] == line.marked)]
        frame.parts.extend(
            f'<path class="dot" transform="translate({frame.x(a):.1f} {frame.y(b):.1f})" '
            f'd="{_MARKS[style]}"/>'
            for a, b in marks
        )
        frame.parts.append("</g>")
    return frame.svg(title, "drawing lines")


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
