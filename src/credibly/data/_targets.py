"""From what files say of labels to the matrix of targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from credibly.checks import InputError, fits_memory, nearest
from credibly.types import Array

UNKNOWN = -1


def class_targets(classes: Array, num_labels: int, where: str) -> Array:
    """One row a class index; −1 gives a row of unknowns."""
    classes = np.asarray(classes)
    if classes.dtype.kind not in "iu":
        raise InputError(f"{where}: class indices must be integers; got {classes.dtype}.")
    strange = (classes < UNKNOWN) | (classes >= num_labels)
    if strange.any():
        row = int(strange.argmax())
        raise InputError(
            f"{where}: class indices must lie in [0, {num_labels - 1}] or be −1 (unknown); "
            f"row {row} has {classes[row]}."
        )
    fits_memory(f"{where}: targets", len(classes), num_labels)
    targets = np.zeros((len(classes), num_labels), dtype=np.float32)
    known = np.flatnonzero(classes >= 0)
    targets[known, classes[known]] = 1
    targets[classes < 0] = UNKNOWN
    return targets


def unknown_targets(rows: int, num_labels: int) -> Array:
    """For rows that are only to be predicted."""
    fits_memory("targets", rows, num_labels)
    return np.full((rows, num_labels), UNKNOWN, dtype=np.float32)


def listed_targets(
    rows: Sequence[Iterable[str]], labels: Sequence[str], where: str, *, first_row: int = 0
) -> Array:
    """One row a list of label names; a name that is not in ``labels`` is an error with its row."""
    column = {label: index for index, label in enumerate(labels)}
    fits_memory(f"{where}: targets", len(rows), len(labels))
    targets = np.zeros((len(rows), len(labels)), dtype=np.float32)
    for row, names in enumerate(rows):
        for name in names:
            if name not in column:
                raise InputError(
                    f"{where}, row {row + first_row}: label {name!r} is not among the "
                    f"{len(labels)} known ones. {nearest(name, labels)}"
                )
            targets[row, column[name]] = 1
    return targets
