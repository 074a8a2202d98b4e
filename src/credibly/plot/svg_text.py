"""Plots as SVG elements that follow the colours of a page."""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import TYPE_CHECKING

from credibly.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A chart is drawn once; its neutral colours become variables, so that it is readable on white,
# on black and on paper.
_THEMED = {style.INK: "var(--ink)", style.MUTED: "var(--muted)", style.GRID: "var(--grid)"}


def svg(ax: Axes, name: str, alt: str) -> str:
    """Return the figure of ``ax`` as an SVG element.

    Args:
        ax: any axes of the figure.
        name: prefix of all identifiers, so that no two charts of a page share one.
        alt: description for those who cannot see the chart.
    """
    import matplotlib as mpl

    text = io.StringIO()
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}),
        warnings.catch_warnings(),
    ):
        # The reader's fonts draw the text, whatever its script; those here only measure it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
        style.figure_of(ax).savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(id="|url\(#|xlink:href="#|href="#)', rf"\g<1>{name}-", drawing)
    for colour, variable in _THEMED.items():
        drawing = drawing.replace(colour, variable)
    drawing = drawing.replace("fill: #000000", "fill: var(--ink)")
    drawing = drawing.replace("<text ", '<text fill="var(--ink)" ')
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(alt, quote=True)}" ', 1)
