"""Read one Parquet file of predictions in batches; errors contain file, row and column.

A ``Piece`` is a few row groups of one file, which a worker reads separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from credibly.checks import InputError
from credibly.predictions import file_schema, validation
from credibly.predictions.file_schema import ID, PROBABILITY, SCORE, TRUTH, Schema
from credibly.predictions.table import NOTHING, Predictions, checked_top
from credibly.predictions.validation import id_array, number_matrix
from credibly.targets import UNKNOWN, SparseTargets
from credibly.types import Array, JsonObject
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

    def table(
        self, labels: list[str], metadata: JsonObject | None = None, *, soft: bool
    ) -> Predictions:
        """Return ids and values as predictions; with ``soft``, truth is float32 in every batch."""
        assert self.probabilities is not None
        assert self.ids is not None
        truth = self.targets
        if truth is not None and soft:
            truth = truth.astype(np.float32, copy=False)
        return Predictions(self.probabilities, labels, self.ids, truth, self.scores, metadata or {})


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
                        yield _with_unknown(batch) if lacking else batch
                first += size

    def top_batches(
        self, rows: int, groups: range | None = None, *, truth: bool = False
    ) -> Iterator[Predictions]:
        """Yield batches of a file with the most probable labels of each row.

        With ``truth``, the truth of a file that has none is unknown.
        """
        chosen = range(self._footer.num_row_groups) if groups is None else groups
        first = sum(self.group_rows[: chosen.start])
        with self._opened() as file, parquet_errors(self.path):
            for record in file.iter_batches(rows, row_groups=list(chosen)):
                yield self._top_rows(record, first, truth)
                first += record.num_rows

    def _top_rows(self, record: pa.RecordBatch, first: int, truth: bool) -> Predictions:
        """Return rows with their most probable labels, after checking every value."""
        where, labels = self.where, self.schema.labels
        top, sizes = _padded(record.column(file_schema.TOP), np.int32(NOTHING), where)
        found: dict[str, Array] = {}
        for name in (file_schema.TOP_PROBABILITY, file_schema.TOP_SCORE):
            if name in record.schema.names:
                found[name], own = _padded(record.column(name), np.float32(0), where)
                if not np.array_equal(sizes, own):
                    raise InputError(
                        f"{where}lists 'top' and {name!r} must be equally long in every row."
                    )
        targets = _truth(record, len(labels), where)
        if truth and targets is None:
            targets = SparseTargets.unknown(record.num_rows, len(labels))
        found_rows = Predictions(
            probabilities=found[file_schema.TOP_PROBABILITY],
            labels=labels,
            ids=id_array(record.column(ID), where, first),
            scores=found.get(file_schema.TOP_SCORE),
            metadata=self.schema.metadata,
            top=top,
            all_targets=targets,
        )
        validation.check_unique(found_rows.ids, where)
        return checked_top(found_rows, where)

    def _opened(self) -> pq.ParquetFile:
        """Return the open file after checking that it has not changed since it was described."""
        if _identity(self.path) != self.identity:
            raise InputError(f"{self.path} was changed after it was opened. Open it again.")
        return open_parquet(self.path, self._footer, [ID])

    def _group(
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection, keep: Array | None
    ) -> Iterator[Batch]:
        read = self._by_labels if self._is_wide(group, wanted) else self._by_rows
        with parquet_errors(self.path):
            for batch in read(file, group, first, wanted):
                last = first + batch.num_rows
                yield batch if keep is None else _masked(batch, keep[first:last])
                first = last

    def _is_wide(self, group: int, wanted: Selection) -> bool:
        """Return whether reading some labels at a time is better: many columns and few rows."""
        cells = self.group_rows[group] * len(wanted.labels)
        return len(wanted.labels) > wanted.labels_at_once and 0 < cells <= _MAX_CELLS

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


def _identity(path: Path) -> tuple[int, int, int]:
    """Return a key that changes when another file replaces this one."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _side_by_side(parts: Sequence[Array | None]) -> Array | None:
    """Return the columns of all parts; if one part has soft truth, all truth becomes soft."""
    held = [part for part in parts if part is not None]
    return np.concatenate(held, axis=1) if held else None


