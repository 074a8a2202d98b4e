"""One style for every plot: few lines, muted frame, colours that are safe for colour blindness."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette, in the order of contrast on white and on black.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, MUTED, GRID = "#1b1b1b", "#6b6b6b", "#d4d4d4"


def colour(index: int) -> str:
    """Return the colour of the ``index``-th series. Colours repeat after six."""
    return PALETTE[index % len(PALETTE)]


_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (2, 3)))
_MARKS = "os^DvP"


def line(index: int) -> dict[str, Any]:
    """Return a line style that distinguishes the ``index``-th line, even if lines overlap.

    The first line is the widest and is drawn below the others, whose dashes leave it visible.
    """
    place = index % len(PALETTE)
    return {
        "color": colour(index),
        "linestyle": _DASHES[place],
        "linewidth": 2.6 if index == 0 else 1.5,
        "marker": _MARKS[place],
        "markersize": 5.0 if index == 0 else 3.5,
    }


def axes(ax: Axes | None, width: float = 5.0, height: float = 4.0) -> Axes:
    """Return ``ax``, or new axes on a new figure (no global state, no backend)."""
    if ax is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        ax = figure.add_subplot(axes_class=shown_axes())
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(colors=MUTED, labelcolor=INK, labelsize=9)
    ax.grid(visible=True, color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


@cache
def shown_axes() -> type[Axes]:
    """Return the class of axes that a notebook displays as the last value of a cell."""
    from matplotlib.axes import Axes

    class ShownAxes(Axes):
        def _repr_html_(self) -> str:
            text = io.StringIO()
            figure_of(self).savefig(text, format="svg", metadata={"Date": None})
            drawing = text.getvalue()
            return drawing[drawing.index("<svg") :]

    return ShownAxes


def legend(ax: Axes, **where: Any) -> None:
    """Draw a legend if anything has a name. Names are plain text, never mathtext."""
    handles, names = ax.get_legend_handles_labels()
    if names:
        drawn = ax.legend(handles, names, frameon=False, fontsize=9, **where)
        for text in drawn.get_texts():
            text.set_parse_math(False)


def series(ax: Axes) -> int:
    """Return the number of named series in ``ax``, which is the index of the next colour."""
    return len(ax.get_legend_handles_labels()[1])


def figure_of(ax: Axes) -> Figure:
    """Return the figure that contains ``ax``, to save it."""
    figure = ax.get_figure(root=True)
    assert figure is not None, "axes drawn by this package always have a figure"
    return figure
