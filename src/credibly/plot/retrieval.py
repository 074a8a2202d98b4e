"""Plots of retrieval: mAP by number of conditions, expected against real hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from credibly.plot import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def retrieval(
    by_conditions: Mapping[int, float], *, name: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw mean average precision against the number of search conditions.

    Args:
        by_conditions: ``cr.metrics.retrieval_map(…).by_conditions``.
        name: of the method, for the legend.
        ax: call again with the same one to overlay methods.

    Example:
        >>> retrieval({1: 0.8, 2: 0.7, 3: 0.66}, name="spa").get_xlabel()
        'conditions in the query'
    """
    ax = _style.axes(ax, 5.0, 3.8)
    tint = _style.colour(_style.series(ax))
    counts = sorted(by_conditions)
    heights = [100 * by_conditions[count] for count in counts]
    ax.plot(counts, heights, color=tint, lw=1.8, marker="o", ms=4, label=name)
    ax.set(xlabel="conditions in the query", ylabel="mAP (%)", xticks=counts)
    _style.legend(ax)
    return ax


def hits(
    expected: Sequence[float],
    real: Sequence[float],
    *,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw expected against real number of hits, one point per query.

    Points on the diagonal found as many hits as were expected.

    Example:
        >>> hits([10.0, 3.0], [12, 2]).get_xlabel()
        'expected hits'
    """
    ax = _style.axes(ax, 4.4, 4.2)
    tint = _style.colour(_style.series(ax))
    top = max([1.0, *expected, *map(float, real)])
    if not ax.lines:
        ax.plot([0.1, 2 * top], [0.1, 2 * top], color=_style.MUTED, lw=1, ls="--")
    ax.scatter(expected, real, s=12, color=tint, alpha=0.6, label=name, linewidths=0)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_yscale("symlog", linthresh=1)
    ax.set(xlabel="expected hits", ylabel="real hits", xlim=(0, 1.5 * top), ylim=(0, 1.5 * top))
    _style.legend(ax, loc="upper left")
    return ax
