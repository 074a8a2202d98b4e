"""One Parquet file of predictions, read in batches; errors name file, row and column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from credibly.checks import InputError
from credibly.predictions import file_schema, top_k, validation
from credibly.predictions.arrow import id_array, number_matrix
from credibly.predictions.file_schema import ID, PROBABILITY, SCORE, TRUTH, Schema
from credibly.predictions.top_k import TopPredictions
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


# Arrow takes 9 kB for each column that it reads, beside its values: with 50,000 labels and their
# truth 0.9 GB, and some labels at a time are even read faster.
LABELS_AT_ONCE = 2048
_MOST_CELLS = 2**26  # of a row group, which is then in memory as a whole

BATCH_ROWS = 65_536
"""Rows that are read at a time."""


def rows_at_once(batch_rows: int, num_labels: int) -> int:
    """Return ``batch_rows``, or fewer where a row has many labels: 32 MB of probabilities.

    Example:
        >>> rows_at_once(65_536, 80), rows_at_once(65_536, 100_000)
        (65536, 83)
    """
    return max(1, min(batch_rows, 2**23 // num_labels))


class Batch(NamedTuple):
    """Some rows of a file; ``first_row`` counts from the start of the file."""

    first_row: int
    ids: Array | None = None
    probabilities: Array | None = None
    scores: Array | None = None
    targets: Array | None = None

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        return next(len(cells) for cells in self[1:] if cells is not None)


@dataclass(frozen=True)
class Selection:
    """What to read: labels, kinds of columns (``id`` and prefixes), rows and labels at a time."""

    labels: Sequence[str]
    kinds: Sequence[str]
    rows: int
    labels_at_once: int = LABELS_AT_ONCE

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns to read."""
        ids = [ID] if ID in self.kinds else []
        return ids + [kind + name for kind in self.kinds if kind != ID for name in self.labels]


