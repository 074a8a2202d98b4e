"""Plots of label sets: their sizes, and the share of true labels that they cover."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly import metrics
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.decide import AverageSize
from credibly.metrics.label_sets import by_frequency
from credibly.plot import style
from credibly.plot.sources import Source, drawn_from
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike
from credibly.untrusted.budget import read_text
from credibly.untrusted.tables import read_parquet

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Sets = ArrayLike | str | os.PathLike[str]
"""Label sets as a matrix, or a file that ``cr.write_sets`` wrote."""


def set_sizes(
    sets: Sets | Mapping[str, Sets],
    *,
    targets: ArrayLike | None = None,
    train_counts: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a histogram of the sizes of label sets; empty sets have a separate bar.

    Sets are a matrix or a file of ``cr.write_sets`` (``credibly sets``). Several methods, as
    ``{"name": sets}``, are drawn side by side. With ``targets`` (a matrix or class indices) and
    ``train_counts``, the bars of one method are split by the frequency of the row's rarest true
    label in training: few (< 20), medium (20–100), many (> 100).

    Example:
        >>> import numpy as np
        >>> ax = set_sizes(np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], dtype=bool))
        >>> [text.get_text() for text in ax.get_xticklabels()]
        ['no label', '1', '2']
    """
    ax = style.axes(ax, 5.5, 3.4)
    several = isinstance(sets, Mapping)
    if several:
        groups = {name: _sizes(own) for name, own in sets.items()}
    elif targets is None or train_counts is None:
        groups = {"all": _sizes(sets)}
    else:
        shots = _shots(targets, train_counts, to_numpy(sets).shape)
        groups = {name: _sizes(sets)[rows] for name, rows in shots.items()}
    edges = np.arange(max(sizes.max(initial=0) for sizes in groups.values()) + 1)
    width = 0.8 / len(groups) if several else 0.8
    bottom = np.zeros(len(edges))
    for place, (name, sizes) in enumerate(groups.items()):
        counts = np.bincount(sizes, minlength=len(edges))
        shift = place * width - 0.4 + width / 2 if several else 0.0
        label = name if len(groups) > 1 else None
        ax.bar(edges + shift, counts, width, bottom, color=style.colour(place), label=label)
        bottom += 0 if several else counts
    ax.set_xticks(edges, ["no label", *map(str, edges[1:])])
    ax.set(xlabel="labels in the set", ylabel="rows")
    ax.grid(visible=False, axis="x")
    style.legend(ax)
    return ax


def _sizes(sets: Sets) -> Array:
    if not isinstance(sets, (str, os.PathLike)):
        return to_numpy(sets).astype(bool).sum(1)
    path = Path(sets)
    try:
        if path.suffix.lower() == ".csv":
            rows = csv.DictReader(StringIO(read_text(path, "text"), newline=""))
            return np.array([len(json.loads(row["labels"])) for row in rows])
        return np.array([len(labels) for labels in read_parquet(path)["labels"].to_pylist()])
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, csv.Error, RecursionError) as error:
        raise InputError(
            f"{path} must be a file of label sets, as `credibly sets` writes it; it has no column "
            "`labels` with a list in each row."
        ) from error


def _shots(targets: ArrayLike, train_counts: ArrayLike, shape: tuple[int, ...]) -> dict[str, Array]:
    present = Targets.of(targets, coding="unknown", num_labels=shape[1]).matrix > 0.5
    rarest = np.where(present, to_numpy(train_counts)[None], np.inf).min(1)
    there = np.isfinite(rarest)
    groups = {name: members & there for name, members in by_frequency(rarest).items()}
    groups["no true label"] = ~there
    return {name: members for name, members in groups.items() if members.any()}


def coverage(
    probabilities: Source,
    targets: TargetsLike | None = None,
    *,
    sizes: Sequence[float] | None = None,
    name: str | None = None,
    ax: Axes | None = None,
    coding: Coding | None = None,
) -> Axes:
    """Draw the share of true labels in the sets against the average size of the sets.

    Each point is the rule ``AverageSize`` fitted on these rows.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((100, 8))
        >>> coverage(p, rng.random((100, 8)) < p).get_ylabel()
        'true labels covered'
    """
    p, y, _ = drawn_from(probabilities, targets, partial(Targets.beside, coding=coding))
    chosen = sizes if sizes is not None else np.linspace(0.5, min(p.shape[1], 10), 39)
    rules = (AverageSize(float(size)).fit(p) for size in chosen)
    covered = [metrics.set_coverage(rule.predict(p), y) for rule in rules]
    ax = style.axes(ax, 5.0, 3.8)
    ax.plot(chosen, covered, label=name, **style.line(style.series(ax)))
    lowest = min((float(y) for drawn in ax.lines for y in np.ravel(drawn.get_ydata())), default=0.0)
    ax.set(xlabel="average set size", ylabel="true labels covered")
    ax.set_ylim(max(0.0, lowest - 0.05), 1.02)
    style.legend(ax, loc="lower right")
    return ax
