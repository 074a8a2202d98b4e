"""The base class of executors. It runs the work over the shards of a dataset on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from credibly.metrics.accumulators import Accumulator
from credibly.metrics.ranking import TOTALS, RankPlan
from credibly.predictions import Dataset, Predictions
from credibly.predictions.table import PieceReader
from credibly.types import Array

State = Mapping[str, Array]
Advance = Callable[[float], None]

ROWS_COMPARED = 2**22
"""Past so many rows, ids that the writer of a file has compared are not compared again."""
COLUMN_VALUES = 2**24
"""Values of some labels over all rows that are held at once; with copies to sort, 0.3 GB."""


A = TypeVar("A", bound=Accumulator)
Feed = Callable[[A, Predictions, int], None]
"""Called with an accumulator, rows, and the number of the first row; updates the accumulator."""


def unseen(share: float) -> None:
    """Show no progress."""


class Executor:
    """Run the work on this machine, one shard after the other.

    Example:
        >>> Executor().each(3, lambda index: {"square": np.array(index**2)}, "squares")[2]
        {'square': array(4)}
    """

    local = True
    """Whether the work runs in this process, which can then also write one file of all rows."""

    def accumulate(
        self,
        rows: Dataset | Predictions,
        accumulator: A,
        feed: Feed[A],
        advance: Advance = unseen,
        labels: Sequence[str] | None = None,
    ) -> A:
        """Add all rows to ``accumulator`` and return it.

        Args:
            rows: the predictions; those in memory are never sent to workers.
            accumulator: an empty accumulator.
            feed: updates an accumulator with a batch of rows.
            advance: called with the share of the work done since the last call.
            labels: the labels that are read, if not all.
        """
        if isinstance(rows, Predictions):
            feed(accumulator, rows, 0)
        else:
            reader = rows.piece_reader if labels is None else rows.piece_reader.of_labels(labels)
            self._add(rows, reader, accumulator, feed, advance)
        return accumulator

    def _add(
        self, dataset: Dataset, reader: PieceReader, accumulator: A, feed: Feed[A], advance: Advance
    ) -> None:
        for shard in dataset.pieces():
            for first_row, batch in reader.batches(shard):
                feed(accumulator, batch, first_row)
                advance(len(batch) / dataset.num_rows)

    def each(self, count: int, work: Callable[[int], State], where: str) -> list[State]:
        """Return ``work(0)``, …, ``work(count - 1)`` as a list; errors name ``where``."""
        return [work(index) for index in range(count)]

    def label_totals(self, dataset: Dataset, plan: RankPlan, advance: Advance = unseen) -> Array:
        """Return the totals of each label's ranges, summed over all rows: (labels, TOTALS)."""
        labels, totals = dataset.labels, np.zeros((len(dataset.labels), TOTALS))
        what = "scores" if dataset.has_scores else "probabilities"
        if plan.total_ranges == len(labels):  # the values of some labels over all rows at a time
            width = max(1, COLUMN_VALUES // dataset.num_rows)
            for first in range(0, len(labels), width):
                values, targets = dataset.columns(labels[first : first + width], what)
                assert targets is not None
                totals[first : first + width] = plan.totals(first, 0, values, targets)
                advance(values.shape[1] / len(labels))
            return totals
        for label, name in enumerate(labels):
            for part in range(plan.num_ranges(label)):
                runs = [
                    plan.select(label, part, values, targets)
                    for values, targets in dataset.column_batches(name, what)
                ]
                column = (np.concatenate(each)[:, None] for each in zip(*runs, strict=True))
                totals[label] += plan.totals(label, part, *column)[0]
            advance(1 / len(labels))
        return totals

    def check_ids(self, dataset: Dataset) -> None:
        """Raise if an id is missing or occurs twice."""
        dataset.check_ids(trust_writer=dataset.num_rows > ROWS_COMPARED)
