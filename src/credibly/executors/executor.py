"""What an executor does, and the one that does it on this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from credibly.checks import choice
from credibly.predictions import Dataset
from credibly.predictions.shard import Piece, PieceReader
from credibly.types import Array

State = Mapping[str, Array]
Advance = Callable[[float], None]
Feed = Callable[[Any, Any, int], None]
"""Called with an accumulator, rows, and the number of the first row; updates the accumulator."""

NAMES = ("local", "spark")
ROWS_COMPARED = 2**22
"""Past so many rows, ids that the writer of a file has compared are not compared again."""
COLUMN_VALUES = 2**24
"""Values of some labels over all rows that are held at once; with copies to sort, 0.3 GB."""


class Accumulator(Protocol):
    """What can be summed apart, sent as arrays, and merged."""

    def state(self) -> dict[str, Array]:
        """Return the sums as arrays."""
        ...

    def merge(self, state: State, /) -> None:
        """Add the sums of other rows."""
        ...


class Plan(Protocol):
    """How the values of each label are cut into ranges: ``metrics.ranges.RankPlan``."""

    @property
    def total_ranges(self) -> int: ...
    def num_ranges(self, label: int) -> int: ...
    def select(self, label: int, part: int, values: Array, targets: Array) -> Any: ...
    def totals(self, label: int, part: int, values: Array, targets: Array) -> Array: ...


A = TypeVar("A", bound=Accumulator)


class Executor(ABC):
    """Runs work over the shards of a dataset; results do not depend on which worker did what.

    Attributes:
        one_file: whether workers can write one file together; else each writes one of its own.
    """

    one_file: bool

    @abstractmethod
    def accumulate(
        self,
        dataset: Dataset,
        accumulator: A,
        feed: Feed,
        advance: Advance = lambda share: None,
    ) -> A:
        """Add all rows of the dataset to ``accumulator`` and return it.

        Args:
            dataset: the predictions.
            accumulator: still empty.
            feed: updates an accumulator with a batch of rows.
            advance: called with the share of the work done since its last call.
        """

    @abstractmethod
    def each(self, count: int, work: Callable[[int], State], where: str) -> list[State]:
        """Return what ``work`` returns for 0, 1, …, ``count`` − 1; ``where`` is named in errors."""

    def run(self, dataset: Dataset, work: Callable[[Piece, PieceReader], State]) -> list[State]:
        """Return what ``work`` returns for each shard, in their order."""
        shards, reader = dataset.pieces(), dataset.piece_reader
        return self.each(len(shards), lambda index: work(shards[index], reader), str(dataset.path))

    @abstractmethod
    def label_totals(
        self, dataset: Dataset, plan: Plan, advance: Advance = lambda share: None
    ) -> Array:
        """Return the totals of each label's ranges, added up, (labels, 2)."""

    @abstractmethod
    def check_ids(self, dataset: Dataset) -> None:
        """Raise if an id is missing or two are alike."""


class Local(Executor):
    """This machine, one shard after the other.

    Example:
        >>> Local()
        Local()
    """

    one_file = True

    def __repr__(self) -> str:
        return "Local()"

    def accumulate(
        self,
        dataset: Dataset,
        accumulator: A,
        feed: Feed,
        advance: Advance = lambda share: None,
    ) -> A:
        reader = dataset.piece_reader
        for shard in dataset.pieces():
            for first_row, batch in reader.batches(shard):
                feed(accumulator, batch, first_row)
                advance(len(batch) / dataset.num_rows)
        return accumulator

    def each(self, count: int, work: Callable[[int], State], where: str) -> list[State]:
        return [work(index) for index in range(count)]

    def label_totals(
        self, dataset: Dataset, plan: Plan, advance: Advance = lambda share: None
    ) -> Array:
        labels, totals = dataset.labels, np.zeros((len(dataset.labels), 2))
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
        dataset.check_ids(trust_writer=dataset.num_rows > ROWS_COMPARED)


def open_executor(executor: str | Executor = "local") -> Executor:
    """Return an executor by its name on the command line; an executor as it is.

    Args:
        executor: ``"local"``, ``"spark"`` (a session is started), or an executor.

    Example:
        >>> open_executor("local")
        Local()
    """
    if isinstance(executor, Executor):
        return executor
    if choice("executor", executor, NAMES) == "local":
        return Local()
    from credibly.executors.spark import Spark

    return Spark()
