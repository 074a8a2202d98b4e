"""What the cells of a predictions file must hold; every complaint names row and label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.types import Array, ArrayLike

UNKNOWN = -1


def as_labels(labels: Sequence[Any] | Array, where: str = "") -> list[str]:
    """Label names as a list of str: at least one, none empty, no two alike."""
    names = [str(label) for label in labels]
    if not names:
        raise InputError(f"{where}`labels` must name at least one label; got none.")
    seen: set[str] = set()
    for position, name in enumerate(names):
        if not name:
            raise InputError(f"{where}label {position} has an empty name; every label needs one.")
        if name in seen:
            raise InputError(f"{where}labels must differ; {name!r} is there twice. Rename one.")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{where}label {position} is not valid Unicode: {error}.") from error
        seen.add(name)
    return names


def as_ids(ids: Sequence[Any] | Array | None, num_rows: int, where: str = "") -> Array:
    """Row ids as an object array of str, no two alike; row numbers where none are given."""
    values = range(num_rows) if ids is None else to_numpy(ids).tolist()
    if len(values) != num_rows:
        raise InputError(f"{where}`ids` must have one entry a row, {num_rows}; got {len(values)}.")
    result = np.empty(num_rows, dtype=object)
    result[:] = [str(value) for value in values]
    check_unique(result, where)
    return result


def check_unique(ids: Array, where: str = "") -> None:
    """No two ids may be alike."""
    if len(set(ids.tolist())) == len(ids):
        return
    first: dict[str, int] = {}
    for row, name in enumerate(ids.tolist()):
        if name in first:
            raise InputError(
                f"{where}ids must differ; {name!r} is the id of rows {first[name]} and {row}. "
                "Drop one of the rows or make the ids distinct."
            )
        first[name] = row


def as_matrix(name: str, values: ArrayLike | Any, num_labels: int, where: str = "") -> Array:
    """``values`` as a numeric (rows, labels) array."""
    array = to_numpy(values)
    if array.dtype.kind not in "buif":
        raise InputError(f"{where}`{name}` must be numbers; got dtype {array.dtype}.")
    if array.ndim != 2 or array.shape[1] != num_labels:
        raise InputError(
            f"{where}`{name}` must have shape (rows, labels) with {num_labels} labels; "
            f"got {array.shape}."
        )
    return array


def as_probabilities(
    array: Array, labels: Sequence[str], where: str = "", first_row: int = 0
) -> Array:
    """float32 in [0, 1], no NaN."""
    # Not `min() < 0 or max() > 1`: NaN must fail too, in one pass each.
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        value, spot = _first(~((array >= 0) & (array <= 1)), array, labels, "p:", first_row)
        if np.isnan(value):
            raise InputError(
                f"{where}probabilities must not be NaN; {spot} is. Drop the row or predict it anew."
            )
        raise InputError(
            f"{where}probabilities must lie in [0, 1]; got {value:.6g} at {spot}. If these are "
            "scores, turn them into probabilities with the loss they were trained with: "
            "`loss.probabilities(scores)`, or `credibly calibrate` on the command line."
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def as_scores(array: Array, labels: Sequence[str], where: str = "", first_row: int = 0) -> Array:
    """float32, no NaN."""
    array = np.ascontiguousarray(array, dtype=np.float32)
    if array.size and np.isnan(array.min()):
        _, spot = _first(np.isnan(array), array, labels, "s:", first_row)
        raise InputError(
            f"{where}scores must not be NaN; {spot} is. Drop the row or score it anew."
        )
    return array


def as_targets(array: Array, labels: Sequence[str], where: str = "", first_row: int = 0) -> Array:
    """int8 (1, 0, −1 unknown); float32 if any value is soft, strictly between 0 and 1."""
    if array.dtype.kind == "b":
        return np.ascontiguousarray(array, dtype=np.int8)
    hard = (array == 0) | (array == 1) | (array == UNKNOWN)
    if hard.all():
        return np.ascontiguousarray(array, dtype=np.int8)
    good = hard | ((array > 0) & (array < 1))
    if not good.all():
        value, spot = _first(~good, array, labels, "y:", first_row)
        raise InputError(
            f"{where}targets must be 1 (present), 0 (absent), −1 (unknown) or soft in [0, 1]; "
            f"got {value:.6g} at {spot}."
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def class_matrix(classes: Array, labels: Sequence[str], where: str = "") -> Array:
    """Class indices (rows,) as a 0/1 matrix; index −1 gives a row of unknowns."""
    if classes.dtype.kind not in "ui":
        raise InputError(
            f"{where}`targets` must be (rows, labels), or integer class indices (rows,); "
            f"got {classes.shape} of {classes.dtype}."
        )
    bad = (classes < UNKNOWN) | (classes >= len(labels))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{where}class indices must lie in [0, {len(labels) - 1}] or be −1 (unknown); "
            f"got {classes[row]} in row {row}."
        )
    matrix = np.zeros((len(classes), len(labels)), dtype=np.int8)
    known = classes >= 0
    matrix[known, classes[known]] = 1
    matrix[~known] = UNKNOWN
    return matrix


def _first(
    bad: Array, array: Array, labels: Sequence[str], prefix: str, first_row: int
) -> tuple[float, str]:
    row, column = np.argwhere(bad)[0]
    spot = f"row {first_row + int(row)}, column {prefix + labels[int(column)]!r}"
    return float(array[row, column]), spot
