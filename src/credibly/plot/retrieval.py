"""Plots of retrieval: mAP by number of conditions, expected and real hits, label pairs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.metrics.retrieval import RetrievalMap, retrieval_map
from credibly.plot import style
from credibly.plot.sources import Source, drawn_from
from credibly.predictions import Predictions
from credibly.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SHOWN = 25


def retrieval(
    result: RetrievalMap | Mapping[int, float] | Predictions | str | os.PathLike[str],
    *,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw mean average precision against the number of search conditions.

    Args:
        result: the result of ``cr.metrics.retrieval_map``, or mAP by number of conditions; or
            predictions, a file or the folder of a run, from which it is computed.
        name: of the method, for the legend.
        ax: where to draw. Pass the same Axes again to overlay methods.

    Example:
        >>> retrieval({1: 0.8, 2: 0.7, 3: 0.66}, name="spa").get_xlabel()
        'conditions in the query'
    """
    if isinstance(result, (Predictions, str, os.PathLike)):
        result = retrieval_map(*drawn_from(result)[:2])
    by_conditions = result.by_conditions if isinstance(result, RetrievalMap) else result
    ax = style.axes(ax, 5.0, 3.8)
    counts = sorted(by_conditions)
    heights = [by_conditions[count] for count in counts]
    ax.plot(counts, heights, label=name, **style.line(style.series(ax)))
    ax.set(xlabel="conditions in the query", ylabel="mAP", xticks=counts)
    style.legend(ax)
    return ax


def hits(
    expected: Sequence[float] | Array | Predictions | str | os.PathLike[str],
    real: Sequence[float] | Array | None = None,
    *,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw expected against real number of hits, one point per query.

    A query on the diagonal has as many hits as expected. For predictions, a file or the folder of a
    run, each label is one query.

    Example:
        >>> hits([10.0, 3.0], [12, 2]).get_xlabel()
        'expected hits'
    """
    if isinstance(expected, (Predictions, str, os.PathLike)):
        p, y, _ = drawn_from(expected)
        return hits(np.where(y.matrix >= 0, p, 0).sum(0), y.label_counts(), name=name, ax=ax)
    if real is None:
        raise InputError("`real` must be given with the expected numbers of hits.")
    ax = style.axes(ax, 4.4, 4.2)
    place = style.series(ax)
    top = max([1.0, *expected, *map(float, real)])
    if not ax.lines:
        ax.plot([0.1, 2 * top], [0.1, 2 * top], color=style.MUTED, lw=1, ls="--")
    ax.scatter(
        expected,
        real,
        s=16,
        facecolors=style.colour(place) if place == 0 else "none",
        edgecolors=style.colour(place),
        alpha=0.6,
        label=name,
        linewidths=0.8,
        marker=style.mark(place),
    )
    ax.set_xscale("symlog", linthresh=1)
    ax.set_yscale("symlog", linthresh=1)
    points = np.concatenate([np.asarray(each.get_offsets()).ravel() for each in ax.collections])
    least = points.min() if points.size else 0.0
    limits = (0.0 if least < 2 else least / 1.5, 1.5 * max(top, points.max(initial=1.0)))
    ax.set(xlabel="expected hits", ylabel="real hits", xlim=limits, ylim=limits)
    style.legend(ax, loc="upper left")
    return ax


def pairs(
    expected: Source,
    real: Array | None = None,
    labels: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw a heat map of label pairs: expected over real number of rows with both labels.

    A cell shows log2((expected + 1) / (real + 1)) for two labels in the same row: red means
    expected too often, blue too rarely. At most 25 labels are drawn: those in most pairs.

    Args:
        expected: expected number of rows with both labels, (L, L); or predictions, a file or
            the folder of a run, which contain all three arguments.
        real: real number of rows.
        labels: one name per row and column.
        ax: where to draw.

    Example:
        >>> pairs(np.full((2, 2), 3.0), np.full((2, 2), 1.0), ["a", "b"]).get_title()
        'expected / real rows with both labels'
    """
    if real is None or labels is None:
        p, y, labels = drawn_from(expected)
        known, present = y.matrix >= 0, (y.matrix == 1).astype(np.float64)
        chances = np.where(known, p, 0).astype(np.float64)
        expected, real = chances.T @ chances, present.T @ present
    return _pair_map(to_numpy(expected), to_numpy(real), list(labels or ()), ax)


def _pair_map(expected: Array, real: Array, labels: Sequence[str], ax: Axes | None) -> Axes:
    from matplotlib import colormaps

    either = np.maximum(expected, real) * (1 - np.eye(len(labels)))
    shown = np.sort(np.argsort(-either.sum(axis=0), kind="stable")[:_MOST_SHOWN])
    cells = np.ix_(shown, shown)
    ratio = np.log2((np.maximum(expected[cells], 0.0) + 1) / (real[cells] + 1))
    np.fill_diagonal(ratio, np.nan)
    side = 2.5 + 0.22 * len(shown)
    ax = style.axes(ax, side + 0.8, side)
    ax.grid(visible=False)
    # A mesh, not an image: an image would be embedded as pixels in a vector drawing.
    colours = colormaps["RdBu_r"].resampled(17)
    drawn = ax.pcolormesh(np.ma.masked_invalid(ratio), cmap=colours, vmin=-2, vmax=2)
    ax.invert_yaxis()
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(
            np.arange(len(shown)) + 0.5, labels=[str(labels[int(place)]) for place in shown]
        )
        for text in axis.get_ticklabels():
            text.set_parse_math(False)
            text.set_fontsize(7)
    for text in ax.get_xticklabels():
        text.set_rotation(90)
    bar = style.figure_of(ax).colorbar(drawn, ax=ax, shrink=0.7, ticks=[-2, -1, 0, 1, 2])
    bar.ax.set_yticklabels(["¼", "½", "1", "2", "4"])
    ax.set_title("expected / real rows with both labels", fontsize=10)
    return ax
