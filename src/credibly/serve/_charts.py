"""Charts of the pages, drawn one at a time."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from threading import Lock

from credibly import plot
from credibly.types import Array

# Matplotlib's settings and Python's filters of warnings belong to the whole process; two threads
# that change them for a while would each restore what the other had set.
_DRAWING = Lock()


def reliability_chart(curves: Sequence[tuple[str | None, Array, Array]], id: str, alt: str) -> str:
    """Return reliability as SVG: a name, probabilities and targets for each curve."""
    with _DRAWING:
        ax = None
        for name, p, y in curves:
            ax = plot.reliability(p, y, name=name, ax=ax, coding="unknown")
        assert ax is not None, "a chart has at least one curve"
        drawing = plot.svg(ax, id, alt)
        del ax
        # A figure is twenty thousand objects that point at each other; Python comes for them only
        # when a quarter of all it holds is new, and by then a dozen figures lie about in memory.
        gc.collect()
        return drawing
