"""What an engine does, and the one that does it on this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from credibly import metrics
from credibly.checks import choice
from credibly.metrics import RankPlan
from credibly.predictions import Dataset
from credibly.predictions.shard import Piece, PieceReader
from credibly.types import Array

State = Mapping[str, Array]
Work = Callable[[Piece, PieceReader], State]
Advance = Callable[[float], None]


class Tally(Protocol):
    """Sums over rows: ``add`` of the states of all pieces gives the state of the dataset."""

    def update(self, batch: Any, first_row: int) -> None:
        """Add rows (``Predictions``); the first has this number."""
        ...

    def state(self) -> dict[str, Array]:
        """Return the sums as arrays."""
        ...

    def add(self, state: State) -> None:
        """Add the sums of other rows."""
        ...


T = TypeVar("T", bound=Tally)


class Engine(ABC):
    """Runs work over the pieces of a dataset; results do not depend on which worker did what."""

    @abstractmethod
    def tally(
        self,
        dataset: Dataset,
        tally: T,
        reader: PieceReader | None = None,
        advance: Advance = lambda share: None,
    ) -> T:
        """Add all rows of the dataset to ``tally`` and return it.

        Args:
            dataset: the predictions.
            tally: the sums, still empty.
            reader: reads the pieces; by default all columns of the dataset.
            advance: called with the share of the work done since its last call.
        """

    @abstractmethod
    def each(self, count: int, work: Callable[[int], State], where: str) -> list[State]:
        """Return what ``work`` returns for 0, 1, …, ``count`` − 1; ``where`` is named in errors."""

    def run(self, dataset: Dataset, work: Work) -> list[State]:
        """Return what ``work`` returns for each piece, in the order of the pieces."""
        pieces, reader = dataset.pieces(), dataset.piece_reader
        return self.each(len(pieces), lambda place: work(pieces[place], reader), str(dataset.path))

    @abstractmethod
    def ranked_totals(self, dataset: Dataset, plan: RankPlan) -> Array:
        """Return Σ target × precision of each label: ``metrics.ranked_total`` over its ranges."""

    def check_ids(self, dataset: Dataset) -> None:
        """Raise if an id is missing or two are alike."""
        dataset.check_ids(trust_writer=True)


class Here(Engine):
    """This machine, one piece after the other.

    Example:
        >>> Here()
        Here()
    """

    def __repr__(self) -> str:
        return "Here()"

    def tally(
        self,
        dataset: Dataset,
        tally: T,
        reader: PieceReader | None = None,
        advance: Advance = lambda share: None,
    ) -> T:
        reader = reader or dataset.piece_reader
        for piece in dataset.pieces():
            add_piece(tally, piece, reader)
            advance(piece.rows / dataset.num_rows)
        return tally

    def each(self, count: int, work: Callable[[int], State], where: str) -> list[State]:
        return [work(place) for place in range(count)]

    def ranked_totals(self, dataset: Dataset, plan: RankPlan) -> Array:
        totals = np.zeros(len(dataset.labels))
        what = "scores" if dataset.has_scores else "probabilities"
        for label, name in enumerate(dataset.labels):
            for part in range(plan.num_ranges(label)):
                runs = [
                    plan.select(label, part, values, targets)
                    for values, targets in dataset.column_batches(name, what)
                ]
                values, targets = (np.concatenate(each) for each in zip(*runs, strict=True))
                above = plan.above(label, part)
                totals[label] += metrics.ranked_total(values, targets, *above)
        return totals


def add_piece(tally: Tally, piece: Piece, reader: PieceReader) -> None:
    """Add the rows of a piece to a tally."""
    for first_row, batch in reader.batches(piece):
        tally.update(batch, first_row)


def open_engine(name: str = "duckdb", session: object = None) -> Engine:
    """Return an engine by its name on the command line.

    Args:
        name: ``"duckdb"`` (this machine) or ``"spark"``.
        session: a Spark session to use; one is started otherwise.

    Example:
        >>> open_engine("duckdb")
        Here()
    """
    choice("engine", name, ("duckdb", "spark"))
    if name == "duckdb":
        return Here()
    from credibly.engines.session import spark_session
    from credibly.engines.spark import SparkEngine

    return SparkEngine(spark_session() if session is None else session)
