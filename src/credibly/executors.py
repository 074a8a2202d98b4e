"""Choose where the work over the shards of a predictions dataset runs: this machine or Spark.

    cr.evaluate("shards/", executor="spark")            # or "local", or Spark(session)

A computation is written once, as an accumulator (``update``, ``state``, ``merge``), and runs on
any executor. Workers read the files themselves, with the reader that checks every value. They must
see the files under the same path as this process.
"""

from __future__ import annotations

import io
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from tempfile import TemporaryFile
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from credibly.checks import InputError, choice
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.ranking import RankPlan
from credibly.predictions import Dataset, Predictions
from credibly.predictions.shard import Piece
from credibly.predictions.table import PieceReader
from credibly.types import Array, JsonObject

__all__ = ["Spark"]

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

    def each(
        self, count: int, work: Callable[[int], State], where: str, advance: Advance = unseen
    ) -> list[State]:
        """Return ``work(0)``, …, ``work(count - 1)`` as a list; errors name ``where``."""
        found = []
        for index in range(count):
            found.append(work(index))
            advance(1 / count)
        return found

    def label_totals(self, dataset: Dataset, plan: RankPlan, advance: Advance = unseen) -> Array:
        """Return the totals of each label's ranges, summed over all rows: (labels, TOTALS)."""
        labels, truth = dataset.labels, np.float32 if dataset.soft else np.int8
        what = "scores" if dataset.has_scores else "probabilities"
        whole = plan.total_ranges == len(labels)  # the values of some labels over all rows fit
        width = max(1, COLUMN_VALUES // dataset.num_rows) if whole else 1
        starts = range(0, len(labels), width)

        def work(index: int) -> State:
            first = starts[index]
            if whole:
                values, targets = dataset.columns(labels[first : first + width], what)
                assert targets is not None
                return {"totals": plan.totals(first, 0, values, targets)}
            ranges = _ranges(dataset.column_batches(labels[first], what), plan, first, truth)
            parts = [plan.totals(first, part, *each) for part, each in enumerate(ranges)]
            return {"totals": np.sum(parts, axis=0)}

        states = self.each(len(starts), work, str(dataset.path), advance)
        return np.concatenate([state["totals"] for state in states])

    def check_ids(self, dataset: Dataset) -> None:
        """Raise if an id is missing or occurs twice."""
        dataset.check_ids(trust_writer=dataset.num_rows > ROWS_COMPARED)


def _ranges(
    batches: Iterator[tuple[Array, Array]], plan: RankPlan, label: int, truth: type
) -> Iterator[tuple[Array, Array]]:
    """Yield the known values of each range of a label and their targets; they wait on disk."""
    pair = np.dtype([("value", np.float32), ("target", truth)])
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(plan.num_ranges(label))]
        for values, targets in batches:
            for part, file in enumerate(files):
                mine, known = plan.select(label, part, values, targets)
                pairs = np.empty(len(mine), pair)
                pairs["value"], pairs["target"] = mine, known
                file.write(pairs.tobytes())
        for file in files:
            file.seek(0)
            pairs = np.frombuffer(file.read(), pair)[:, None]
            yield pairs["value"].copy(), pairs["target"].copy()


# Spark -------------------------------------------------------------------------------------------

SparkObject: TypeAlias = Any
"""A session or a frame of PySpark, which need not be installed."""
Records = Iterator["pa.RecordBatch"]
Task = Callable[[Records], Records]
_RECORD = "place int, state binary, error string"
"""What every task returns: the state of an accumulator, or the message of an error."""

_ARROW_RECORD = pa.schema([("place", pa.int32()), ("state", pa.binary()), ("error", pa.string())])
_MERGE_FROM = 16
"""From so many states on, workers merge them before the driver does."""


def file_address(file: str) -> str:
    """Return the address of a file of this machine, for ``spark.read``.

    Example:
        >>> file_address("/data/part [1].parquet")
        'file:///data/part \\\\[1\\\\].parquet'
    """
    # Spark reads a path as a glob. A backslash before a special character makes it a plain one.
    plain = "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in os.path.abspath(file))
    return f"file://{plain}"


