"""Tables: Parquet, Arrow and gzipped text.

Arrow does not compare what a file declares with what it holds: a text that is stored once can stand
in a million rows, and offsets can point anywhere.
"""

from __future__ import annotations

import gzip
import re
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from credibly.checks import InputError, fits_memory
from credibly.types import Array
from credibly.untrusted.budget import (
    BUDGETS,
    check_file,
    read_bytes,
    read_in_process,
    serve_files,
    worded,
)

pc: Any = pyarrow.compute  # its functions are made at import, unseen by type checkers


def read_parquet(path: Path, footer: pq.FileMetaData | None = None) -> pa.Table:
    """Return the table in a Parquet file, every text checked for UTF-8.

    Raises:
        InputError: if it is not complete Parquet, or does not fit into memory.
    """
    check_file(path, "parquet")
    with worded(f"{path} must be complete Parquet"):
        # Texts come as dictionaries first: each once, however many rows have it.
        with pq.ParquetFile(path, metadata=footer) as file:
            schema, kinds = file.schema_arrow, file.schema
            _ = schema.names  # decoded here: names may be no text at all
            groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
            for at in range(len(groups)):
                # No rows: it raises where `column` below would end the process (C++ exceptions).
                deque(file.reader.iter_batches(0, [at], use_threads=False), maxlen=0)
        values = sum(each.column(at).num_values for each in groups for at in range(len(kinds)))
        fits_memory(str(path), values)
        leaves = [kinds.column(at) for at in range(len(kinds))]
        texts = [each.path for each in leaves if each.physical_type == "BYTE_ARRAY"]
        with pq.ParquetFile(path, metadata=footer, read_dictionary=texts) as file:
            table = file.read()
        fits_memory(str(path), sum(map(text_bytes, table.columns)), itemsize=1)
        return _checked(table.cast(schema), path)


def text_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """Return the bytes of all texts of a column once each row has its own."""
    if isinstance(column, pa.ChunkedArray):
        return sum(map(text_bytes, column.chunks))
    if isinstance(column, pa.DictionaryArray):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return pc.sum(lengths).as_py() or 0
    if isinstance(column, (pa.StructArray, pa.ListArray, pa.LargeListArray)):
        inner = column.flatten()
        return sum(map(text_bytes, inner if isinstance(inner, list) else [inner]))
    return 0


def read_arrow(path: Path) -> pa.Table:
    """Return the table in an Arrow or Feather file, read by a process of its own.

    Raises:
        InputError: if it is no complete Arrow file, or takes too much time or memory.
    """
    found = read_in_process(__name__, path, "arrow", "Save it as Parquet instead.")
    return pa.ipc.open_stream(pa.py_buffer(found["stream"])).read_all()


def read_stream(path: Path) -> pa.Table:
    """Return the table in a stream of Arrow batches, mapped into memory."""
    check_file(path, "arrow")
    with worded(f"{path} must be an Arrow stream"):
        return _checked(pa.ipc.open_stream(pa.memory_map(str(path))).read_all(), path)


def _checked(table: pa.Table, path: Path) -> pa.Table:
    """Return a table whose offsets lie inside it and whose texts are UTF-8."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        row = 0
        for chunk in column.chunks:
            try:
                chunk.validate(full=True)
            except pa.ArrowException as error:
                bad = re.search(r"UTF8 sequence at string index (\d+)", str(error))
                if bad is None:
                    raise
                raise InputError(
                    f"{path}, row {row + int(bad[1])}, column {name!r} must be UTF-8 text; it is "
                    "not. Convert the file to UTF-8."
                ) from None
            row += len(chunk)
    return table


def unpacked(path: Path) -> bytes:
    """Return the bytes of a text file; of a ``.gz`` file, those inside it."""
    if path.suffix.lower() != ".gz":
        return read_bytes(path, "text")
    check_file(path, "text")
    limit = BUDGETS["text"].unpacked or 0
    with worded(f"{path} must be a gzip file"), gzip.open(path) as file:
        content = bytearray()
        while len(content) <= limit and (block := file.read(2**26)):
            content += block
            fits_memory(str(path), len(content), itemsize=1)
    if len(content) > limit:
        raise InputError(f"{path} must hold at most {limit >> 30} GB; unpack and divide it.")
    return bytes(content)


def load_arrow(path: Path) -> dict[str, Array]:
    """Return a table as a plain stream, in a process that has limits."""
    from pyarrow import feather

    with worded(f"{path} must be a complete Arrow file"):
        table = _checked(feather.read_table(path, memory_map=False, use_threads=False), path)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"stream": np.frombuffer(sink.getvalue(), np.uint8)}


if __name__ == "__main__":
    serve_files(load_arrow, "arrow")
