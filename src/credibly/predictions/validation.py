"""What the values of a predictions file must be; every error names row and label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.targets import IGNORED, Coding, Targets, decode
from credibly.types import Array, ArrayLike


def as_labels(labels: Sequence[object] | Array, where: str = "") -> list[str]:
    """Return label names as a list of str: at least one, none empty, no two alike."""
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


def as_ids(ids: Sequence[object] | Array | None, num_rows: int, where: str = "") -> Array:
    """Return row ids as an object array of str, all different; row numbers where none are given."""
    values = range(num_rows) if ids is None else to_numpy(ids).tolist()
    if len(values) != num_rows:
        raise InputError(
            f"{where}`ids` must have one entry per row, {num_rows}; got {len(values)}."
        )
    result = np.empty(num_rows, dtype=object)
    result[:] = [str(value) for value in values]
    check_unique(result, where)
    return result


def check_unique(ids: Array, where: str = "") -> None:
    """Raise if two ids are alike; the error names both rows."""
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


def as_matrix(name: str, values: ArrayLike | object, num_labels: int, where: str = "") -> Array:
    """Return ``values`` as a numeric (rows, labels) array."""
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
    """Return probabilities as float32; they must lie in [0, 1] and hold no NaN."""
    # Not `min() < 0 or max() > 1`: NaN must fail too, in one pass each.
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        value, spot = _first(~((array >= 0) & (array <= 1)), array, labels, "p:", first_row)
        if np.isnan(value):
            raise InputError(
                f"{where}probabilities must not be NaN; {spot} is. Drop the row or predict again."
            )
        raise InputError(
            f"{where}probabilities must lie in [0, 1]; got {value:.6g} at {spot}. If these are "
            "scores, turn them into probabilities with the loss they were trained with: "
            "`loss.probabilities(scores)`, or `credibly calibrate` on the command line."
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def as_scores(array: Array, labels: Sequence[str], where: str = "", first_row: int = 0) -> Array:
    """Return scores as float32; they must hold no NaN."""
    array = np.ascontiguousarray(array, dtype=np.float32)
    if array.size and np.isnan(array.min()):
        _, spot = _first(np.isnan(array), array, labels, "s:", first_row)
        raise InputError(
            f"{where}scores must not be NaN; {spot} is. Drop the row or score it again."
        )
    return array


def imported_scores(array: Array | None, labels: Sequence[str], where: str) -> Array | None:
    """Return the scores of another program, which must be finite as float32; NaN is told later."""
    if array is None or array.dtype.kind not in "buif":
        return array
    largest = float(np.finfo(np.float32).max)
    bad = np.abs(array) > largest
    if bad.any():
        row, column = (int(each) for each in np.argwhere(bad)[0])
        label = labels[column % len(labels)]
        raise InputError(
            f"{where}scores must be finite, at most {largest:.2g}; got {array[row, column]:g} at "
            f"row {row}, label {label!r}. Score the row again, or clip the scores to ±100."
        )
    return array


def as_targets(
    values: ArrayLike | object,
    labels: Sequence[str],
    where: str = "",
    first_row: int = 0,
    coding: Coding | None = "unknown",
) -> Array:
    """Return targets as int8 (1, 0, −1 unknown), or float32 if any value is soft.

    ``values`` is coded as ``credibly.targets`` says; in files, where null is unknown, the coding
    is certain.
    """
    array = to_numpy(values)
    try:
        decoded = decode(
            values if isinstance(values, Targets) else array, coding=coding, num_labels=len(labels)
        )
    except InputError as error:
        if array.ndim == 2 and array.dtype.kind in "uif" and coding != "signed":
            _refuse_targets(array, labels, where, first_row)
        raise InputError(f"{where}{error}") from error
    if decoded.dtype == np.int8:
        return decoded
    whole = decoded.astype(np.int8)
    return whole if np.array_equal(whole, decoded) else np.ascontiguousarray(decoded, np.float32)


def _refuse_targets(array: Array, labels: Sequence[str], where: str, first_row: int) -> None:
    """Raise with the row and column of the first value that means nothing, if there is one."""
    bad = ~(np.isnan(array) | np.isin(array, IGNORED) | ((array >= 0) & (array <= 1)))
    if array.shape[1] == len(labels) and bad.any():
        value, spot = _first(bad, array, labels, "y:", first_row)
        raise InputError(
            f"{where}targets must be 1 (present), 0 (absent), −1 (unknown) or soft in [0, 1]; "
            f"got {value:.6g} at {spot}."
        )


def _first(
    bad: Array, array: Array, labels: Sequence[str], prefix: str, first_row: int
) -> tuple[float, str]:
    row, column = np.argwhere(bad)[0]
    spot = f"row {first_row + int(row)}, column {prefix + labels[int(column)]!r}"
    return float(array[row, column]), spot
