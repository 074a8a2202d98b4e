"""Plots of label sets: their sizes."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.metrics.label_sets import by_frequency
from credibly.plot import style
from credibly.targets import Targets
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
