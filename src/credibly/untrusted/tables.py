"""Read untrusted tables: Parquet, Arrow and gzipped text.

Arrow does not compare declared sizes with the content of a file. One stored text can fill a million
rows, and offsets can point outside the data.
"""

from __future__ import annotations

import codecs
import gzip
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from credibly.checks import InputError, fits_memory
from credibly.memory_limits import not_for_lack_of_memory
from credibly.types import Array
from credibly.untrusted.budget import (
    BUDGETS,
    check_file,
    first_line,
    read_bytes,
    read_in_process,
    serve_files,
    worded,
)

WRITE_AGAIN = "If it is still being written, wait until it is complete; otherwise write it again."

pc: Any = pyarrow.compute  # its functions are defined at import, so type checkers miss them


def open_parquet(
    path: Path,
    footer: pq.FileMetaData | None = None,
    texts: Sequence[str] = (),
    advice: str = WRITE_AGAIN,
) -> pq.ParquetFile:
    """Open a Parquet file to read a part of it; the columns are not checked.

    Args:
        path: the file.
        footer: the footer of the file, if it was read before.
        texts: columns that are read as dictionaries, so that each text is read once.
        advice: the end of errors.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if the file is not Parquet or not complete.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    check_file(path, "parquet")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is an empty file, 0 bytes; it must be Parquet. Write it again.")
    with parquet_errors(path, advice):
        try:
            return pq.ParquetFile(path, metadata=footer, read_dictionary=list(texts))
        except KeyError:  # no such column, or a column of lists
            return pq.ParquetFile(path, metadata=footer)


@contextmanager
def parquet_errors(path: Path, advice: str = WRITE_AGAIN) -> Iterator[None]:
    """Turn Arrow's errors on files that are damaged or still being written into ours."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        not_for_lack_of_memory(error)
        raise InputError(
            f"{path} must be a complete Parquet file; reading it failed: {first_line(error)}. "
            f"{advice}"
        ) from error


def read_parquet(path: Path, groups: Iterable[int] | None = None) -> pa.Table:
    """Return the table in a Parquet file, or some row groups; every text must be UTF-8.

    Raises:
        InputError: if the file is not complete Parquet, or does not fit into memory.
    """
    check_file(path, "parquet")
    with worded(f"{path} must be complete Parquet"):
        # Read texts as dictionaries first, so that each text is in memory once.
        with pq.ParquetFile(path) as file:
            schema, kinds = file.schema_arrow, file.schema
            _ = schema.names  # raises here if a name is not UTF-8
            chosen = list(range(file.num_row_groups) if groups is None else groups)
            parts = [file.metadata.row_group(at) for at in chosen]
            for at in chosen:
                # Read no rows: this raises an error if `column` below would end the process (C++).
                deque(file.reader.iter_batches(0, [at], use_threads=False), maxlen=0)
        values = sum(each.column(at).num_values for each in parts for at in range(len(kinds)))
        fits_memory(str(path), values)
        leaves = [kinds.column(at) for at in range(len(kinds))]
        texts = [each.path for each in leaves if each.physical_type == "BYTE_ARRAY"]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            table = file.read_row_groups(chosen)
        fits_memory(str(path), sum(map(text_bytes, table.columns)), itemsize=1)
        return checked(table.cast(schema), path)


def text_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """Return the size in bytes of a column when every row stores its own copy of its text."""
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
    """Return the table in an Arrow or Feather file, which a separate process reads.

    Raises:
        InputError: if it is not a complete Arrow file, or takes too much time or memory.
    """
    found = read_in_process(__name__, path, "arrow", "Save it as Parquet instead.")
    return pa.ipc.open_stream(pa.py_buffer(found["stream"])).read_all()


def read_stream(path: Path) -> pa.Table:
    """Return the table in a stream of Arrow batches; the file is memory-mapped."""
    check_file(path, "arrow")
    with worded(f"{path} must be an Arrow stream"):
        return checked(pa.ipc.open_stream(pa.memory_map(str(path))).read_all(), path)


def checked(table: pa.Table, path: Path) -> pa.Table:
    """Return a table after checking that its offsets are in range and its texts are UTF-8."""
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
    """Return the bytes of a text file, which must not be UTF-16; a ``.gz`` file is decompressed."""
    content = _ungzipped(path) if path.suffix.lower() == ".gz" else read_bytes(path, "text")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path} must be UTF-8 text; it is UTF-16. Save it as UTF-8.")
    return content


def _ungzipped(path: Path) -> bytes:
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
    """Return a table as an Arrow stream; runs in a process with limits."""
    from pyarrow import feather

    with worded(f"{path} must be a complete Arrow file"):
        table = checked(feather.read_table(path, memory_map=False, use_threads=False), path)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"stream": np.frombuffer(sink.getvalue(), np.uint8)}


if __name__ == "__main__":
    serve_files(load_arrow, "arrow")
