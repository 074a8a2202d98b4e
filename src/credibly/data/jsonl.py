"""JSON lines: one object per line, its keys the columns of a table."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from credibly.checks import InputError, fits_memory
from credibly.data.rows import Data
from credibly.data.tables import Layout, from_table
from credibly.data.texts import must_be_text_file

MOST_BYTES = 1 << 33
"""Bytes of an unpacked file: a small .gz file can hold a huge one."""


def read_jsonl(path: Path, layout: Layout) -> Data:
    """Read a file of JSON lines (also ``.jsonl.gz``), with the columns of ``read_parquet``.

    A key that an object lacks is an empty cell. Rows are counted from 1, blank lines included.
    """
    return from_table(jsonl_table(path), path, dataclasses.replace(layout, first_row=1))


def jsonl_table(path: Path) -> pa.Table:
    """Return the objects of a file of JSON lines as a table."""
    records: list[dict[str, Any]] = []
    for row, line in enumerate(must_be_text_file(path, unpacked(path), 1), start=1):
        text = line.lstrip("\ufeff").strip()
        if not text:
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, row {row} must be a JSON object; {error}.") from None
        if not isinstance(record, dict):
            raise InputError(f"{path}, row {row} must be a JSON object; got {text[:60]!r}.")
        records.append(record)
    if not records:
        raise InputError(f"{path} must hold one JSON object per line; it is empty.")
    fits_memory(str(path), len(records), max(len(record) for record in records))
    return records_table(records, str(path))


def records_table(records: Sequence[Mapping[str, Any]], where: str) -> pa.Table:
    """Return objects as a table, one column per key; ``where`` is what errors begin with."""
    names = dict.fromkeys(name for record in records for name in record)
    return pa.table({name: _column(where, name, records) for name in names})


def unpacked(path: Path) -> bytes:
    """Return the bytes of a file; of a ``.gz`` file, those inside it."""
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} must be a gzip file; {error}.") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} must hold at most {MOST_BYTES >> 30} GB; unpack and divide it.")
    return content


def _column(where: str, name: str, records: Sequence[Mapping[str, Any]]) -> pa.Array:
    cells = [record.get(name) for record in records]
    try:
        return pa.array(cells)
    except MemoryError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return _mixed(where, name, cells)


def _mixed(where: str, name: str, cells: list[Any]) -> pa.Array:
    """Return cells of several types; only numbers among texts have a meaning."""
    first = next(type(cell) for cell in cells if cell is not None)
    for row, cell in enumerate(cells, start=1):
        if isinstance(cell, (dict, list)) or (cell is not None and first in (dict, list)):
            raise InputError(
                f"{where}, row {row}, column {name!r} must be of one type in all rows; got "
                f"{cell!r:.60} where the first is {first.__name__}."
            )
    return pa.array([None if cell is None else str(cell) for cell in cells])
