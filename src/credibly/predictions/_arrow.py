"""From Arrow columns to arrays; errors name the file, the row and the column."""

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
    """Return strings as an object array; ``to_numpy`` would import pandas, which takes a second."""
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
    """Return numbers without nulls as a view; ``to_numpy`` would import pandas."""
    kind = np.dtype(_FLOATS.get(str(column.type), str(column.type)))
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.empty(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


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
