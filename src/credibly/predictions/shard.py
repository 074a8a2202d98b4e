"""Read one Parquet file of predictions in batches; errors contain file, row and column.

A ``Piece`` is a few row groups of one file, which a worker reads separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from credibly.checks import InputError
from credibly.predictions import file_schema
from credibly.predictions.file_schema import ID, PROBABILITY, SCORE, TRUTH, Schema
from credibly.predictions.validation import (
    NOTHING,
    Batch,
    as_probabilities,
    as_scores,
    as_targets,
    as_top,
    check_unique,
    id_array,
    number_matrix,
)
from credibly.targets import SparseTargets
from credibly.types import Array
from credibly.untrusted.tables import open_parquet, parquet_errors

# Arrow needs 9 kB per column besides the values: 0.9 GB for 50,000 labels with truth. Reading some
# labels at a time needs less memory and is faster.
LABELS_AT_ONCE = 2048
_MAX_CELLS = 2**26  # of a row group that is read into memory completely

BATCH_ROWS = 65_536
"""Rows that are read at a time."""


def rows_at_once(batch_rows: int, num_labels: int) -> int:
    """Return ``batch_rows``, or fewer if a row has many labels: 32 MB of probabilities.

    Example:
        >>> rows_at_once(65_536, 80), rows_at_once(65_536, 100_000)
        (65536, 83)
    """
    return max(1, min(batch_rows, 2**23 // num_labels))


@dataclass(frozen=True)
class Selection:
    """What to read: labels, prefixes of columns (and ``id``), rows and labels at a time."""

    labels: Sequence[str]
    kinds: Sequence[str]
    rows: int
    labels_at_once: int = LABELS_AT_ONCE

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns to read."""
        ids = [ID] if ID in self.kinds else []
        return ids + [kind + name for kind in self.kinds if kind != ID for name in self.labels]


IDS = Selection([], [ID], BATCH_ROWS)
"""Only the ids."""


class Shard:
    """One file, which is open only while it is read because a folder may have thousands.

    Attributes:
        path: the file.
        schema: its columns and metadata.
        num_rows: its number of rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = f"{path}: "
        with open_parquet(path, texts=[ID]) as file:
            self._footer = file.metadata
            raw = (self._footer.metadata or {}).get(file_schema.KEY)
            self.schema = Schema.from_arrow(file.schema_arrow, raw, self.where)
        self.identity = _identity(path)
        self.num_rows: int = self._footer.num_rows
        held = sum(self.group_rows)
        with parquet_errors(path):
            if held != self.num_rows or self.num_rows < 0:
                raise ValueError(f"it claims {self.num_rows} rows; its row groups, {held}")

    @property
    def ids_checked(self) -> bool:
        """Return whether the writer of this file compared the ids of all its rows."""
        return self.schema.checked_rows == self.num_rows

    def ids_may_be_missing(self) -> bool:
        """Return whether the schema allows rows without an id; ``Writer`` forbids them."""
        leaves = self._footer.schema
        found = (leaves.column(at) for at in range(len(leaves)))
        return any(leaf.path == ID and leaf.max_definition_level > 0 for leaf in found)

    @property
    def group_rows(self) -> list[int]:
        """Return the number of rows of each row group."""
        groups = range(self._footer.num_row_groups)
        return [self._footer.row_group(group).num_rows for group in groups]

    def batches(
        self, wanted: Selection, keep: Array | None = None, groups: range | None = None
    ) -> Iterator[Batch]:
        """Yield batches of rows; ``keep`` is a mask over rows, ``groups`` selects row groups.

        Row groups without a row to keep are not read. If the file has no truth, it is unknown.
        """
        lacking = TRUTH in wanted.kinds and not self.schema.has_targets
        if lacking:
            wanted = replace(wanted, kinds=[kind for kind in wanted.kinds if kind != TRUTH])
        first = 0
        with self._opened() as file:
            for group, size in enumerate(self.group_rows):
                asked = groups is None or group in groups
                if asked and (keep is None or keep[first : first + size].any()):
                    for batch in self._group(file, group, first, wanted, keep):
                        yield batch.with_unknown_truth() if lacking else batch
                first += size

    def top_batches(
        self, rows: int, groups: range | None = None, *, truth: bool = False
    ) -> Iterator[Batch]:
        """Yield batches of a file with the most probable labels of each row.

        With ``truth``, the truth of a file that has none is unknown.
        """
        chosen = range(self._footer.num_row_groups) if groups is None else groups
        first = sum(self.group_rows[: chosen.start])
        with self._opened() as file, parquet_errors(self.path):
            for record in file.iter_batches(rows, row_groups=list(chosen)):
                yield self._top_rows(record, first, truth)
                first += record.num_rows

    def _top_rows(self, record: pa.RecordBatch, first: int, truth: bool) -> Batch:
        """Return rows with their most probable labels, after checking every value."""
        where, num_labels = self.where, len(self.schema.labels)
        top, sizes = _padded(record.column(file_schema.TOP), np.int32(NOTHING), where)
        found: dict[str, Array] = {}
        for name in (file_schema.TOP_PROBABILITY, file_schema.TOP_SCORE):
            if name in record.schema.names:
                found[name], own = _padded(record.column(name), np.float32(0), where)
                if not np.array_equal(sizes, own):
                    raise InputError(
                        f"{where}lists 'top' and {name!r} must be equally long in every row."
                    )
        targets = _truth(record, num_labels, where)
        if truth and targets is None:
            targets = SparseTargets.unknown(record.num_rows, num_labels)
        ids = id_array(record.column(ID), where, first)
        check_unique(ids, where)
        values, scores = found[file_schema.TOP_PROBABILITY], found.get(file_schema.TOP_SCORE)
        rows = Batch(first, ids, values, scores, top=top, all_targets=targets)
        return as_top(rows, num_labels, where)

    def _opened(self) -> pq.ParquetFile:
        """Return the open file after checking that it has not changed since it was described."""
        if _identity(self.path) != self.identity:
            raise InputError(f"{self.path} was changed after it was opened. Open it again.")
        return open_parquet(self.path, self._footer, [ID])

    def _group(
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection, keep: Array | None
    ) -> Iterator[Batch]:
        # Reading some labels at a time is better with many columns and few rows.
        num_labels = len(wanted.labels)
        few = 0 < self.group_rows[group] * num_labels <= _MAX_CELLS
        wide = num_labels > wanted.labels_at_once and few
        read = self._by_labels if wide else self._by_rows
        with parquet_errors(self.path):
            for batch in read(file, group, first, wanted):
                last = first + batch.num_rows
                yield batch if keep is None else batch.taken(keep[first:last])
                first = last

    def _by_rows(
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection
    ) -> Iterator[Batch]:
        # Selecting a column "p:a" also selects "p:a.b", so columns are taken by name below.
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
        wide = parts[0]
        for name in wide.arrays():
            if name != "ids":  # if one part has soft truth, all truth becomes soft
                found = [part.arrays()[name] for part in parts]
                wide = wide._replace(**{name: np.concatenate(found, axis=1)})
        parts.clear()
        for begin in range(0, self.group_rows[group], wanted.rows):
            rows = slice(begin, begin + wanted.rows)
            yield wide.taken(rows)._replace(first_row=first + begin)

    def _batch(self, record: pa.RecordBatch, first: int, wanted: Selection) -> Batch:
        labels, where = wanted.labels, self.where
        found = {"ids": id_array(record.column(ID), where, first)} if ID in wanted.kinds else {}
        for prefix, (name, checked) in _CHECKED.items():
            if prefix in wanted.kinds:
                columns = {prefix + label: record.column(prefix + label) for label in labels}
                matrix = number_matrix(columns, where, first, nulls=prefix == TRUTH)
                found[name] = checked(matrix, labels, where, first)
        return Batch(first)._replace(**found)


_CHECKED = {
    PROBABILITY: ("probabilities", as_probabilities),
    SCORE: ("scores", as_scores),
    TRUTH: ("targets", as_targets),
}
"""Where the values of each kind of column are in a ``Batch``, and what checks them."""


def _identity(path: Path) -> tuple[int, int, int]:
    """Return a key that changes when another file replaces this one."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _padded(column: pa.Array, fill: np.generic, where: str) -> tuple[Array, Array]:
    """Return lists as a matrix, padded at the end, and their lengths."""
    if column.null_count or column.flatten().null_count:
        raise InputError(f"{where}lists of labels must not be null; got some that are.")
    sizes: Array = np.diff(np.asarray(column.offsets))
    width = max(int(sizes.max(initial=1)), 1)
    matrix = np.full((len(column), width), fill)
    matrix[np.arange(width) < sizes[:, None]] = np.asarray(column.flatten())
    return matrix, sizes


