"""Pieces of a dataset: some row groups of one file, which a worker reads on its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from credibly.checks import InputError
from credibly.predictions.dense import Predictions
from credibly.predictions.file_schema import PROBABILITY, SCORE, TRUTH
from credibly.predictions.shard import BATCH_ROWS, Batch, Selection, Shard, rows_at_once
from credibly.predictions.top_k import TopPredictions
from credibly.targets import UNKNOWN
from credibly.types import Array


class Piece(NamedTuple):
    """Some row groups of one file of a dataset.

    Attributes:
        index: place among the pieces of the dataset.
        path: of the file.
        first_group, last_group: its row groups, the last one not included.
        first_row: number of its first row in the dataset.
        rows: number of its rows.

    Example:
        >>> Piece(0, "p.parquet", 0, 2, first_row=0, rows=150_000).rows
        150000
    """

    index: int
    path: str
    first_group: int
    last_group: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class PieceReader:
    """Read pieces of a dataset, every value checked; small enough to be sent to a worker.

    Attributes:
        labels: names of the labels to read, in order.
        kinds: kinds of columns to read.
        soft: whether the truth of the dataset may lie between 0 and 1.
        top: whether the files hold the most probable labels of each row.
        batch_rows: how many rows to read at a time, at most.

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
        """Yield (number of the first row in the dataset, rows) of files with a column per label."""
        shard = self._shard(piece)
        lacks_truth = TRUTH in self.kinds and not shard.schema.has_targets
        kinds = [kind for kind in self.kinds if not (lacks_truth and kind == TRUTH)]
        rows = rows_at_once(self.batch_rows, len(self.labels))
        first, groups = piece.first_row, range(piece.first_group, piece.last_group)
        for each in shard.batches(Selection(self.labels, kinds, rows), groups=groups):
            batch = with_unknown(each) if lacks_truth else each
            assert batch.probabilities is not None
            assert batch.ids is not None
            truth = batch.targets
            if truth is not None and self.soft:
                truth = truth.astype(np.float32, copy=False)
            yield (
                first,
                Predictions(batch.probabilities, self.labels, batch.ids, truth, batch.scores),
            )
            first += len(batch.ids)

    def ranking(self, piece: Piece) -> Iterator[tuple[Array, Array]]:
        """Yield what ranks rows (scores where there are some, else probabilities) and the truth."""
        shard = self._shard(piece)
        kind = SCORE if SCORE in self.kinds else PROBABILITY
        kinds = [kind, TRUTH] if shard.schema.has_targets else [kind]
        groups = range(piece.first_group, piece.last_group)
        wanted = Selection(self.labels, kinds, rows_at_once(self.batch_rows, len(self.labels)))
        for each in shard.batches(wanted, groups=groups):
            batch = each if each.targets is not None else with_unknown(each)
            values = batch.scores if batch.probabilities is None else batch.probabilities
            assert values is not None
            assert batch.targets is not None
            yield values, batch.targets

    def top_batches(self, piece: Piece) -> Iterator[tuple[int, TopPredictions]]:
        """Yield the same of files with the most probable labels of each row."""
        first = piece.first_row
        groups = range(piece.first_group, piece.last_group)
        for batch in self._shard(piece).top_batches(self.batch_rows, groups):
            yield first, batch
            first += len(batch)

    def _shard(self, piece: Piece) -> Shard:
        shard = Shard(Path(piece.path))
        rows = sum(shard.group_rows[piece.first_group : piece.last_group])
        if rows != piece.rows:
            raise InputError(
                f"{piece.path} has changed since it was opened: {piece.rows} rows were expected in "
                f"its row groups {piece.first_group} to {piece.last_group - 1}, {rows} are there. "
                "Start again."
            )
        return shard


def with_unknown(batch: Batch) -> Batch:
    """Return the batch with truth that is unknown throughout."""
    values = batch.scores if batch.probabilities is None else batch.probabilities
    assert values is not None
    return batch._replace(targets=np.full(values.shape, UNKNOWN, dtype=np.int8))
