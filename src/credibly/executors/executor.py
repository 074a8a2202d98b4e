"""The base class of executors. It runs the work over the shards of a dataset on this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from credibly.checks import InputError, require
from credibly.memory_limits import not_for_lack_of_memory
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.ranking import TOTALS, RankPlan
from credibly.predictions import Dataset, Predictions
from credibly.predictions.file_schema import Schema
from credibly.predictions.shard import Shard, identity
from credibly.types import Array, FilePath

if TYPE_CHECKING:
    import duckdb

Row = tuple[Any, ...]
Run = Callable[[str], Sequence[Row]]


@dataclass(frozen=True)
class Source:
    """A table in SQL: its name or expression, its columns, and the columns that it renames."""

    table: str
    schema: Schema
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tables:
    """Predictions that an executor has opened for SQL.

    Attributes:
        where: path or address, for errors.
        labels: names of the labels.
        sources: tables that are searched as one; all files of a table have the same columns.
        run: runs a statement and returns its rows.
        dataset: the files, if they are on this machine.
        quote: the character that the dialect puts around identifiers.
        has_largest: whether the dialect has ``max(value, n)``, the n largest values.
    """

    where: str
    labels: Sequence[str]
    sources: Sequence[Source]
    run: Run
    dataset: Dataset | None
    quote: str = '"'
    has_largest: bool = True


def by_columns(dataset: Dataset) -> list[tuple[Schema, list[Path]]]:
    """Return the files of a dataset, grouped by their columns and the order of the columns."""
    groups: dict[tuple[str, ...], list[Shard]] = defaultdict(list)
    for shard in dataset.shards:
        kinds = (str(kind) for kind in shard.schema.types.values())
        groups[(*shard.schema.columns, *kinds)].append(shard)
    return [(shards[0].schema, [each.path for each in shards]) for shards in groups.values()]


@lru_cache(maxsize=4)
def duckdb_tables(path: str, partial: bool, files: tuple[object, ...]) -> Tables:
    """Return the predictions opened by DuckDB; ``files``, their identity, is part of the key."""
    del files
    dataset, sources = Dataset(path, partial=partial), []
    dataset.check_ids(trust_writer=True)

    def run(statement: str) -> Sequence[Row]:
        return _run(path, statement)

    for schema, shards in by_columns(dataset):
        table = _read_parquet(shards)
        sources.append(Source(table, schema, _names(run, table, schema)))
    return Tables(path, dataset.labels, sources, run, dataset)


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the database of this process."""
    require("search", "duckdb")
    import duckdb

    return duckdb.connect()  # in memory; opening a connection takes half as long as a search


def _run(path: str, statement: str) -> Sequence[Row]:
    connection = database().cursor()  # one per thread
    import duckdb

    try:
        return connection.execute(statement).fetchall()
    except duckdb.Error as error:
        not_for_lack_of_memory(error)
        raise InputError(
            f"{path} could not be searched; {str(error).splitlines()[0]} "
            "If a file was replaced meanwhile, search again."
        ) from error


def _read_parquet(files: Sequence[Path]) -> str:
    # DuckDB reads a path as a glob. Brackets around a special character make it a plain one.
    plain = ["".join(f"[{c}]" if c in "*?[" else c for c in str(file)) for file in files]
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in plain)
    # A folder may be called "id=5". Its name does not define a column.
    return f"read_parquet([{listed}], hive_partitioning = false)"


def _names(run: Run, table: str, schema: Schema) -> dict[str, str]:
    """Return DuckDB's names of the columns: it numbers columns that differ only by case."""
    if len({name.lower() for name in schema.columns}) == len(schema.columns):
        return {}
    described = run(f"DESCRIBE SELECT * FROM {table}")
    return {name: str(row[0]) for name, row in zip(schema.columns, described, strict=True)}


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

    one_file = True
    """Whether workers can write one file together; else each writes one of its own."""

    def accumulate(
        self, rows: Dataset | Predictions, accumulator: A, feed: Feed[A], advance: Advance = unseen
    ) -> A:
        """Add all rows to ``accumulator`` and return it.

        Args:
            rows: the predictions; those in memory are never sent to workers.
            accumulator: an empty accumulator.
            feed: updates an accumulator with a batch of rows.
            advance: called with the share of the work done since the last call.
        """
        if isinstance(rows, Predictions):
            feed(accumulator, rows, 0)
        else:
            self._add(rows, accumulator, feed, advance)
        return accumulator

    def _add(self, dataset: Dataset, accumulator: A, feed: Feed[A], advance: Advance) -> None:
        reader = dataset.piece_reader
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

    def tables(self, path: FilePath, *, partial: bool = False) -> Tables:
        """Return predictions opened for SQL."""
        if is_remote(path):
            raise InputError(f"{path} is an address; only `executor='spark'` reads those.")
        return duckdb_tables(str(path), partial, identity(path))


def is_remote(path: FilePath) -> bool:
    """Return whether ``path`` is an address (``s3a://…``, ``hdfs://…``) that only Spark reads.

    Example:
        >>> is_remote("s3a://bucket/parts"), is_remote("parts")
        (True, False)
    """
    return "://" in str(path)