def _truth(record: pa.RecordBatch, num_labels: int, where: str) -> SparseTargets | None:
    if file_schema.TOP_TRUTH not in record.schema.names:
        return None
    column = record.column(file_schema.TOP_TRUTH)
    known = np.asarray(column.is_valid())
    sizes = np.where(known, np.diff(np.asarray(column.offsets)), 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.asarray(column.flatten()).astype(np.int64)
    try:
        return SparseTargets(offsets, indices, num_labels, known=known)
    except InputError as error:
        raise InputError(f"{where}{error}") from error


# Pieces -----------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Some row groups of one file of a dataset.

    Attributes:
        path: the file.
        first_group, last_group: its row groups; the last one is excluded.
        first_row: the index of its first row in the dataset.
        rows: the number of its rows.

    Example:
        >>> pieces_of([(Path("p.parquet"), [100_000, 50_000, 7])], 120_000)[0].rows
        150000
    """

    path: str
    first_group: int
    last_group: int
    first_row: int
    rows: int

    def opened(self) -> Shard:
        """Return the file, which must still have these rows."""
        shard = Shard(Path(self.path))
        rows = sum(shard.group_rows[self.first_group : self.last_group])
        if rows != self.rows:
            raise InputError(
                f"{self.path} was changed after it was opened: {self.rows} rows were expected in "
                f"its row groups {self.first_group} to {self.last_group - 1}, {rows} are there. "
                "Start again."
            )
        return shard


def pieces_of(files: Iterable[tuple[Path, Sequence[int]]], least: float) -> list[Piece]:
    """Return pieces of at least ``least`` rows; the last piece of a file may be smaller.

    Args:
        files: path and rows of each row group of each file, in order.
        least: the minimum number of rows.
    """
    found: list[Piece] = []
    first = 0
    for path, sizes in files:
        begin = rows = 0
        for group, size in enumerate(sizes, start=1):
            rows += size
            if rows >= least or group == len(sizes):
                if rows:
                    found.append(Piece(str(path), begin, group, first, rows))
                begin, first, rows = group, first + rows, 0
    return found
