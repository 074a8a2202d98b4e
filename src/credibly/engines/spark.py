"""Spark does the work: a task per piece, states of tallies merged in steps."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import metrics
from credibly.checks import InputError
from credibly.engines.base import Advance, Engine, State, T, add_piece
from credibly.metrics import RankPlan
from credibly.predictions import Dataset
from credibly.predictions.shard import Piece, PieceReader
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa

Records = Iterator["pa.RecordBatch"]
_STATE = "state binary, error string"
_MERGE_FROM = 16
"""From so many states on, workers merge them before the driver does."""
_MOST_PARTITIONS = 2000
_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class SparkEngine(Engine):
    """Workers of a Spark cluster, which see the files under the same path as this process.

    A task reads one piece (some row groups of one file), and its result depends on that piece
    alone, so that Spark repeats the task of a worker that is lost.

    Args:
        session: a Spark session.
    """

    def __init__(self, session: Any) -> None:
        self.session = session

    def tally(
        self,
        dataset: Dataset,
        tally: T,
        reader: PieceReader | None = None,
        advance: Advance = lambda share: None,
    ) -> T:
        pieces, read = dataset.pieces(), reader or dataset.piece_reader
        frame = self._tasks(len(pieces), _tally_task(pieces, read, tally), _STATE)
        count = len(pieces)
        while count >= _MERGE_FROM:
            count = math.isqrt(count)
            frame = _mapped(frame.repartition(count), _merge_task(tally), _STATE)
        for row in self._collect(frame, str(dataset.path)):
            tally.add(_unpack(row.state))
        advance(1.0)
        return tally

    def each(self, count: int, work: Callable[[int], State], where: str) -> list[State]:
        frame = self._tasks(count, _work_task(work), f"place int, {_STATE}")
        rows = sorted(self._collect(frame, where), key=lambda row: row.place)
        return [_unpack(row.state) for row in rows]

    def ranked_totals(self, dataset: Dataset, plan: RankPlan) -> Array:
        pieces = dataset.pieces()
        runs = "label int, part int, run binary, error string"
        with self._small_batches():
            frame = self._tasks(len(pieces), _split_task(pieces, dataset.piece_reader, plan), runs)
            count = min(plan.total_ranges, _MOST_PARTITIONS, max(2, 4 * len(pieces)))
            frame = frame.repartition(count, "label", "part").sortWithinPartitions("label", "part")
            ranked = _mapped(
                frame, _rank_task(plan), "label int, part int, total double, error string"
            )
            rows = self._collect(ranked, str(dataset.path))
        totals = np.zeros(len(dataset.labels))
        for row in sorted(rows, key=lambda row: (row.label, row.part)):
            totals[row.label] += row.total
        return totals

    def check_ids(self, dataset: Dataset) -> None:
        """Compare ids on the cluster, unless the writer did."""
        if dataset.ids_compared:
            return
        from credibly.engines.session import file_address

        addresses = [file_address(str(file)) for file in dataset.files]
        ids = self.session.read.parquet(*addresses).select("id")
        found = ids.groupBy("id").count().where("count > 1 OR id IS NULL").limit(1).collect()
        if found and found[0].id is None:
            raise InputError(f"{dataset.path}: every row must have an id; some row has none.")
        if found:
            raise InputError(
                f"{dataset.path}: ids must differ; {found[0].id!r} is there "
                f"{found[0]['count']} times. Drop one of the rows or make the ids distinct."
            )

    def _tasks(self, count: int, task: Callable[[Records], Records], schema: str) -> Any:
        """Return a frame of ``count`` tasks."""
        return _mapped(self.session.range(0, count, 1, count), task, schema)

    def _collect(self, frame: Any, where: str) -> list[Any]:
        try:
            rows = frame.collect()
        except Exception as error:  # py4j and Spark raise types of their own
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
        """Let few rows travel at once: those of a sort hold up to a megabyte each."""
        before = self.session.conf.get(_RECORDS)
        self.session.conf.set(_RECORDS, 32)
        try:
            yield
        finally:
            self.session.conf.set(_RECORDS, before)


def _mapped(frame: Any, task: Callable[[Records], Records], schema: str) -> Any:
    """Return ``frame.mapInArrow``, without its warning about pandas, which takes no part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return frame.mapInArrow(task, schema)


# What runs on the workers. Each function returns one that Spark sends to them. -----------------


