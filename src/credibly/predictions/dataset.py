"""The files of a dataset of predictions: what they hold, their columns and their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from credibly.arrays import to_numpy
from credibly.checks import InputError, fits_memory, nearest, whole_number
from credibly.predictions import validation
from credibly.predictions.file_schema import ID, PROBABILITY, SCORE, TRUTH
from credibly.predictions.shard import (
    BATCH_ROWS,
    IDS,
    LABELS_AT_ONCE,
    Piece,
    Selection,
    Shard,
    check_complete,
    parquet_files,
    pieces_of,
    place_of,
)
from credibly.predictions.validation import (
    NOTHING,
    Batch,
    id_hashes,
    label_mismatch,
    stacked,
    stacked_targets,
)
from credibly.types import Array, FilePath

if TYPE_CHECKING:
    from credibly.predictions.table import Predictions

Rows = slice | Sequence[int] | Array
ROW_CELLS = 64
"""About as many probabilities as a row stores of its most probable labels."""
What = Literal["probabilities", "scores"]
_PREFIXES = {"probabilities": PROBABILITY, "scores": SCORE}


class DatasetFiles:
    """The part of ``Dataset`` that reads columns and ids; it knows nothing of ``Predictions``."""

    def __init__(
        self,
        path: FilePath,
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
            names = {shard.path.name: shard.schema.metadata for shard in self.shards}
            check_complete(self.path, names, partial=partial)
        self.files = [shard.path for shard in self.shards]
        first = self.shards[0].schema
        self.labels, self.metadata = first.labels, first.metadata
        self.top, expected = first.top, set(first.labels)
        for shard in self.shards:
            if set(shard.schema.labels) != expected:
                raise InputError(label_mismatch(str(shard.path), shard.schema.labels, first.labels))
            if shard.schema.top != first.top:
                raise InputError(
                    f"{self.path} must hold files of one layout, but {self.files[0].name} and "
                    f"{shard.path.name} differ: one has a column per label, the other lists the "
                    "most probable labels of each row. Put them into different folders."
                )
        self.num_rows = sum(shard.num_rows for shard in self.shards)
        self.has_targets = any(shard.schema.has_targets for shard in self.shards)
        self.has_scores = all(shard.schema.has_scores for shard in self.shards)
        self.soft = any(shard.schema.soft for shard in self.shards)
        if self.num_rows == 0:
            raise InputError(f"{self.path} must have at least one row; it is empty.")

    def pieces(self, cells: int = 2**24) -> list[Piece]:
        """Return the dataset as pieces of a few row groups each, which workers read separately.

        Args:
            cells: approximate number of probabilities per piece, which has at least one row group.
        """
        files = [(shard.path, shard.group_rows) for shard in self.shards]
        return pieces_of(files, cells / self.row_cells)

    @property
    def every_label(self) -> bool:
        """Whether every row has a probability for every label."""
        return not self.top

    @property
    def row_cells(self) -> int:
        """Return the approximate number of probabilities per row."""
        return ROW_CELLS if self.top else len(self.labels)

    @property
    def ids_compared(self) -> bool:
        """Whether the writers of all files compared all ids with each other."""
        if not all(each.ids_checked and not each.ids_may_be_missing() for each in self.shards):
            return False
        metadata = [(shard.path.name, shard.schema.metadata) for shard in self.shards]
        origins = [about.get("origin") for _, about in metadata]
        placed = all(place_of(*each) is not None for each in metadata)
        together = placed and origins[0] is not None and all(x == origins[0] for x in origins)
        return together or len(self.shards) == 1

    def check_dense(self, purpose: str) -> None:
        """Raise unless there is one column per label; the error says that ``purpose`` needs it."""
        if self.top:
            raise needs_columns(f"{self.path} holds", len(self.labels), purpose)

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
        kind = _PREFIXES[what]
        if kind not in self._kinds():
            raise InputError(f"{self.path} has no scores; read its probabilities.")
        kinds = [kind, TRUTH] if self.has_targets else [kind]
        batch = self._gather(self.check_labels(labels), kinds, order="F" if label_major else "C")
        return present(getattr(batch, what)), batch.targets

    def column(self, label: str, what: What = "probabilities") -> tuple[Array, Array | None]:
        """Return values and targets of one label over all rows, each (rows,)."""
        values, targets = self.columns([label], what)
        return values[:, 0], None if targets is None else targets[:, 0]

    def column_batches(
        self, label: str, what: What = "probabilities"
    ) -> Iterator[tuple[Array, Array]]:
        """Yield values and targets of one label in batches, each (rows,).

        In files without truth, all targets are −1 (unknown).
        """
        wanted = Selection(self.check_labels([label]), [_PREFIXES[what], TRUTH], self.batch_rows)
        for batch in self._batches(wanted):
            yield present(getattr(batch, what))[:, 0], present(batch.targets)[:, 0]

    def ids(self) -> Array:
        """Return all ids, in order."""
        return present(self._gather([], [ID]).ids)

    def arrow_ids(self) -> pa.Array:
        """Return all ids, in order, as one Arrow array of strings."""
        return pa.concat_arrays([ids for shard in self.shards for ids in shard.id_batches()])

    def hashed_ids(self) -> Array:
        """Return a 64-bit hash per id, in order; equal ids have equal hashes in this process."""
        return np.concatenate([id_hashes(present(batch.ids)) for batch in self._batches(IDS)])

    def check_ids(self, *, trust_writer: bool = False) -> None:
        """Raise if an id is missing or appears twice; uses eight bytes of memory per row.

        Args:
            trust_writer: whether to skip ids that are known to be distinct. ``Writer`` compares the
                ids of each file and stores their number. Shards of one prediction come from rows
                with distinct ids.
        """
        if trust_writer and self.ids_compared:
            return
        hashes = self.hashed_ids()
        hashes.sort()
        if (hashes[1:] == hashes[:-1]).any():  # equal ids, or (very rarely) only equal hashes
            validation.check_unique(self.ids(), f"{self.path}: ")

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
            for name, values in batch.arrays().items():
                if name not in arrays:
                    kind = np.float32 if name == "targets" and self.soft else values.dtype
                    arrays[name] = np.empty((rows, *values.shape[1:]), dtype=kind, order=order)
                size = len(values)
                arrays[name][start : start + size] = values
            start += size
        if start != rows:
            raise InputError(f"{self.path} must hold {rows} rows, as it claims; it holds {start}.")
        return Batch()._replace(**arrays)


def present(values: Array | None) -> Array:
    """Return ``values``, which cannot be None because the column was selected."""
    assert values is not None
    return values


def needs_columns(subject: str, num_labels: int, purpose: str) -> InputError:
    """Return the error about work that needs one column per label."""
    return InputError(
        f"{purpose} needs one column per label; {subject} the most probable labels of each row, of "
        f"{num_labels:,}."
    )


def row_index(rows: Rows) -> slice | Array:
    """Return ``rows`` as a numpy index: a slice, indices or a mask."""
    if isinstance(rows, slice):
        return rows
    if isinstance(rows, (int, np.integer)):
        raise InputError(f"rows must be a slice, indices or a mask; got {rows!r}. Use [{rows}].")
    chosen = to_numpy(rows)
    return chosen if chosen.size else chosen.astype(np.intp)  # numpy reads [] as floats


def joined(batches: Sequence[Predictions]) -> Predictions:
    """Return the rows of all batches of a dataset in one table."""
    first = batches[0]
    matrices = {}
    for name, fill in (("probabilities", 0), ("scores", 0), ("targets", -1), ("top", NOTHING)):
        each = [getattr(batch, name) for batch in batches]
        matrices[name] = None if each[0] is None else stacked(each, fill)
    truth = [batch.all_targets for batch in batches if batch.all_targets is not None]
    ids = np.concatenate([batch.ids for batch in batches])
    return replace(
        first, ids=ids, all_targets=stacked_targets(truth) if truth else None, **matrices
    )