class Shard:
    """One file, open only while it is read: a folder may have thousands.

    Attributes:
        path: of the file.
        schema: its columns and metadata.
        num_rows: its number of rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = f"{path}: "
        with open_parquet(path) as file:
            self._footer = file.metadata
            raw = (self._footer.metadata or {}).get(file_schema.KEY)
            self.schema = Schema.from_arrow(file.schema_arrow, raw, self.where)
        self.identity = _identity(path)
        self.num_rows: int = self._footer.num_rows
        held = sum(self.group_rows)
        if held != self.num_rows or self.num_rows < 0:
            raise InputError(
                _damaged(
                    path, ValueError(f"it claims {self.num_rows} rows; its row groups, {held}")
                )
            )

    @property
    def ids_checked(self) -> bool:
        """Return whether the writer of this file compared the ids of exactly these rows."""
        return self.schema.checked_rows == self.num_rows

    def ids_may_be_missing(self) -> bool:
        """Return whether the footer leaves open that a row has no id."""
        place = self.schema.columns.index(ID)
        if self._footer.num_columns != len(self.schema.columns):
            return True  # nested columns: places in the footer are not those of the schema
        if self._footer.schema.column(place).max_definition_level == 0:
            return False
        groups = range(self._footer.num_row_groups)
        found = (self._footer.row_group(group).column(place).statistics for group in groups)
        return any(each is None or not each.has_null_count or each.null_count for each in found)

    @property
    def group_rows(self) -> list[int]:
        """Return the number of rows of each row group."""
        groups = range(self._footer.num_row_groups)
        return [self._footer.row_group(group).num_rows for group in groups]

    def batches(
        self, wanted: Selection, keep: Array | None = None, groups: range | None = None
    ) -> Iterator[Batch]:
        """Yield batches of the rows; ``keep`` is a mask over them, ``groups`` selects row groups.

        Row groups without any row to keep are not read.
        """
        if _identity(self.path) != self.identity:
            raise InputError(f"{self.path} has changed since it was opened. Open it again.")
        first = 0
        with open_parquet(self.path, self._footer) as file:
            for group, size in enumerate(self.group_rows):
                asked = groups is None or group in groups
                if asked and (keep is None or keep[first : first + size].any()):
                    yield from self._group(file, group, first, wanted, keep)
                first += size

    def top_batches(self, rows: int, groups: range | None = None) -> Iterator[TopPredictions]:
        """Yield batches of a file with the most probable labels of each row."""
        if _identity(self.path) != self.identity:
            raise InputError(f"{self.path} has changed since it was opened. Open it again.")
        chosen = range(self._footer.num_row_groups) if groups is None else groups
        first = sum(self.group_rows[: chosen.start])
        with open_parquet(self.path, self._footer) as file:
            try:
                for record in file.iter_batches(rows, row_groups=list(chosen)):
                    yield top_k.from_arrow(
                        record, self.schema.labels, self.schema.metadata, self.where, first
                    )
                    first += record.num_rows
            except (OSError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(_damaged(self.path, error)) from error

    def _group(
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection, keep: Array | None
    ) -> Iterator[Batch]:
        read = self._by_labels if self._is_wide(group, wanted) else self._by_rows
        try:
            for batch in read(file, group, first, wanted):
                last = first + batch.num_rows
                yield batch if keep is None else _masked(batch, keep[first:last])
                first = last
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(_damaged(self.path, error)) from error

    def _is_wide(self, group: int, wanted: Selection) -> bool:
        """Return whether a group is better read some labels at a time: many columns, few rows."""
        cells = self.group_rows[group] * len(wanted.labels)
        return len(wanted.labels) > wanted.labels_at_once and 0 < cells <= _MOST_CELLS

    def _by_rows(
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection
    ) -> Iterator[Batch]:
        # Selecting a column named "p:a" also selects "p:a.b": columns are taken by name below.
        for record in file.iter_batches(wanted.rows, row_groups=[group], columns=wanted.columns):
            yield self._batch(record, first, wanted)
            first += record.num_rows

    def _by_labels(
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection
    ) -> Iterator[Batch]:
        parts: list[Batch] = []
        for start in range(0, len(wanted.labels), wanted.labels_at_once):
            kinds = [kind for kind in wanted.kinds if kind != ID or start == 0]
            labels = wanted.labels[start : start + wanted.labels_at_once]
            some = Selection(labels, kinds, wanted.rows)
            table = file.read_row_group(group, columns=some.columns)
            parts.append(self._batch(table.combine_chunks().to_batches()[0], first, some))
        together = [
            _side_by_side(cells) for cells in zip(*(part[2:] for part in parts), strict=True)
        ]
        ids = parts[0].ids
        parts.clear()
        for begin in range(0, self.group_rows[group], wanted.rows):
            rows = slice(begin, begin + wanted.rows)
            yield Batch(
                first + begin,
                None if ids is None else ids[rows],
                *(None if cells is None else cells[rows] for cells in together),
            )

    def _batch(self, record: pa.RecordBatch, first: int, wanted: Selection) -> Batch:
        ids = probabilities = scores = targets = None
        labels = wanted.labels
        if ID in wanted.kinds:
            ids = id_array(record.column(ID), self.where, first)
        if PROBABILITY in wanted.kinds:
            matrix = self._matrix(record, PROBABILITY, labels, first)
            probabilities = validation.as_probabilities(matrix, labels, self.where, first)
        if SCORE in wanted.kinds:
            matrix = self._matrix(record, SCORE, labels, first)
            scores = validation.as_scores(matrix, labels, self.where, first)
        if TRUTH in wanted.kinds:
            matrix = self._matrix(record, TRUTH, labels, first)
            targets = validation.as_targets(matrix, labels, self.where, first)
        return Batch(first, ids, probabilities, scores, targets)

    def _matrix(
        self, record: pa.RecordBatch, prefix: str, labels: Sequence[str], first: int
    ) -> Array:
        columns = {prefix + name: record.column(prefix + name) for name in labels}
        return number_matrix(columns, self.where, first, nulls=prefix == TRUTH)


def open_parquet(path: Path, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a Parquet file.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if the file is not Parquet or not complete.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is an empty file, 0 bytes; it must be Parquet. Write it again.")
    try:
        return pq.ParquetFile(path, metadata=footer)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(_damaged(path, error)) from error


def _identity(path: Path) -> tuple[int, int, int]:
    """Return what changes when another file takes this one's name."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _damaged(path: Path, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0].rstrip(".")
    return (
        f"{path} must be a complete Parquet file; reading it failed: {reason}. If it is still "
        "being written, wait until it is complete; otherwise write it again."
    )


def _side_by_side(parts: Sequence[Array | None]) -> Array | None:
    """Return the columns of all parts; soft truth in one part makes all of it soft."""
    held = [part for part in parts if part is not None]
    return np.concatenate(held, axis=1) if held else None


def _masked(batch: Batch, keep: Array) -> Batch:
    kept = (None if cells is None else cells[keep] for cells in batch[1:])
    return Batch(batch.first_row, *kept)
