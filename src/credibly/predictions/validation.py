"""Check the values of predictions; every error contains the row and the label.

Arrow columns are converted to arrays and back here too. Arrow's own ``to_numpy`` and ``pa.array``
import pandas, which takes half a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from credibly.arrays import to_numpy
from credibly.checks import InputError, fits_memory, nearest
from credibly.targets import IGNORED, UNKNOWN, SparseTargets, Targets, allowed, decode
from credibly.types import Array, ArrayLike
from credibly.untrusted.tables import text_bytes


def as_labels(labels: Sequence[object] | Array, where: str = "") -> list[str]:
    """Return label names as a list of distinct, non-empty str; at least one is required."""
    names = [str(label) for label in labels]
    if not names:
        raise InputError(f"{where}`labels` must name at least one label; got none.")
    seen: set[str] = set()
    for position, name in enumerate(names):
        if not name:
            raise InputError(f"{where}label {position} has an empty name; every label needs one.")
        if name in seen:
            raise InputError(
                f"{where}labels must be different; {name!r} appears twice. Rename one."
            )
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{where}label {position} is not valid Unicode: {error}.") from error
        seen.add(name)
    return names


def positions(labels: Sequence[str], known: Sequence[str]) -> list[int]:
    """Return the index in ``known`` of each of ``labels``."""
    index_of = {name: index for index, name in enumerate(known)}
    for name in labels:
        if name not in index_of:
            raise InputError(f"no label {name!r} in the predictions. {nearest(str(name), known)}")
    return [index_of[name] for name in labels]


def label_difference(labels: Sequence[str], expected: Sequence[str]) -> str:
    """Return what is different in ``labels``, naming the first few.

    Example:
        >>> label_difference(["cat", "x"], ["cat", "dog"])
        "lacks 'dog' and has 'x' besides"
    """
    missing = [repr(name) for name in expected if name not in set(labels)][:3]
    extra = [repr(name) for name in labels if name not in set(expected)][:3]
    parts = [f"lacks {', '.join(missing)}"] if missing else []
    parts += [f"has {', '.join(extra)} besides"] if extra else []
    return " and ".join(parts) or "has them in another order"


def label_mismatch(what: str, labels: Sequence[str], expected: Sequence[str]) -> str:
    """Return a message with the first few labels in which two tables differ."""
    return (
        f"labels must agree; {what} {label_difference(labels, expected)}. Keep only the labels "
        "that both have."
    )


def as_ids(ids: Sequence[object] | Array | None, num_rows: int, where: str = "") -> Array:
    """Return row ids as an object array of distinct str; by default the row indices."""
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
    """Raise if an id appears twice; the error contains both rows."""
    if len(set(ids.tolist())) == len(ids):
        return
    first: dict[str, int] = {}
    for row, name in enumerate(ids.tolist()):
        if name in first:
            raise InputError(
                f"{where}ids must be different; {name!r:.80} is the id of rows {first[name]} and "
                f"{row}. Drop one of the rows or change an id."
            )
        first[name] = row


def id_hashes(ids: Array) -> Array:
    """Return a 64-bit hash per id; equal ids have equal hashes in this process."""
    return np.fromiter(map(hash, ids), np.int64, len(ids))


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
    """Return probabilities as float32; they must lie in [0, 1] and not be NaN."""
    # `min() < 0 or max() > 1` would accept NaN.
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
    """Return scores as float32; they must not be NaN."""
    array = np.ascontiguousarray(array, dtype=np.float32)
    if array.size and np.isnan(array.min()):
        _, spot = _first(np.isnan(array), array, labels, "s:", first_row)
        raise InputError(
            f"{where}scores must not be NaN; {spot} is. Drop the row or score it again."
        )
    return array


def imported_scores(array: Array | None, labels: Sequence[str], where: str) -> Array | None:
    """Return the scores of another program; infinities are refused here, NaN later."""
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


_CERTAIN = partial(decode, coding="unknown")


def as_targets(
    values: ArrayLike | object,
    labels: Sequence[str],
    where: str = "",
    first_row: int = 0,
    decoded: Callable[..., Array] = _CERTAIN,
) -> Array:
    """Return targets as int8 (1, 0, −1 unknown), or float32 if any value is soft.

    In predictions files null is unknown, so the coding is certain. For other files, see
    ``decoded``.
    """
    array = to_numpy(values)
    try:
        given = values if isinstance(values, Targets) else array
        matrix = decoded(given, num_labels=len(labels))
    except InputError as error:
        if array.ndim == 2 and array.dtype.kind in "uif":
            _refuse_targets(array, labels, where, first_row)
        raise InputError(f"{where}{error}") from error
    return matrix if matrix.dtype == np.int8 else smallest(matrix)


def _refuse_targets(array: Array, labels: Sequence[str], where: str, first_row: int) -> None:
    """Raise an error with row and column of the first invalid value, if there is one."""
    bad = ~(np.isnan(array) | np.isin(array, IGNORED) | ((array >= 0) & (array <= 1)))
    if array.shape[1] == len(labels) and bad.any():
        value, spot = _first(bad, array, labels, "y:", first_row)
        raise InputError(f"{where}targets must be {allowed()}; got {value:.6g} at {spot}.")


def _first(
    bad: Array, array: Array, labels: Sequence[str], prefix: str, first_row: int
) -> tuple[float, str]:
    row, column = np.argwhere(bad)[0]
    spot = f"row {first_row + int(row)}, column {prefix + labels[int(column)]!r}"
    return float(array[row, column]), spot


# Arrow columns ---------------------------------------------------------------------------------


def id_array(column: pa.Array, where: str, first_row: int = 0) -> Array:
    """Return ids as an object array of str; every row must have one."""
    ids = np.empty(len(column), dtype=object)
    ids[:] = id_strings(column, where, first_row).to_pylist()
    return ids


def id_strings(column: pa.Array, where: str, first_row: int = 0) -> pa.Array:
    """Return ids as Arrow strings; every row must have one."""
    if column.null_count:
        row = first_row + _first_null(column)
        raise InputError(f"{where}every row must have an id; row {row} has none.")
    if isinstance(column, pa.DictionaryArray):
        fits_memory(f"{where}ids", text_bytes(column), itemsize=1)
    try:
        return column.cast(pa.large_string())
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise InputError(
            f"{where}column 'id' must hold text or whole numbers; it holds {column.type}."
        ) from error


def number_matrix(
    columns: Mapping[str, pa.Array],
    where: str,
    first_row: int = 0,
    *,
    nulls: bool = False,
    fill: float = UNKNOWN,
) -> Array:
    """Return columns as a matrix, (rows, columns); allowed nulls become ``fill``."""
    return np.stack(
        [_numbers(name, column, where, first_row, nulls, fill) for name, column in columns.items()],
        axis=1,
    )


def _numbers(
    name: str, column: pa.Array, where: str, first_row: int, nulls: bool, fill: float
) -> Array:
    if pa.types.is_boolean(column.type) or (nulls and pa.types.is_null(column.type)):
        column = column.cast(pa.int8())
    if column.null_count and not nulls:
        raise InputError(
            f"{where}column {name!r} must have a number in every row; "
            f"row {first_row + _first_null(column)} has none."
        )
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InputError(
            f"{where}column {name!r} must hold numbers; it holds {column.type}"
            f"{_first_text(column, first_row)}."
        )
    if column.null_count:
        if math.isnan(fill) and pa.types.is_integer(column.type):
            column = column.cast(pa.float64())
        elif pa.types.is_unsigned_integer(column.type):  # which cannot hold −1
            column = column.cast(pa.int64())
        # `fill_null` would import pandas.
        filler = number_column(np.array([fill]), column.type)[0]
        column = pc.call_function("coalesce", [column, filler])
    return np.from_dlpack(column)


def text_column(texts: Array) -> pa.Array:
    """Return an array of str as an Arrow column.

    Example:
        >>> text_column(np.array(["a", "", "né"], object)).to_pylist()
        ['a', '', 'né']
    """
    encoded = [text.encode("utf-8") for text in texts]
    ends = np.concatenate([[0], np.cumsum([len(each) for each in encoded], dtype=np.int64)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise InputError(f"ids must take less than 2 GB in all; got {ends[-1] / 1e9:.1f} GB.")
    data = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), data)


def number_column(values: Array, kind: pa.DataType, known: Array | None = None) -> pa.Array:
    """Return numbers as an Arrow column of this type; entries that are not ``known`` become null.

    Example:
        >>> import pyarrow as pa
        >>> values, known = np.array([1.0, 0.5, 0.0]), np.array([True, False, True])
        >>> number_column(values, pa.int8(), known).to_pylist()
        [1, None, 0]
    """
    held = np.where(known, values, 0) if known is not None else values
    held = np.ascontiguousarray(held, kind.to_pandas_dtype())
    valid = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(held), [valid, pa.py_buffer(held)])


def _first_null(column: pa.Array) -> int:
    return int(column.is_null().to_numpy(zero_copy_only=False).argmax())


def _first_text(column: pa.Array, first_row: int) -> str:
    """Return the location of the first text in a column that is not a number."""
    if not pa.types.is_string(column.type):
        return ""
    for row, text in enumerate(column.to_pylist()):
        try:
            float(text or 0)
        except ValueError:
            return f", first {text!r} in row {first_row + row}"
    return ""


# Rows ------------------------------------------------------------------------------------------

NOTHING = -1
"""The label index that fills up rows which hold fewer labels than others."""


class Batch(NamedTuple):
    """Checked values of some rows, as ``Predictions`` names them.

    ``first_row`` counts from the start of the file.
    """

    first_row: int = 0
    ids: Array | None = None
    probabilities: Array | None = None
    scores: Array | None = None
    targets: Array | None = None
    top: Array | None = None
    all_targets: SparseTargets | None = None

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.arrays().values())))

    def arrays(self) -> dict[str, Array]:
        """Return ids and matrices by name, without those that were not read."""
        found = zip(self._fields[1:5], self[1:5], strict=True)
        return {name: cells for name, cells in found if isinstance(cells, np.ndarray)}

    def taken(self, rows: Array | slice) -> Batch:
        """Return some of the rows."""
        return self._replace(**{name: cells[rows] for name, cells in self.arrays().items()})

    def with_unknown_truth(self, num_labels: int) -> Batch:
        """Return the rows with all truth unknown."""
        *_, matrix = self.arrays().values()
        unknown = np.full(matrix.shape, UNKNOWN, dtype=np.int8)
        if self.top is None:
            return self._replace(targets=unknown)
        truth = SparseTargets.unknown(self.num_rows, num_labels)
        return self._replace(targets=unknown, all_targets=truth)


def as_top(rows: Batch, num_labels: int, where: str = "") -> Batch:
    """Return rows with their most probable labels: checked, sorted, and with their targets."""
    indices, values, scores, truth = rows.top, rows.probabilities, rows.scores, rows.all_targets
    assert indices is not None
    assert values is not None
    if indices.ndim != 2 or indices.dtype.kind not in "iu" or not indices.size:
        raise InputError(
            f"{where}`top` must hold label indices of shape (rows, k); got {indices.dtype} of "
            f"shape {indices.shape}."
        )
    for name, other in (("probabilities", values), ("scores", scores)):
        if other is not None and other.shape != indices.shape:
            raise InputError(
                f"{where}`{name}` must have the shape of `top`, {indices.shape}; got {other.shape}."
            )
    outside = (indices < NOTHING) | (indices >= num_labels)
    if outside.any():
        row, entry = (int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"{where}label indices must lie in [0, {num_labels - 1}]; got {indices[row, entry]} in "
            f"row {row}."
        )
    ordered = np.sort(indices, axis=1)
    twice = ((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        raise InputError(
            f"{where}a row must hold each label once; row {int(twice.argmax())} holds one twice."
        )
    entries = [f"entry {number}" for number in range(indices.shape[1])]
    values = as_probabilities(np.where(indices >= 0, values, np.float32(0)), entries, where)
    if truth is not None and truth.shape != (len(indices), num_labels):
        raise InputError(
            f"{where}`targets` must have shape {(len(indices), num_labels)}; got {truth.shape}."
        )
    indices = indices.astype(np.int32)
    if not (np.diff(values, axis=1) <= 0).all():
        order = np.argsort(-values, axis=1, kind="stable")
        indices, values = (np.take_along_axis(each, order, 1) for each in (indices, values))
        scores = None if scores is None else np.take_along_axis(scores, order, 1)
    targets = None
    if truth is not None:
        at = truth.at(np.maximum(indices, 0))
        targets = smallest(np.where(indices >= 0, at, np.float32(UNKNOWN)))
    return rows._replace(probabilities=values, scores=scores, targets=targets, top=indices)


def smallest(targets: Array) -> Array:
    """Return targets as int8, or as float32 if some are soft."""
    whole = targets.astype(np.int8)
    return whole if np.array_equal(whole, targets) else np.ascontiguousarray(targets, np.float32)


def stacked(parts: Sequence[Array], fill: float) -> Array:
    """Return the rows of all parts; rows with fewer entries are padded."""
    width = max(part.shape[1] for part in parts)
    room = [((0, 0), (0, width - part.shape[1])) for part in parts]
    return np.concatenate(
        [np.pad(part, each, constant_values=fill) for part, each in zip(parts, room, strict=True)]
    )


def stacked_targets(each: Sequence[SparseTargets]) -> SparseTargets:
    sizes = np.concatenate([np.diff(targets.offsets) for targets in each])
    known = [np.ones(len(t), bool) if t.known is None else t.known for t in each]
    return SparseTargets(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([targets.indices for targets in each]),
        each[0].num_labels,
        known=np.concatenate(known),
    )