def spark_session() -> SparkObject:
    """Return the Spark session of this process, or start one.

    ``PYSPARK_SUBMIT_ARGS`` or ``SPARK_CONF_DIR`` choose a cluster; by default the session runs on
    this machine. Workers use the Python of ``PYSPARK_PYTHON``, by default the one of this process.

    Raises:
        InputError: if PySpark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            "Spark must find PySpark; it is not installed. "
            "Run `pip install 'credibly[spark]'`, or use `executor='local'` (`--engine local`)."
        ) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        builder = SparkSession.builder.appName("credibly")
        return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    except Exception as error:  # py4j and Spark raise their own types, also if Java is missing
        raise InputError(
            f"Spark must start; {str(error).splitlines()[0]} It needs Java 17 or newer "
            "(`java -version`); `executor='local'` (`--engine local`) needs none."
        ) from error


class Spark(Executor):
    """The workers of a Spark cluster, which see the files under the same path as this process.

    A task reads one shard (some row groups of one file). Its result depends on that shard alone,
    so Spark can repeat the task of a worker that is lost.

    Args:
        session: a Spark session; by default a new one is started.
    """

    local = False

    def __init__(self, session: SparkObject = None) -> None:
        self.session = spark_session() if session is None else session

    def _add(
        self, dataset: Dataset, reader: PieceReader, accumulator: A, feed: Feed[A], advance: Advance
    ) -> None:
        shards = dataset.pieces()
        task = _accumulate_task(shards, reader, accumulator, feed)
        frame, count = self._tasks(len(shards), task), len(shards)
        while count >= _MERGE_FROM:
            count = math.isqrt(count)
            frame = _mapped(frame.repartition(count), _merge_task(accumulator))
        for row in self._collect(frame, str(dataset.path)):
            accumulator.merge(_unpack(row.state))
        advance(1.0)

    def each(
        self, count: int, work: Callable[[int], State], where: str, advance: Advance = unseen
    ) -> list[State]:
        frame = self._tasks(count, _work_task(work))
        rows = sorted(self._collect(frame, where), key=lambda row: row.place)
        advance(1.0)
        return [_unpack(row.state) for row in rows]

    def check_ids(self, dataset: Dataset) -> None:
        if dataset.ids_compared:
            return
        addresses = [file_address(str(file)) for file in dataset.files]
        ids = self.session.read.parquet(*addresses).select("id")
        found = ids.groupBy("id").count().where("count > 1 OR id IS NULL").limit(1).collect()
        if found and found[0].id is None:
            raise InputError(f"{dataset.path}: every row must have an id; some row has none.")
        if found:
            raise InputError(
                f"{dataset.path}: ids must be different; {found[0].id!r} appears "
                f"{found[0]['count']} times. Drop one of the rows or change an id."
            )

    def _tasks(self, count: int, task: Task) -> SparkObject:
        """Return a frame of ``count`` tasks."""
        return _mapped(self.session.range(0, count, 1, count), task)

    def _collect(self, frame: SparkObject, where: str) -> list[SparkObject]:
        try:
            rows = frame.collect()
        except Exception as error:  # py4j and Spark raise their own types
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise InputError(
                f"{where} could not be read by Spark; {lines[-1] if lines else error}"
            ) from error
        for row in rows:
            if row.error is not None:
                raise InputError(row.error)
        return rows


def open_executor(executor: str | Executor = "local") -> Executor:
    """Return the executor with this name; return an executor unchanged.

    Args:
        executor: ``"local"``, ``"spark"`` (which starts a session), or an executor.

    Example:
        >>> open_executor("local").local
        True
    """
    if isinstance(executor, Executor):
        return executor
    kinds = {"local": Executor, "spark": Spark}
    return kinds[choice("executor", executor, tuple(kinds))]()


def _mapped(frame: SparkObject, task: Task) -> SparkObject:
    """Return ``frame.mapInArrow`` without its warning about pandas, which it does not use.

    An input error becomes a last record with its message. Spark reports all other errors.
    """

    def guarded(records: Records) -> Records:
        try:
            yield from task(records)
        except InputError as error:
            yield _record(None, error=str(error))
        except FileNotFoundError as error:
            reason = f"every worker must see the files under the same path; {error}."
            yield _record(None, error=reason)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return frame.mapInArrow(guarded, _RECORD)


# Code that runs on the workers. Each function returns a function that Spark sends to them. -------


def _accumulate_task(
    shards: list[Piece], reader: PieceReader, accumulator: A, feed: Feed[A]
) -> Task:
    def task(records: Records) -> Records:
        mine = deepcopy(accumulator)
        for index in _indices(records):
            for first_row, batch in reader.batches(shards[index]):
                feed(mine, batch, first_row)
        yield _record(mine.state())

    return task


def _merge_task(accumulator: Accumulator) -> Task:
    def task(records: Records) -> Records:
        mine, some = deepcopy(accumulator), False
        for row in _rows(records):
            mine.merge(_unpack(row["state"]))
            some = True
        if some:
            yield _record(mine.state())

    return task


def _work_task(work: Callable[[int], State]) -> Task:
    def task(records: Records) -> Records:
        for index in _indices(records):
            yield _record(work(index), index)

    return task


def _indices(records: Records) -> Iterator[int]:
    for record in records:
        yield from record.column(0).to_pylist()


def _rows(records: Records) -> Iterator[JsonObject]:
    """Yield the rows of the previous step; stop with an error at the first row that failed."""
    for record in records:
        for row in record.to_pylist():
            if row["error"] is not None:
                raise InputError(row["error"])
            yield row


def _record(state: State | None, place: int = 0, error: str | None = None) -> pa.RecordBatch:
    packed = None if state is None else _pack(state)
    row = {"place": place, "state": packed, "error": error}
    return pa.RecordBatch.from_pylist([row], _ARROW_RECORD)


def _pack(state: State) -> bytes:
    """Return arrays of numbers or text as bytes."""
    arrays: dict[str, Any] = {name: np.asarray(each) for name, each in state.items()}
    assert not any(each.dtype.hasobject for each in arrays.values())
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _unpack(packed: bytes) -> dict[str, Array]:
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return dict(arrays)
