"""Plots of label sets: their sizes, and how many true labels they cover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from credibly import metrics
from credibly.arrays import to_numpy
from credibly.decide import AverageSize
from credibly.plot import style
from credibly.targets import Coding, Targets, TargetsLike, decode
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def set_sizes(
    sets: ArrayLike,
    *,
    targets: ArrayLike | None = None,
    train_counts: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how many labels rows were given, with a bar of its own for rows that got none.

    With ``targets`` (a matrix or class indices) and ``train_counts`` bars are split by how often
    the row's rarest true label was seen in training: few (< 20), medium (20–100), many (> 100).

    Example:
        >>> import numpy as np
        >>> ax = set_sizes(np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], dtype=bool))
        >>> [text.get_text() for text in ax.get_xticklabels()]
        ['no label', '1', '2']
    """
    chosen = to_numpy(sets).astype(bool)
    sizes = chosen.sum(1)
    ax = style.axes(ax, 5.5, 3.4)
    edges = np.arange(sizes.max(initial=0) + 1)
    groups = _shots(targets, train_counts, chosen.shape)
    bottom = np.zeros(len(edges))
    for place, (name, rows) in enumerate(groups.items()):
        counts = np.bincount(sizes[rows], minlength=len(edges))
        tint = style.colour(place)
        ax.bar(edges, counts, 0.8, bottom, color=tint, label=name if len(groups) > 1 else None)
        bottom += counts
    ax.set_xticks(edges, ["no label", *map(str, edges[1:])])
    ax.set(xlabel="labels in the set", ylabel="rows")
    ax.grid(visible=False, axis="x")
    style.legend(ax)
    return ax


def _shots(
    targets: ArrayLike | None, train_counts: ArrayLike | None, shape: tuple[int, ...]
) -> dict[str, Array]:
    if targets is None or train_counts is None:
        return {"all": np.ones(shape[0], dtype=bool)}
    present = decode(targets, coding="unknown", num_labels=shape[1]) > 0.5
    rarest = np.where(present, to_numpy(train_counts)[None], np.inf).min(1)
    groups = {"few": rarest < 20, "medium": (rarest >= 20) & (rarest <= 100)}
    groups["many"] = (rarest > 100) & np.isfinite(rarest)
    groups["no true label"] = ~np.isfinite(rarest)
    return {name: members for name, members in groups.items() if members.any()}


def coverage(
    probabilities: ArrayLike,
    targets: TargetsLike,
    *,
    sizes: Sequence[float] | None = None,
    name: str | None = None,
    ax: Axes | None = None,
    coding: Coding | None = None,
) -> Axes:
    """Draw the share of true labels inside the sets, against the average size of the sets.

    Each point is the rule ``AverageSize`` fitted on these very rows: what a label budget buys.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((100, 8))
        >>> coverage(p, rng.random((100, 8)) < p).get_ylabel()
        'true labels covered'
    """
    p = to_numpy(probabilities)
    chosen = sizes if sizes is not None else np.linspace(0.5, min(p.shape[1], 10), 39)
    covered = coverage_curve(p, targets, chosen, coding=coding)
    return coverage_line(chosen, covered, name=name, ax=ax)


def coverage_curve(
    probabilities: ArrayLike,
    targets: TargetsLike,
    sizes: Sequence[float] | Array,
    *,
    coding: Coding | None = None,
) -> Array:
    """Return the share of true labels in the sets of ``AverageSize``, fitted on these very rows.

    Example:
        >>> import numpy as np
        >>> p = np.array([[0.9, 0.2], [0.8, 0.7]])
        >>> coverage_curve(p, np.array([[1, 0], [0, 1]]), [0.5, 1.5])
        array([0.5, 1. ])
    """
    p = to_numpy(probabilities)
    y = Targets.of(targets, coding=coding, num_labels=p.shape[1])
    decisions = (AverageSize(float(size)).fit(p) for size in sizes)
    return np.array([metrics.set_coverage(rule.predict(p), y) for rule in decisions])


def coverage_line(
    sizes: Sequence[float] | Array,
    covered: Sequence[float] | Array,
    *,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a computed coverage curve; call again with the same ``ax`` to overlay methods.

    Example:
        >>> coverage_line([1, 2], [0.5, 0.9]).get_xlabel()
        'average set size'
    """
    ax = style.axes(ax, 5.0, 3.8)
    ax.plot(sizes, covered, label=name, **style.line(style.series(ax)))
    lowest = min((float(y) for drawn in ax.lines for y in np.ravel(drawn.get_ydata())), default=0.0)
    ax.set(xlabel="average set size", ylabel="true labels covered")
    ax.set_ylim(max(0.0, lowest - 0.05), 1.02)
    style.legend(ax, loc="lower right")
    return ax
