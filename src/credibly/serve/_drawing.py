"""Small charts drawn by hand: they follow the colours of the page and need no scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from markupsafe import Markup, escape

from credibly.metrics import Reliability
from credibly.summaries import CostCurve
from credibly.types import Array

WIDTH, HEIGHT = 560, 250
_Place = Callable[[float], float]
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


def label_drawing(diagram: Reliability, alt: str) -> Markup:
    """Return a reliability diagram as SVG: bins with bands, the diagonal, counts beneath."""
    side, left, top, strip = 300, 46, 10, 50
    bottom = top + side
    base = bottom + 20 + strip

    def x(value: float) -> float:
        return left + side * value

    def y(value: float) -> float:
        return bottom - side * value

    ends = f"M{left} {top}V{bottom}H{left + side}"
    parts = [f'<path class="axis" d="{ends}M{left} {bottom}L{left + side} {top}"/>']
    for value in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
            f'<text x="{x(value):.1f}" y="{base + 15}" text-anchor="middle">{value:g}</text>'
        )
    highest = np.log1p(max(1, int(diagram.counts.max())))
    line = []
    for k, count in enumerate(diagram.counts):
        if not count:
            continue
        a, b = x(diagram.edges[k]), x(diagram.edges[k + 1])
        tall = strip * np.log1p(count) / highest
        parts.append(
            f'<rect class="fill" x="{a + 1:.1f}" y="{base - tall:.1f}" width="{b - a - 2:.1f}" '
            f'height="{tall:.1f}"/>'
        )
        across, up = x(diagram.confidence[k]), y(diagram.frequency[k])
        ends = f"M{across:.1f} {y(diagram.lower[k]):.1f}V{y(diagram.upper[k]):.1f}"
        parts.append(f'<path class="curve thin" d="{ends}"/>')
        parts.append(f'<circle class="point" cx="{across:.1f}" cy="{up:.1f}" r="3.5"/>')
        line.append((across, up))
    parts.append(f'<polyline class="curve" points="{_points(line)}"/>')
    middle = left + side / 2
    parts.append(
        f'<text x="{middle}" y="{base + 32}" text-anchor="middle">probability given; beneath, how '
        "often (log scale)</text>"
        f'<text x="12" y="{top + side / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {top + side / 2})">share present</text>'
    )
    head = (
        f'<svg viewBox="0 0 {left + side + 14} {base + 38}" role="img" '
        f'aria-label="{escape(alt)}" class="drawing">'
    )
    return Markup(head + "".join(parts) + "</svg>")


def sparkline(confidence: Array, frequency: Array, counts: Array) -> Markup:
    """Return a tiny reliability diagram: a dot per bin, against the diagonal of right ones."""
    seen = counts > 0
    if not seen.any():
        return Markup("")
    sizes = 1 + 2 * np.sqrt(counts[seen] / counts.max())
    dots = "".join(
        f'<circle cx="{2 + 36 * p:.1f}" cy="{38 - 36 * f:.1f}" r="{size:.1f}"/>'
        for p, f, size in zip(confidence[seen], frequency[seen], sizes, strict=True)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 40 40" width="32" height="32" aria-hidden="true">'
        f'<path class="axis" d="M2 38L38 2"/>{dots}</svg>'
    )


def _points(pairs: list[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)


def reliability_drawing(diagrams: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Markup:
    """Return reliability diagrams as SVG: one line of dots per stage, the diagonal of right ones.

    Args:
        diagrams: by stage, ``confidence``, ``frequency`` and ``counts`` of the bins.
    """
    side, left, top = 320, 46, 10

    def x(value: float) -> float:
        return left + value * side

    def y(value: float) -> float:
        return top + (1 - value) * side

    parts = [f'<path class="axis" d="M{left} {top}V{top + side}H{left + side}"/>']
    parts.append(f'<path class="diagonal" d="M{x(0)} {y(0)}L{x(1)} {y(1)}"/>')
    for value in (0, 0.25, 0.5, 0.75, 1):
        at = f'x="{x(value):.1f}" y="{top + side + 16}"'
        parts.append(f'<text {at} text-anchor="middle">{value:g}</text>')
        parts.append(
            f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    drawn = []
    for place, bins in enumerate(diagrams.values()):
        if bins in drawn:  # a link that changes nothing
            continue
        drawn.append(bins)
        most = max(filter(None, bins["counts"]), default=1)
        dots = [
            (x(p), y(f), 2 + 4 * (count / most) ** 0.5)
            for p, f, count in zip(
                bins["confidence"], bins["frequency"], bins["counts"], strict=True
            )
            if p is not None and f is not None and count
        ]
        line = _points([(across, up) for across, up, _ in dots])
        marks = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{r:.1f}"/>' for a, b, r in dots)
        parts.append(f'<g class="stage s{place}"><polyline points="{line}"/>{marks}</g>')
    middle = left + side / 2
    low = top + side + 34
    parts.append(f'<text x="{middle}" y="{low}" text-anchor="middle">probability given</text>')
    up = f'<text transform="translate(12 {top + side / 2}) rotate(-90)" text-anchor="middle">'
    parts.append(f"{up}share present</text>")
    size = f"0 0 {left + side + 12} {low + 8}"
    alt = "Reliability of each stage; the numbers are in the table."
    head = f'<svg viewBox="{size}" role="img" aria-label="{alt}" class="drawing reliability">'
    return Markup(head + "".join(parts) + "</svg>")
