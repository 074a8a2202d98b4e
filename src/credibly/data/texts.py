"""Columns of texts: one per row or a pair, in any script; errors name row and column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from credibly.checks import InputError
from credibly.types import Array

pc: Any = pyarrow.compute  # its functions are made at import, unseen by type checkers

MOST_COLUMNS = 2
"""A text, or a pair such as question and passage."""


def text_matrix(texts: object, where: str) -> Array:
    """Return texts as an array of objects of shape (rows, columns), one or two columns.

    Example:
        >>> text_matrix(["a cat", ""], "here").shape, text_matrix([["is it?", "yes"]], "here").shape
        ((2, 1), (1, 2))
    """
    matrix = np.asarray(texts, dtype=object)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or not 1 <= matrix.shape[1] <= MOST_COLUMNS:
        raise InputError(
            f"{where}texts must be one text per row, or a pair; got an array of shape "
            f"{matrix.shape}."
        )
    for row, cells in enumerate(matrix):
        for column, cell in enumerate(cells):
            if not isinstance(cell, str):
                raise InputError(
                    f"{where}texts must be strings; got {cell!r:.80} in row {row}, column {column}."
                )
    return matrix


def text_cells(column: pa.ChunkedArray, name: str, at: Any) -> list[str]:
    """Return the texts of a column; nothing is an empty text.

    Args:
        column: of a table.
        name: of the column.
        at: from a row number to the file and row that errors name.
    """
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        column = _decoded(column, name, at)
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise InputError(
            f"{at(0)}, column {name!r} must hold texts; it holds {kind}"
            f"{_first(column)}. Name the column of the texts by `text`."
        )
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        column = _decoded(column.cast(pa.binary()), name, at)
    cells = [cell or "" for cell in column.to_pylist()]
    _refuse_numbers(cells, name, at)
    return cells


def invalid_utf8(cells: Sequence[bytes | None]) -> tuple[int, str] | None:
    """Return the first row that is not UTF-8 and why, if there is one."""
    for row, cell in enumerate(cells):
        try:
            (cell or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            return row, f"byte 0x{error.object[error.start]:02x} at {error.start}: {error.reason}"
    return None


def _decoded(column: pa.ChunkedArray, name: str, at: Any) -> pa.ChunkedArray:
    found = invalid_utf8(column.to_pylist())
    if found is not None:
        row, reason = found
        raise InputError(
            f"{at(row)}, column {name!r} must be UTF-8 text; {reason}. Convert the file to UTF-8."
        )
    return column.cast(pa.string())


def _refuse_numbers(cells: Sequence[str], name: str, at: Any) -> None:
    """Refuse a column where every text is a number: a score or an id was named by mistake."""
    filled = [row for row, cell in enumerate(cells) if cell.strip()]
    if len(filled) < 2:
        return
    for row in filled:
        try:
            float(cells[row])
        except ValueError:
            return
    row = filled[0]
    raise InputError(
        f"{at(row)}, column {name!r} must hold texts; all its {len(filled):,} cells are numbers, "
        f"the first {cells[row]!r:.40}. Name the column of the texts by `text`."
    )


def _first(column: pa.ChunkedArray) -> str:
    return f", the first {column[0].as_py()!r:.40}" if len(column) else ""


def must_be_text_file(path: Path, content: bytes, first_row: int) -> list[str]:
    """Return the lines of a UTF-8 file; errors name the row of a line that is not UTF-8."""
    lines = content.split(b"\n")
    found = invalid_utf8(lines)
    if found is not None:
        row, reason = found
        raise InputError(
            f"{path}, row {row + first_row} must be UTF-8 text; {reason}. Convert the file to "
            "UTF-8."
        )
    return [line.decode("utf-8").rstrip("\r") for line in lines]
