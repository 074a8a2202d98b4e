"""Targets from class indices and from lists of label names, with the file in every error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from credibly.checks import InputError, fits_memory, located, nearest
from credibly.targets import MANY_LABELS, UNKNOWN, SparseTargets, one_hot
from credibly.types import Array

UNNAMED = 1_000_000


def default_labels(count: int, most: int = UNNAMED) -> list[str]:
    """Return names for labels that have none: ``label-00``, ``label-01``, ….

    Raises:
        InputError: for more than ``most``, which is a class index gone wrong.
    """
    if count > most:
        raise InputError(
            f"class indices must lie below {most:,} where `labels` are not given; got "
            f"{count - 1:,}. Give `labels`, or check the targets."
        )
    width = len(str(count - 1))
    return [f"label-{label:0{width}d}" for label in range(count)]


def class_targets(classes: Array, num_labels: int, where: str) -> Array:
    """Return one row per class index; −1 gives a row of unknowns."""
    with located(where):
        return one_hot(classes, num_labels)


def unknown_targets(rows: int, num_labels: int) -> Array:
    """Return targets for rows that are only to be predicted."""
    fits_memory("targets", rows, num_labels)
    return np.full((rows, num_labels), UNKNOWN, dtype=np.float32)


def listed_targets(
    rows: Sequence[Iterable[str]],
    labels: Sequence[str],
    where: str,
    *,
    first_row: int = 0,
    unknown: Sequence[int] = (),
) -> Array | SparseTargets:
    """Return one row per list of label names; other names than ``labels`` are an error.

    Rows named in ``unknown`` are unknown. From ``MANY_LABELS`` labels on, targets are sparse.
    """
    column = {label: index for index, label in enumerate(labels)}
    numbers: list[list[int]] = []
    for row, names in enumerate(rows):
        listed = dict.fromkeys(names)
        for name in listed:
            if name not in column:
                raise InputError(
                    f"{where}, row {row + first_row}: label {name!r} is not among the "
                    f"{len(labels)} known ones. {nearest(name, labels)}"
                )
        numbers.append([column[name] for name in listed])
    return numbered_targets(numbers, len(labels), where, unknown)


def numbered_targets(
    rows: Sequence[Sequence[int]], num_labels: int, where: str, unknown: Sequence[int] = ()
) -> Array | SparseTargets:
    """Return one row per list of label numbers: a matrix, or sparse from ``MANY_LABELS`` on."""
    known = np.ones(len(rows), dtype=bool)
    known[list(unknown)] = False
    with located(where):
        sparse = SparseTargets.from_lists(rows, num_labels)
        if not known.all():
            sparse = SparseTargets(sparse.offsets, sparse.indices, num_labels, known=known)
        return sparse if num_labels >= MANY_LABELS else sparse.dense()
