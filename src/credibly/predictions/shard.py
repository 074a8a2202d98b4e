"""Read Parquet files of predictions in batches; errors contain file, row and column.

A ``Shard`` is one file of a dataset. A ``Piece`` is a few row groups of one file, which a worker
reads separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
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
    id_strings,
    number_matrix,
)
from credibly.targets import SparseTargets
from credibly.types import Array, FilePath, JsonObject
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

    labels: list[str]
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
        first, read = 0, self._group_top if self.schema.top else self._group
        with self._opened() as file, parquet_errors(self.path):
            for group, size in enumerate(self.group_rows):
                asked = groups is None or group in groups
                if asked and (keep is None or keep[first : first + size].any()):
                    for batch in read(file, group, first, wanted):
                        last = batch.first_row + batch.num_rows
                        kept = batch if keep is None else batch.taken(keep[batch.first_row : last])
                        yield kept.with_unknown_truth(len(self.schema.labels)) if lacking else kept
                first += size

    def id_batches(self) -> Iterator[pa.Array]:
        """Yield the ids as Arrow strings, without an object of Python for each."""
        first = 0
        with self._opened() as file, parquet_errors(self.path):
            for record in file.iter_batches(columns=[ID]):
                ids = id_strings(record.column(ID), self.where, first).cast(pa.string())
                ids.validate(full=True)
                yield ids
                first += record.num_rows

    def _group_top(
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection
    ) -> Iterator[Batch]:
        for record in file.iter_batches(wanted.rows, row_groups=[group]):
            yield self._top_rows(record, first)
            first += record.num_rows

    def _top_rows(self, record: pa.RecordBatch, first: int) -> Batch:
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
        self, file: pq.ParquetFile, group: int, first: int, wanted: Selection
    ) -> Iterator[Batch]:
        # Reading some labels at a time is better with many columns and few rows.
        num_labels = len(wanted.labels)
        few = 0 < self.group_rows[group] * num_labels <= _MAX_CELLS
        wide = num_labels > wanted.labels_at_once and few
        return (self._by_labels if wide else self._by_rows)(file, group, first, wanted)

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


# Folders ------------------------------------------------------------------------------------------

# The metadata of a shard contains its index, the number of shards, and the rows of all shards
# together (`shard`). Files of version 0.1 have index and number in their name instead.
_NAME = re.compile(r"part-(\d{1,9})-of-(\d{1,9})\.parquet")


def parquet_files(path: Path) -> list[Path]:
    """Return the file itself, or the complete Parquet files of a folder in order of their names.

    By convention, files whose names begin with ``.`` or ``_`` are still being written.
    """
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix == ".parquet" and not file.name.startswith((".", "_"))
    )
    if not files:
        raise InputError(f"the folder {path} must hold Parquet files (*.parquet); it has none.")
    return files


def identity(path: FilePath) -> tuple[tuple[str, int, int, int], ...]:
    """Return a key that changes when a file of the dataset is replaced, added or removed."""
    try:
        found = [(file, file.stat()) for file in parquet_files(Path(path))]
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {error.filename}") from None
    return tuple(
        (str(file), status.st_ino, status.st_size, status.st_mtime_ns) for file, status in found
    )


@dataclass(frozen=True)
class Place:
    """The index of a shard, and the rows of all shards together (0 if not known)."""

    index: int
    count: int
    rows: int = 0


def shard_name(index: int, count: int) -> str:
    """Return the file name of a shard.

    Example:
        >>> shard_name(3, 4)
        'part-00003-of-00004.parquet'
    """
    return f"part-{index:05d}-of-{count:05d}.parquet"


def shard_metadata(index: int, count: int, rows: int) -> dict[str, dict[str, int]]:
    """Return the metadata with the index of a shard."""
    return {"shard": {"index": index, "count": count, "rows": rows}}


def place_of(name: str, metadata: JsonObject) -> Place | None:
    """Return the index of a shard, or None if neither its metadata nor its name has one."""
    said = metadata.get("shard")
    if isinstance(said, dict):
        numbers = [said.get(each) for each in ("index", "count", "rows")]
        valid = [number for number in numbers if isinstance(number, int) and number >= 0]
        if len(valid) == len(numbers):
            return Place(*valid)
    match = _NAME.fullmatch(name)
    return None if match is None else Place(int(match[1]), int(match[2]))


def check_complete(folder: Path, files: Mapping[str, JsonObject], *, partial: bool) -> None:
    """Raise if shards of the folder are missing (unless ``partial``) or appear twice.

    Args:
        folder: the folder.
        files: the metadata of each file, by its name; empty for files that are not predictions.
        partial: whether shards may be missing.
    """
    names: dict[int, str] = {}
    first, rows = ("", Place(0, 0)), 0
    for name, metadata in files.items():
        place = place_of(name, metadata)
        if place is None:
            continue
        first = first if names else (name, place)
        if place.count != first[1].count:
            raise InputError(
                f"{folder} must hold the shards of one prediction; {first[0]} is one of "
                f"{first[1].count}, {name} one of {place.count}. Keep them in folders of their own."
            )
        if place.index in names:
            raise InputError(
                f"{folder} must hold every shard once; {names[place.index]} and {name} are both "
                f"shard {place.index} of {place.count}. Remove one."
            )
        names[place.index], rows = name, max(rows, place.rows)
    count = first[1].count
    # Empty shards are not written: with fewer rows than shards, the last shards do not exist.
    needed = min(count, rows) if rows else count
    number = needed - sum(index < needed for index in names)
    if partial or not number:
        return
    missing = (index for index in range(needed) if index not in names)
    listed = ", ".join(shard_name(index, count) for index in islice(missing, 3))
    more = f" and {number - 3} more" if number > 3 else ""
    raise InputError(
        f"{folder} must hold all {needed} shards; {listed}{more} {'is' if number == 1 else 'are'} "
        f"missing. Run `credibly predict RUN DATA --shards {count} --out {folder}` again: it "
        "writes only the missing ones. To read the others as they are, pass partial=True "
        "(--partial)."
    )
