"""Arrow columns to arrays and back; errors name the file, the row and the column.

Arrow's own ``to_numpy`` and ``pa.array`` of an array import pandas, which takes half a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from credibly.checks import InputError
from credibly.targets import UNKNOWN
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa


def id_array(column: pa.Array, where: str, first_row: int = 0) -> Array:
    """Return ids as an object array of str; every row must have one."""
    import pyarrow as pa

    if column.null_count:
        row = first_row + _first_null(column)
        raise InputError(f"{where}every row must have an id; row {row} has none.")
    try:
        return _texts(column.cast(pa.large_string()))
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise InputError(
            f"{where}column 'id' must hold text or whole numbers; it holds {column.type}."
        ) from error


def _texts(column: pa.Array) -> Array:
    """Return strings as an object array."""
    if not len(column):
        return np.empty(0, dtype=object)
    _, ends, data = column.buffers()
    count, start = len(column), column.offset
    places = np.frombuffer(ends, np.int64)[start : start + count + 1].tolist()
    raw = b"" if data is None else bytes(memoryview(data)[places[0] : places[-1]])
    first, texts = places[0], np.empty(count, dtype=object)
    if raw.isascii():  # then bytes and characters have the same places
        whole = raw.decode("ascii")
        texts[:] = [whole[a - first : b - first] for a, b in pairwise(places)]
    else:
        pairs = pairwise(places)
        texts[:] = [raw[a - first : b - first].decode("utf-8") for a, b in pairs]
    return texts


def number_matrix(
    columns: Mapping[str, pa.Array],
    where: str,
    first_row: int = 0,
    *,
    nulls: bool = False,
    fill: float = UNKNOWN,
) -> Array:
    """Return columns side by side, (rows, columns); nulls, where allowed, become ``fill``."""
    return np.stack(
        [_numbers(name, column, where, first_row, nulls, fill) for name, column in columns.items()],
        axis=1,
    )


def _numbers(
    name: str, column: pa.Array, where: str, first_row: int, nulls: bool, fill: float
) -> Array:
    import pyarrow as pa

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
        column = column.fill_null(fill)
    return _view(column)


_FLOATS = {"halffloat": "f2", "float": "f4", "double": "f8"}


def _view(column: pa.Array) -> Array:
    """Return numbers without nulls as a view."""
    kind = np.dtype(_FLOATS.get(str(column.type), str(column.type)))
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.empty(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


def text_column(texts: Array) -> pa.Array:
    """Return an array of str as an Arrow column.

    Example:
        >>> text_column(np.array(["a", "", "né"], object)).to_pylist()
        ['a', '', 'né']
    """
    import pyarrow as pa

    encoded = [text.encode("utf-8") for text in texts]
    ends = np.concatenate([[0], np.cumsum([len(each) for each in encoded], dtype=np.int64)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise InputError(f"ids must take less than 2 GB in all; got {ends[-1] / 1e9:.1f} GB.")
    data = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), data)


def number_column(values: Array, kind: pa.DataType, known: Array | None = None) -> pa.Array:
    """Return numbers, of which only some may be known, as an Arrow column of this type.

    Example:
        >>> import pyarrow as pa
        >>> values, known = np.array([1.0, 0.5, 0.0]), np.array([True, False, True])
        >>> number_column(values, pa.int8(), known).to_pylist()
        [1, None, 0]
    """
    import pyarrow as pa

    name = str(kind)
    held = np.where(known, values, 0) if known is not None else values
    held = np.ascontiguousarray(held, np.dtype(_FLOATS.get(name, name)))
    valid = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(held), [valid, pa.py_buffer(held)])


def _first_null(column: pa.Array) -> int:
    return int(column.is_null().to_numpy(zero_copy_only=False).argmax())


def _first_text(column: pa.Array, first_row: int) -> str:
    """Return where a column of text first holds something else than a number."""
    import pyarrow as pa

    if not pa.types.is_string(column.type):
        return ""
    for row, text in enumerate(column.to_pylist()):
        try:
            float(text or 0)
        except ValueError:
            return f", first {text!r} in row {first_row + row}"
    return ""
