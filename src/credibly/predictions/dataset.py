"""Read a predictions dataset, which is one file or a folder of shards, in batches.

Every reader of predictions uses it: ``Predictions.read``, metrics over files, label sets, search,
report and server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from credibly.checks import InputError, fits_memory, nearest, whole_number
from credibly.metrics.summaries import Summary
from credibly.metrics.top_labels import HeldLabels
from credibly.predictions import validation
from credibly.predictions.file_schema import ID, PROBABILITY, SCORE, TRUTH
from credibly.predictions.shard import (
    BATCH_ROWS,
    LABELS_AT_ONCE,
    Batch,
    Piece,
    PieceReader,
    Selection,
    Shard,
    pieces_of,
    rows_at_once,
)
from credibly.predictions.table import Predictions, Rows, label_mismatch, needs_columns, row_index
from credibly.types import Array

What = Literal["probabilities", "scores"]
_IDS = Selection([], [ID], BATCH_ROWS)
_CHECKED: dict[tuple[Any, ...], None] = {}
"""Files whose ids were compared in this process, the latest last."""
_MAX_CHECKED = 64


class Dataset:
    """A predictions file, or a folder of them (shards of one dataset), read in batches.

    Opening a dataset reads only footers and checks columns, types and versions. Reading checks
    every value that it returns.

    Args:
        path: a Parquet file, or a folder of Parquet files.
        partial: whether a folder may lack shards; by default that is an error.
        batch_rows: the limit on rows to read at a time; it is lower if rows have many labels.
        labels_at_once: the number of label columns to read at a time from a file with very many.

    Attributes:
        path, files: the given path, and its Parquet files in order of their names.
        shards: one ``Shard`` per file: its path, its schema and its number of rows.
        labels, metadata: as in ``Predictions``; those of the first file.
        num_rows: rows of all files together.
        has_targets: whether at least one file has the truth; in other files it is unknown.
        has_scores: whether all files have scores.
        soft: whether the truth may lie between 0 and 1.
        top: whether the files store only the most probable labels of each row, the layout for very
            many labels. Its ``Predictions`` have a ``top``.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "predictions.parquet"
        >>> Predictions.from_arrays(probabilities=[[0.9, 0.1]], labels=["dog", "cat"]).write(path)
        >>> dataset = Dataset(path)
        >>> dataset.num_rows, dataset.labels, dataset.has_targets
        (1, ['dog', 'cat'], False)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        partial: bool = False,
        batch_rows: int = BATCH_ROWS,
        labels_at_once: int = LABELS_AT_ONCE,
    ) -> None:
        self.path = Path(path)
        self.batch_rows = whole_number("batch_rows", batch_rows, 1)
        self.labels_at_once = whole_number("labels_at_once", labels_at_once, 1)
        self.shards = [Shard(file) for file in parquet_files(self.path)]
        if self.path.is_dir():
            check_complete(self.path, self.shards, partial=partial)
        self.files = [shard.path for shard in self.shards]
        first = self.shards[0].schema
        self.labels, self.metadata = first.labels, first.metadata
        expected = set(first.labels)
        for shard in self.shards:
            if set(shard.schema.labels) != expected:
                raise InputError(label_mismatch(str(shard.path), shard.schema.labels, first.labels))
        self.top = first.top
        mixed = next((shard for shard in self.shards if shard.schema.top != first.top), None)
        if mixed is not None:
            raise InputError(
                f"{self.path} must hold files of one layout, but {self.shards[0].path.name} and "
                f"{mixed.path.name} differ: one has a column per label, the other lists the most "
                "probable labels of each row. Put them into different folders."
            )
        self.num_rows = sum(shard.num_rows for shard in self.shards)
        self.has_targets = any(shard.schema.has_targets for shard in self.shards)
        self.has_scores = all(shard.schema.has_scores for shard in self.shards)
        self.soft = any(shard.schema.soft for shard in self.shards)
        if self.num_rows == 0:
            raise InputError(f"{self.path} must have at least one row; it is empty.")

    def read(self, labels: Sequence[str] | None = None, rows: Rows | None = None) -> Predictions:
        """Return all rows in memory, or the given labels and rows in the given order."""
        names, kinds = self.check_labels(labels), self._kinds()
        if self.top:
            table = self._read_top(labels)
            return table if rows is None else table[self._row_numbers(rows)]
        if rows is None:
            table = self._gather(names, kinds).table(names, self.metadata, soft=self.soft)
            validation.check_unique(table.ids, f"{self.path}: ")
            return table
        ordered, back = np.unique(self._row_numbers(rows), return_inverse=True)
        keep = np.zeros(self.num_rows, dtype=bool)
        keep[ordered] = True
        picked = self._gather(names, kinds, keep).table(names, self.metadata, soft=self.soft)
        return picked if len(back) == len(ordered) and (np.diff(back) == 1).all() else picked[back]

    def _read_top(self, labels: Sequence[str] | None) -> Predictions:
        parts: list[Predictions] = []
        for part in self.batches(labels=labels):
            fits_memory(f"{self.path}", self.num_rows, part.probabilities.shape[1], itemsize=12)
            parts.append(part)
        try:
            return Predictions.concat(parts)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error

    def batches(
        self, rows: int | None = None, labels: Sequence[str] | None = None
    ) -> Iterator[Predictions]:
        """Yield batches of at most ``rows`` rows, in order. Ids are not compared between batches.

        The default is ``batch_rows``, or fewer rows if a row has many labels: 32 MB of
        probabilities. Files with the most probable labels of each row yield these labels. With
        ``labels``, they yield one column per label.
        """
        names, kinds = self.check_labels(labels), self._kinds()
        if rows is None:
            rows = self.batch_rows if self.top else rows_at_once(self.batch_rows, len(names))
        if rows < 1:
            raise InputError(f"`rows` must be at least 1; got {rows!r}.")
        if not self.top:
            for batch in self._batches(Selection(names, kinds, rows)):
                yield batch.table(names, self.metadata, soft=self.soft)
            return
        for shard in self.shards:
            for held in shard.top_batches(rows, truth=self.has_targets):
                yield held.reordered(self.labels) if labels is None else held.select(names)

    def pieces(self, cells: int = 2**24) -> list[Piece]:
        """Return the dataset as pieces of a few row groups each, which workers read separately.

        Args:
            cells: approximate number of probabilities per piece, which has at least one row group.
        """
        files = [(shard.path, shard.group_rows) for shard in self.shards]
        return pieces_of(files, cells / self.row_cells)

    @property
    def piece_reader(self) -> PieceReader:
        """Return an object that reads a piece on another machine without opening other files."""
        return PieceReader(self.labels, self._kinds(), self.soft, self.top, self.batch_rows)

    @property
    def every_label(self) -> bool:
        """Whether every row has a probability for every label."""
        return not self.top

    @property
    def row_cells(self) -> int:
        """Return the approximate number of probabilities per row."""
        return 64 if self.top else len(self.labels)

    def summary(self, bins: int, *, ranks: bool = False) -> Summary | HeldLabels:
        """Return the accumulator whose updates are the ``Predictions.measured`` of the rows.

        Args:
            bins: the number of bins of the calibration errors.
            ranks: whether to keep the exact ranking in memory.
        """
        if self.top:
            return HeldLabels(bins)
        return Summary(len(self.labels), bins, zero=not self.soft, ranks=ranks)

    @property
    def ids_compared(self) -> bool:
        """Whether the writer checked that all ids are different."""
        return self._written_together() and not any(s.ids_may_be_missing() for s in self.shards)

    def check_dense(self, purpose: str) -> None:
        """Raise unless there is one column per label; the error says that ``purpose`` needs it."""
        if self.top:
            raise InputError(needs_columns(f"{self.path} holds", len(self.labels), purpose))

    def columns(
        self, labels: Sequence[str], what: What = "probabilities", *, label_major: bool = False
    ) -> tuple[Array, Array | None]:
        """Return values and targets of some labels over all rows, each (rows, labels).

        Ids are not read.

        Args:
            labels: names of the labels to read.
            what: ``"probabilities"`` or ``"scores"``.
            label_major: whether to store the values of each label contiguously.
        """
        kind = SCORE if what == "scores" else PROBABILITY
        if kind not in self._kinds():
            raise InputError(f"{self.path} has no scores; read its probabilities.")
        if self.top and kind == PROBABILITY:
            table = self.read(labels)
            return table.probabilities, table.targets
        kinds = [kind, TRUTH] if self.has_targets else [kind]
        batch = self._gather(self.check_labels(labels), kinds, order="F" if label_major else "C")
        return _present(batch.scores if what == "scores" else batch.probabilities), batch.targets

    def column_batches(
        self, label: str, what: What = "probabilities"
    ) -> Iterator[tuple[Array, Array]]:
        """Yield values and targets of one label in batches, each (rows,).

        In files without truth, all targets are −1 (unknown).
        """
        kind = SCORE if what == "scores" else PROBABILITY
        wanted = Selection(self.check_labels([label]), [kind, TRUTH], self.batch_rows)
        for batch in self._batches(wanted):
            values = batch.scores if what == "scores" else batch.probabilities
            yield _present(values)[:, 0], _present(batch.targets)[:, 0]

    def column(self, label: str, what: What = "probabilities") -> tuple[Array, Array | None]:
        """Return values and targets of one label over all rows, each (rows,)."""
        values, targets = self.columns([label], what)
        return values[:, 0], None if targets is None else targets[:, 0]

    def ids(self) -> Array:
        """Return all ids, in order."""
        return _present(self._gather([], [ID]).ids)

    def arrow_ids(self) -> pa.Array:
        """Return all ids, in order, as one Arrow array of strings."""
        chunks = [pa.array(batch.ids, pa.string()) for batch in self._batches(_IDS)]
        return pa.concat_arrays(chunks)

    def hashed_ids(self) -> Array:
        """Return a 64-bit hash per id, in order; equal ids have equal hashes in this process."""
        batches = self._batches(_IDS)
        hashes = [
            np.fromiter(map(hash, batch.ids), np.int64, len(batch.ids))
            for batch in batches
            if batch.ids is not None
        ]
        return np.concatenate(hashes)

    def check_ids(self, *, trust_writer: bool = False) -> None:
        """Raise if an id is missing or appears twice; uses eight bytes of memory per row.

        Args:
            trust_writer: whether to skip ids that are known to be distinct. ``Writer`` compares the
                ids of each file and stores their number. Shards of one prediction come from rows
                with distinct ids. A file that was checked in this process counts as checked until
                it changes.
        """
        known = self._written_together() or self._fingerprint() in _CHECKED
        if trust_writer and known and not any(each.ids_may_be_missing() for each in self.shards):
            return
        hashes = self.hashed_ids()
        hashes.sort()
        if (hashes[1:] == hashes[:-1]).any():  # equal ids, or (very rarely) only equal hashes
            validation.check_unique(self.ids(), f"{self.path}: ")
        _CHECKED[self._fingerprint()] = None
        while len(_CHECKED) > _MAX_CHECKED:
            del _CHECKED[next(iter(_CHECKED))]

    def _written_together(self) -> bool:
        """Return whether a writer compared all ids of the dataset with each other."""
        if not all(shard.ids_checked for shard in self.shards):
            return False
        origins = [shard.schema.metadata.get("origin") for shard in self.shards]
        placed = all(place_of(shard) is not None for shard in self.shards)
        same = placed and origins[0] is not None and all(each == origins[0] for each in origins)
        return len(self.shards) == 1 or same

    def _fingerprint(self) -> tuple[Any, ...]:
        return tuple((str(shard.path), shard.identity) for shard in self.shards)

    def check_labels(self, labels: Sequence[str] | None) -> list[str]:
        """Return ``labels``, or all labels if None; each must be a label of this dataset."""
        known = set(self.labels)
        for name in labels or []:
            if name not in known:
                raise InputError(f"{self.path} has no label {name!r}. {nearest(name, self.labels)}")
        return self.labels if labels is None else validation.as_labels(labels)

    def _kinds(self) -> list[str]:
        kinds = [ID, PROBABILITY]
        kinds += [SCORE] if self.has_scores else []
        return [*kinds, TRUTH] if self.has_targets else kinds

    def _row_numbers(self, rows: Rows) -> Array:
        try:
            numbers = np.arange(self.num_rows)[row_index(rows)]
        except IndexError as error:
            raise InputError(f"{self.path} has {self.num_rows} rows; {error}.") from error
        if not len(numbers):
            raise InputError(f"`rows` must pick at least one row of {self.path}; got none.")
        return numbers

    def _batches(self, wanted: Selection, keep: Array | None = None) -> Iterator[Batch]:
        if any(kind != ID for kind in wanted.kinds):
            self.check_dense("reading values of all labels")
        wanted, first = replace(wanted, labels_at_once=self.labels_at_once), 0
        for shard in self.shards:
            mask = None if keep is None else keep[first : first + shard.num_rows]
            yield from shard.batches(wanted, mask)
            first += shard.num_rows

    def _gather(
        self,
        names: list[str],
        kinds: list[str],
        keep: Array | None = None,
        order: Literal["C", "F"] = "C",
    ) -> Batch:
        """Return all batches as one table, which is filled in place to avoid a second copy."""
        rows = self.num_rows if keep is None else int(keep.sum())
        fits_memory(f"{self.path}", rows, max(1, len(names)))
        arrays: dict[str, Array] = {}
        start = size = 0
        # In batches of a few MB, columns are transposed into rows within the cache.
        wanted = Selection(names, kinds, max(1024, 2**20 // max(1, len(names))))
        for batch in self._batches(wanted, keep):
            for name, values in zip(Batch._fields[1:], batch[1:], strict=True):
                if values is None:
                    continue
                if name not in arrays:
                    kind = np.float32 if name == "targets" and self.soft else values.dtype
                    arrays[name] = np.empty((rows, *values.shape[1:]), dtype=kind, order=order)
                size = len(values)
                arrays[name][start : start + size] = values
            start += size
        if start != rows:
            raise InputError(f"{self.path} must hold {rows} rows, as it claims; it holds {start}.")
        return Batch(0, *(arrays.get(name) for name in Batch._fields[1:]))


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


def identity(path: str | os.PathLike[str]) -> tuple[tuple[str, int, int, int], ...]:
    """Return a key that changes when a file of the dataset is replaced, added or removed."""
    try:
        found = [(file, file.stat()) for file in parquet_files(Path(path))]
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {error.filename}") from None
    return tuple(
        (str(file), status.st_ino, status.st_size, status.st_mtime_ns) for file, status in found
    )


def _present(values: Array | None) -> Array:
    """Return ``values``, which cannot be None because the column was selected."""
    assert values is not None
    return values


# Whether a folder holds all shards ----------------------------------------------------------------

# The metadata of a shard contains its index, the number of shards, and the rows of all shards
# together (`shard`). Files of version 0.1 have index and number in their name instead.
_NAME = re.compile(r"part-(\d{1,9})-of-(\d{1,9})\.parquet")


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


def place_of(shard: Shard) -> Place | None:
    """Return the index of a shard, or None if neither its metadata nor its name has one."""
    said = shard.schema.metadata.get("shard")
    if isinstance(said, dict):
        numbers = [said.get(name) for name in ("index", "count", "rows")]
        valid = [number for number in numbers if isinstance(number, int) and number >= 0]
        if len(valid) == len(numbers):
            return Place(*valid)
    return _place_in(shard.path.name)


def check_complete(folder: Path, shards: Sequence[Shard], *, partial: bool) -> None:
    """Raise if shards of the folder are missing (unless ``partial``) or appear twice."""
    _check(folder, [(shard.path.name, place_of(shard)) for shard in shards], partial)


def check_names(folder: Path, files: Sequence[Path], *, partial: bool) -> None:
    """Raise as ``check_complete`` does, by file names only, for files that are not predictions."""
    _check(folder, [(file.name, _place_in(file.name)) for file in files], partial)


def _place_in(name: str) -> Place | None:
    match = _NAME.fullmatch(name)
    return None if match is None else Place(int(match[1]), int(match[2]))


def _check(folder: Path, files: Sequence[tuple[str, Place | None]], partial: bool) -> None:
    placed = [(name, place) for name, place in files if place is not None]
    if not placed:
        return
    first_name, first = placed[0]
    names: dict[int, str] = {}
    for name, place in placed:
        if place.count != first.count:
            raise InputError(
                f"{folder} must hold the shards of one prediction; {first_name} is one of "
                f"{first.count}, {name} one of {place.count}. Keep them in folders of their own."
            )
        if place.index in names:
            raise InputError(
                f"{folder} must hold every shard once; {names[place.index]} and {name} are both "
                f"shard {place.index} of {place.count}. Remove one."
            )
        names[place.index] = name
    if not partial:
        _refuse_missing(folder, set(names), first.count, max(place.rows for _, place in placed))


def _refuse_missing(folder: Path, held: set[int], count: int, rows: int) -> None:
    # Empty shards are not written: with fewer rows than shards, the last shards do not exist.
    needed = min(count, rows) if rows else count
    number = needed - sum(index < needed for index in held)
    if not number:
        return
    missing = (index for index in range(needed) if index not in held)
    names = ", ".join(shard_name(index, count) for index in islice(missing, 3))
    more = f" and {number - 3} more" if number > 3 else ""
    raise InputError(
        f"{folder} must hold all {needed} shards; {names}{more} {'is' if number == 1 else 'are'} "
        f"missing. Run `credibly predict RUN DATA --shards {count} --out {folder}` again: it "
        "writes only the missing ones. To read the others as they are, pass partial=True "
        "(--partial)."
    )
