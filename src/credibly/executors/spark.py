"""Run on Spark: one task per shard, and the states of accumulators merged in steps."""

from __future__ import annotations

import io
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from credibly.checks import InputError
from credibly.executors.executor import (
    A,
    Advance,
    Executor,
    Feed,
    State,
    unseen,
)
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.ranking import TOTALS, RankPlan
from credibly.predictions import Dataset
from credibly.predictions.shard import Piece
from credibly.predictions.table import PieceReader
from credibly.types import Array, JsonObject

SparkObject: TypeAlias = Any
"""A session or a frame of PySpark, which need not be installed."""
Records = Iterator["pa.RecordBatch"]
Task = Callable[[Records], Records]
_RECORD = "label int, part int, state binary, error string"
"""What every task returns: the state of an accumulator, or the message of an error."""

_ARROW_RECORD = pa.schema(
    [("label", pa.int32()), ("part", pa.int32()), ("state", pa.binary()), ("error", pa.string())]
)
_MERGE_FROM = 16
"""From so many states on, workers merge them before the driver does."""
_PARTITIONS_LIMIT = 2000
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


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

    def each(self, count: int, work: Callable[[int], State], where: str) -> list[State]:
        frame = self._tasks(count, _work_task(work))
        rows = sorted(self._collect(frame, where), key=lambda row: row.label)
        return [_unpack(row.state) for row in rows]

    def label_totals(self, dataset: Dataset, plan: RankPlan, advance: Advance = unseen) -> Array:
        shards = dataset.pieces()
        with self._small_batches():
            frame = self._tasks(len(shards), _split_task(shards, dataset.piece_reader, plan))
            count = min(plan.total_ranges, _PARTITIONS_LIMIT, max(2, 4 * len(shards)))
            frame = frame.repartition(count, "label", "part").sortWithinPartitions("label", "part")
            ranked = _mapped(frame, _rank_task(plan))
            rows = self._collect(ranked, str(dataset.path))
        totals = np.zeros((len(dataset.labels), TOTALS))
        for row in sorted(rows, key=lambda row: (row.label, row.part)):
            totals[row.label] += _unpack(row.state)["totals"]
        advance(1.0)
        return totals

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

    @contextmanager
    def _small_batches(self) -> Iterator[None]:
        """Send small batches to Python: one row of a sort can hold a megabyte."""
        before = self.session.conf.get(_BATCH_ROWS)
        self.session.conf.set(_BATCH_ROWS, 32)
        try:
            yield
        finally:
            self.session.conf.set(_BATCH_ROWS, before)


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


def _split_task(shards: list[Piece], reader: PieceReader, plan: RankPlan) -> Task:
    def task(records: Records) -> Records:
        for index in _indices(records):
            for label, part, run in _runs(shards[index], reader, plan):
                yield _record(run, label, part)

    return task


def _runs(shard: Piece, reader: PieceReader, plan: RankPlan) -> Iterator[tuple[int, int, State]]:
    """Yield the values and targets of a shard, by label and range."""
    pairs = [rows.ranked() for _, rows in reader.batches(shard)]
    values_of, targets_of = (np.concatenate(each) for each in zip(*pairs, strict=True))
    for label in range(len(reader.labels)):
        values, targets = values_of[:, label], targets_of[:, label]
        for part in range(plan.num_ranges(label)):
            mine, truth = plan.select(label, part, values, targets)
            if len(mine):
                yield label, part, {"values": mine, "targets": truth}


def _rank_task(plan: RankPlan) -> Task:
    def task(records: Records) -> Records:
        key, runs = None, []
        for row in _rows(records):
            if key is not None and key != (row["label"], row["part"]):
                yield _ranked(key, runs, plan)
                runs = []
            key = row["label"], row["part"]
            runs.append(_unpack(row["state"]))
        if key is not None:
            yield _ranked(key, runs, plan)

    return task


def _ranked(key: tuple[int, int], runs: list[State], plan: RankPlan) -> pa.RecordBatch:
    values, targets = (
        np.concatenate([run[name] for run in runs])[:, None] for name in ("values", "targets")
    )
    return _record({"totals": plan.totals(*key, values, targets)[0]}, *key)


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


def _record(
    state: State | None, label: int = 0, part: int = 0, error: str | None = None
) -> pa.RecordBatch:
    packed = None if state is None else _pack(state)
    row = {"label": label, "part": part, "state": packed, "error": error}
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
