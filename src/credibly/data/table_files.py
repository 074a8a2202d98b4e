"""CSV, Parquet and JSON Lines files as tables."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from credibly.arrays import is_data_frame
from credibly.checks import InputError, fits_memory
from credibly.data.rows import Data
from credibly.data.tables import ID_NAMES, TableLayout, from_table
from credibly.types import ArrowTable, JsonObject
from credibly.untrusted import tables
from credibly.untrusted.budget import utf8, worded
from credibly.untrusted.documents import parse_json

DELIMITERS = (",", "\t", ";", "|")
BLOCK = 1 << 20
"""Bytes of a CSV file that are parsed at once; a row may be longer."""


def read_csv(path: Path, layout: TableLayout, *, delimiter: str | None = None) -> Data:
    """Read a CSV file (also ``.csv.gz``): features, image paths or texts, with labels.

    Labels are the columns ``y:NAME``; or the columns named by ``labels``; or the names in one
    column (``labels``, ``tags`` …, or ``label_column``), joined by ``separator``. With images or
    texts, all other columns of 0 and 1 are labels too. An empty cell or ``?`` is unknown. Columns
    ``id`` and ``split`` are used if present, and columns in ``ignore`` are not used. ``text`` names
    the columns of texts. Image paths are relative to the folder of the file, or to ``images``, and
    ``suffix`` is appended to them. ``coding`` is the meaning of −1 in label columns that contain
    only −1 and +1.
    """
    content = _utf8(path)
    first = re.search(rb"[^\r\n]*\S[^\r\n]*", content)
    if first is None:
        raise InputError(f"{path} must start with a header line of column names; it is empty.")
    if delimiter is None:
        delimiter = max(DELIMITERS, key=first[0].decode("utf-8", "replace").count)
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    table = _cells(path, content, parse)
    return from_table(table, path, dataclasses.replace(layout, first_row=2))


def _utf8(path: Path) -> bytes:
    """Return a file's text in UTF-8 without byte-order mark, also from Latin-1."""
    content = tables.unpacked(path).removeprefix(codecs.BOM_UTF8)
    if content.isascii() or b"\0" in content:
        return content
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        if not content.decode("utf-8", "ignore").isascii():
            return content  # damaged, not Latin-1: the parser names the cell
        warnings.warn(
            f"{path} is not UTF-8, so it is read as Latin-1 (Windows-1252). If names look wrong, "
            "convert the file to UTF-8.",
            stacklevel=2,
        )
        return content.decode("cp1252", "replace").encode("utf-8")
    return content


def _cells(path: Path, content: bytes, parse: pyarrow.csv.ParseOptions) -> pa.Table:
    """Return a CSV file as text. Errors of type inference would not name a location."""
    must = f"{path} must be a CSV file with a header"
    # Not read by pyarrow: a row after the header may be longer than the block that it would read.
    file = io.TextIOWrapper(io.BytesIO(content), "utf-8", errors="surrogateescape", newline="")
    with worded(must):
        header = next((row for row in csv.reader(file, delimiter=parse.delimiter) if row), [])
        "".join(header).encode("utf-8")

    def read(kind: pa.DataType, block: int) -> pa.Table:
        return pyarrow.csv.read_csv(
            pa.BufferReader(content),
            # A thread of pyarrow would release `content` after the table is returned. If Python is
            # ending by then, this aborts the process.
            read_options=pyarrow.csv.ReadOptions(block_size=block, use_threads=False),
            parse_options=parse,
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(header, kind)),
        )

    whole = min(len(content) + 1, 2**31 - 1)
    with worded(must):
        try:
            try:
                return read(pa.string(), BLOCK)
            except pa.ArrowInvalid as error:
                if "straddl" not in str(error):
                    raise
                return read(pa.string(), whole)  # a row with a very long text exceeds the block
        except pa.ArrowInvalid as error:
            if "UTF" in str(error):
                _name_invalid(read(pa.binary(), whole), path)
            raise


def _name_invalid(table: pa.Table, path: Path) -> None:
    """Raise an error that names the first cell that is not UTF-8."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    for row, cells in enumerate(rows, start=2):
        # By index, not by name: names may be duplicated.
        for name, cell in zip(table.column_names, cells, strict=True):
            utf8(cell or b"", f"{path}, row {row}, column {name!r}")


def read_parquet(path: Path, layout: TableLayout) -> Data:
    """Read a Parquet file (or a folder of them), with the columns of ``read_csv``.

    A column ``features`` may contain lists of numbers, a column ``labels`` lists of names, and an
    image column the bytes of image files.
    """
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} must hold Parquet files; it has none.")
    found = [tables.read_parquet(file) for file in files]
    with worded(f"{path} must hold Parquet files with the same schema"):
        whole = found[0] if len(found) == 1 else pa.concat_tables(found, promote_options="default")
    return from_table(whole, path, layout)


def read_frame(frame: ArrowTable, layout: TableLayout) -> Data:
    """Read a data frame of pandas, polars or pyarrow, with the columns of ``read_parquet``.

    Without an ``id`` column, an index of one column provides the ids. Image paths are relative to
    the working directory, or to ``images``.
    """
    path = Path("data frame")
    with worded("the data frame must fit into Arrow columns"):
        if is_data_frame(frame):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if frame.index.nlevels == 1 and not {*map(str.lower, table.column_names)} & {*ID_NAMES}:
                table = table.append_column("id", pa.array(frame.index).cast(pa.string()))
        else:
            table = pa.table(frame)
        table = tables.checked(table.replace_schema_metadata(), path)
    return from_table(table, path, layout)


# JSON lines ---------------------------------------------------------------------------------------


def read_jsonl(path: Path, layout: TableLayout) -> Data:
    """Read a file of JSON lines (also ``.jsonl.gz``), with the columns of ``read_parquet``.

    A key that is missing in an object is an empty cell. Rows are counted from 1, with blank lines.
    """
    records: list[JsonObject] = []
    for row, line in enumerate(tables.unpacked(path).split(b"\n"), start=1):
        where = f"{path}, row {row}"
        text = utf8(line, where).lstrip("\ufeff").strip()
        if not text:
            continue
        record = parse_json(text, f"{where} must be a JSON object")
        if not isinstance(record, dict):
            raise InputError(f"{where} must be a JSON object; got {text[:60]!r}.")
        records.append(record)
    if not records:
        raise InputError(f"{path} must hold one JSON object per line; it is empty.")
    table = records_table(records, str(path))
    return from_table(table, path, dataclasses.replace(layout, first_row=1))


def records_table(records: Sequence[Mapping[str, object]], where: str) -> pa.Table:
    """Return objects as a table, one column per key; ``where`` is the prefix of errors."""
    names = dict.fromkeys(name for record in records for name in record)
    fits_memory(where, len(records), len(names))
    return pa.table({name: _column(where, name, records) for name in names})


def _column(where: str, name: str, records: Sequence[Mapping[str, object]]) -> pa.Array:
    cells = [record.get(name) for record in records]
    try:
        return pa.array(cells)
    except MemoryError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        nested = next((row for row, x in enumerate(cells) if isinstance(x, (dict, list))), None)
        if nested is not None:
            raise InputError(
                f"{where}, row {nested + 1}, column {name!r} must be of one type in all rows; got "
                f"{cells[nested]!r:.60} beside other types."
            ) from None
        return pa.array([None if cell is None else str(cell) for cell in cells])  # a mix of both