def _tally_task(
    pieces: list[Piece], reader: PieceReader, tally: Any
) -> Callable[[Records], Records]:
    def task(records: Records) -> Records:
        mine = deepcopy(tally)
        for place in _places(records):
            error = _attempt(lambda place=place: add_piece(mine, pieces[place], reader))
            if error is not None:
                yield _record(state=None, error=error)
                return
        yield _record(state=_pack(mine.state()), error=None)

    return task


def _merge_task(tally: Any) -> Callable[[Records], Records]:
    def task(records: Records) -> Records:
        mine, some = deepcopy(tally), False
        for record in records:
            for row in record.to_pylist():
                if row["error"] is not None:
                    yield _record(**row)
                    return
                mine.add(_unpack(row["state"]))
                some = True
        if some:
            yield _record(state=_pack(mine.state()), error=None)

    return task


def _work_task(work: Callable[[int], State]) -> Callable[[Records], Records]:
    def task(records: Records) -> Records:
        for place in _places(records):
            states: list[State] = []
            error = _attempt(lambda place=place, states=states: states.append(work(place)))
            yield _record(place=place, state=_pack(states[0]) if states else None, error=error)

    return task


def _split_task(
    pieces: list[Piece], reader: PieceReader, plan: RankPlan
) -> Callable[[Records], Records]:
    def task(records: Records) -> Records:
        for place in _places(records):
            found: list[tuple[int, int, bytes]] = []
            error = _attempt(
                lambda place=place, found=found: found.extend(_runs(pieces[place], reader, plan))
            )
            if error is not None:
                yield _record(label=0, part=0, run=None, error=error)
                return
            for label, part, run in found:
                yield _record(label=label, part=part, run=run, error=None)

    return task


def _runs(piece: Piece, reader: PieceReader, plan: RankPlan) -> Iterator[tuple[int, int, bytes]]:
    """Yield the values and targets of a piece, by label and range."""
    batches = list(reader.ranking(piece))
    values_of, targets_of = (np.concatenate(each) for each in zip(*batches, strict=True))
    for label in range(len(reader.labels)):
        values, targets = values_of[:, label], targets_of[:, label]
        for part in range(plan.num_ranges(label)):
            mine, truth = plan.select(label, part, values, targets)
            if len(mine):
                yield label, part, _pack({"values": mine, "targets": truth})


def _rank_task(plan: RankPlan) -> Callable[[Records], Records]:
    def task(records: Records) -> Records:
        key, runs = None, []
        for record in records:
            for row in record.to_pylist():
                if row["error"] is not None:
                    yield _record(label=0, part=0, total=0.0, error=row["error"])
                    return
                if key is not None and key != (row["label"], row["part"]):
                    yield _ranked(key, runs, plan)
                    runs = []
                key = row["label"], row["part"]
                runs.append(_unpack(row["run"]))
        if key is not None:
            yield _ranked(key, runs, plan)

    return task


def _ranked(key: tuple[int, int], runs: list[State], plan: RankPlan) -> pa.RecordBatch:
    values, targets = (
        np.concatenate([run[name] for run in runs]) for name in ("values", "targets")
    )
    total = metrics.ranked_total(values, targets, *plan.above(*key))
    return _record(label=key[0], part=key[1], total=total, error=None)


def _places(records: Records) -> Iterator[int]:
    for record in records:
        yield from record.column(0).to_pylist()


def _attempt(action: Callable[[], object]) -> str | None:
    """Return the message of an input that cannot be used; other errors are Spark's to report."""
    try:
        action()
    except InputError as error:
        return str(error)
    except FileNotFoundError as error:
        return f"every worker must see the files under the same path; {error}."
    return None


_TYPES = {
    "place": "int32",
    "label": "int32",
    "part": "int32",
    "total": "float64",
    "state": "binary",
    "run": "binary",
    "error": "string",
}


def _record(**cells: Any) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [pa.array([cell], pa.type_for_alias(_TYPES[name])) for name, cell in cells.items()]
    return pa.RecordBatch.from_arrays(columns, list(cells))


def _pack(state: State) -> bytes:
    """Return arrays of numbers and text as bytes."""
    arrays: dict[str, Any] = {name: np.asarray(each) for name, each in state.items()}
    assert not any(each.dtype.hasobject for each in arrays.values())
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _unpack(packed: bytes) -> dict[str, Array]:
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return dict(arrays)