def _masked(batch: Batch, keep: Array) -> Batch:
    kept = (None if cells is None else cells[keep] for cells in batch[1:])
    return Batch(batch.first_row, *kept)


def _padded(column: pa.Array, fill: Any, where: str) -> tuple[Array, Array]:
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
        >>> pieces_of([("p.parquet", [100_000, 50_000, 7])], 120_000)[0].rows
        150000
    """

    path: str
    first_group: int
    last_group: int
    first_row: int
    rows: int


def pieces_of(files: Iterable[tuple[Any, Sequence[int]]], least: float) -> list[Piece]:
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


@dataclass(frozen=True)
class PieceReader:
    """Read pieces of a dataset and check every value; small enough to send to a worker.

    Attributes:
        labels: names of the labels to read, in order.
        kinds: prefixes of the columns to read.
        soft: whether the truth of the dataset may lie between 0 and 1.
        top: whether the files hold the most probable labels of each row.
        batch_rows: the limit on rows to read at a time.

    Example:
        >>> import tempfile
        >>> from credibly.predictions import Dataset
        >>> path = f"{tempfile.mkdtemp()}/predictions.parquet"
        >>> Predictions.from_arrays(probabilities=[[0.9, 0.1]], labels=["dog", "cat"]).write(path)
        >>> dataset = Dataset(path)
        >>> [len(batch) for _, batch in dataset.piece_reader.batches(dataset.pieces()[0])]
        [1]
    """

    labels: list[str]
    kinds: list[str]
    soft: bool = False
    top: bool = False
    batch_rows: int = BATCH_ROWS

    def of_labels(self, labels: Sequence[str]) -> PieceReader:
        """Return a reader of some of the labels."""
        return replace(self, labels=list(labels))

    def batches(self, piece: Piece) -> Iterator[tuple[int, Predictions]]:
        """Yield (index of the first row in the dataset, rows)."""
        shard, rows = self._shard(piece), rows_at_once(self.batch_rows, len(self.labels))
        first, groups = piece.first_row, range(piece.first_group, piece.last_group)
        if self.top:
            truth = TRUTH in self.kinds
            for held in shard.top_batches(self.batch_rows, groups, truth=truth):
                yield first, held.reordered(self.labels)
                first += len(held)
            return
        for batch in shard.batches(Selection(self.labels, self.kinds, rows), groups=groups):
            yield first, batch.table(self.labels, soft=self.soft)
            first += batch.num_rows

    def ranking(self, piece: Piece) -> Iterator[tuple[Array, Array]]:
        """Yield the values that rank rows (scores if available, else probabilities) and truth."""
        shard = self._shard(piece)
        kind = SCORE if SCORE in self.kinds else PROBABILITY
        groups = range(piece.first_group, piece.last_group)
        rows = rows_at_once(self.batch_rows, len(self.labels))
        for batch in shard.batches(Selection(self.labels, [kind, TRUTH], rows), groups=groups):
            values = batch.scores if batch.probabilities is None else batch.probabilities
            assert values is not None
            assert batch.targets is not None
            yield values, batch.targets

    def _shard(self, piece: Piece) -> Shard:
        shard = Shard(Path(piece.path))
        rows = sum(shard.group_rows[piece.first_group : piece.last_group])
        if rows != piece.rows:
            raise InputError(
                f"{piece.path} was changed after it was opened: {piece.rows} rows were expected in "
                f"its row groups {piece.first_group} to {piece.last_group - 1}, {rows} are there. "
                "Start again."
            )
        return shard


def _with_unknown(batch: Batch) -> Batch:
    """Return the batch with all truth unknown."""
    values = batch.scores if batch.probabilities is None else batch.probabilities
    assert values is not None
    return batch._replace(targets=np.full(values.shape, UNKNOWN, dtype=np.int8))
