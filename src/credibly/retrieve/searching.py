"""Search predictions by SQL in DuckDB, or batch by batch on any executor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from credibly.checks import InputError, whole_number
from credibly.executors import Executor, open_executor
from credibly.metrics.accumulators import Accumulator, Accumulators, BestRows
from credibly.predictions import Dataset, Predictions
from credibly.predictions.file_schema import PROBABILITY, TRUTH
from credibly.predictions.shard import identity
from credibly.retrieve import sql
from credibly.retrieve.answer import Answer, Hit, conditions, holds
from credibly.retrieve.index import evaluate_rows
from credibly.retrieve.joint.model import Joint
from credibly.retrieve.query import Diagram, Query, as_query, diagram, evaluate
from credibly.targets import allowed
from credibly.types import FilePath


def search(
    path: FilePath | Predictions,
    query: str | Query,
    *,
    top: int = 20,
    joint: Joint | None = None,
    executor: str | Executor = "local",
    partial: bool = False,
) -> Answer:
    """Search a predictions file, a folder of shards or a table for a query.

    Args:
        path: a Parquet file or a folder of Parquet files, or predictions in memory (for many
            queries, make an ``Index``).
        query: text (see ``parse``) or a ``Query``.
        top: number of rows to return.
        joint: a fitted joint model, for labels that depend on each other. The search then reads
            all labels; for many queries, make an ``Index``.
        executor: ``"local"`` (DuckDB), ``"spark"`` or ``Spark(session)``. All give the same ids and
            probabilities.
        partial: whether a folder may lack shards; by default that is an error.

    Returns:
        The best rows, most probable first, and the expected number of hits in all rows. If rows
        store only their most probable labels, other labels have probability 0. Rows with
        probability 0 are then not listed.

    Raises:
        InputError: if the query or the predictions cannot be used; the message says why.
        FileNotFoundError: if there is nothing at ``path``.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.9, 0.2], [0.8, 0.7]], labels=["fork", "knife"], ids=["a", "b"])
        >>> search(predictions, "+fork -knife", top=1).ids
        ['a']
    """
    top, worker = whole_number("top", top, 1), open_executor(executor)
    if isinstance(path, Predictions):
        return _by_batches(path, query, top, joint, worker)
    if joint is not None or not worker.local:
        dataset = Dataset(path, partial=partial)
        if not dataset.ids_compared:
            worker.check_ids(dataset)
        return _by_batches(dataset, query, top, joint, worker)
    dataset, sources = sql.open_files(str(path), partial, identity(path))
    if not dataset.every_label:
        return _by_batches(dataset, query, top, None, worker)
    asked = as_query(query, dataset.labels)
    compiled = diagram(asked)
    for name in compiled.labels:
        if "\0" in name:
            raise InputError(
                f"{path}: a label must not hold a zero byte to be searched; got {name!r}."
            )
    return _by_sql(asked, compiled, dataset, sql.statements(compiled, sources, top))


# Batch by batch -----------------------------------------------------------------------------------


def _by_batches(
    rows: Predictions | Dataset, query: str | Query, top: int, joint: Joint | None, worker: Executor
) -> Answer:
    """Return the answer from batches of rows, on any executor and with any model of labels."""
    asked = as_query(query, rows.labels)
    found = diagram(asked)
    if joint is not None:
        rows.check_dense("a joint model")
        joint.check(rows.labels)
    labels = found.labels if joint is None and rows.every_label else None
    best = _Ranking(asked, found, top, joint)
    return worker.accumulate(rows, best, _Ranking.update, labels=labels).answer()


class _Ranking(Accumulators):
    """The best rows so far, and the sums over all rows."""

    def __init__(self, asked: Query, found: Diagram, top: int, joint: Joint | None) -> None:
        self.asked, self.found, self.joint = asked, found, joint
        self.best = BestRows(("-value", "id"), top)
        # Rows and their expected hits; rows with truth, their expected and real hits.
        self.total = Accumulator(total=np.zeros(5))

    def update(self, batch: Predictions, first_row: int) -> None:
        found, names = self.found, list(self.found.labels)
        rows = batch if self.joint is not None else batch.select(names)
        places = {name: place for place, name in enumerate(rows.labels)}
        columns = np.ascontiguousarray(rows.probabilities.T)
        values = np.broadcast_to(evaluate_rows(found, places, columns, self.joint), len(rows))
        own = [places[name] for name in names]
        truth = np.full((len(rows), len(names)), -1.0)
        if rows.targets is not None:
            truth = rows.targets[:, own].astype(np.float64)
        known = ((truth == 0) | (truth == 1)).all(axis=1)
        real = known & (np.broadcast_to(evaluate(found, list(truth.T)), len(rows)) == 1)
        self.total.sums["total"] += [
            len(rows),
            values.sum(),
            known.sum(),
            values[known].sum(),
            real.sum(),
        ]
        listed = (values > 0) | batch.every_label
        if not found.impossible:
            kept = {"value": values, "id": np.asarray(rows.ids, dtype=str), "truth": truth}
            kept["chance"] = rows.probabilities[:, own]
            self.best.update({name: each[listed] for name, each in kept.items()})

    def answer(self) -> Answer:
        """Return the best rows and the sums."""
        kept, each = self.best.columns, conditions(self.asked, self.found.labels)
        columns = [kept[name].tolist() for name in ("id", "value", "chance", "truth") if kept]
        hits = [
            Hit(name, value, each(chance), holds(self.found, truth))
            for name, value, chance, truth in zip(*columns, strict=True)
        ]
        sums = self.total.sums["total"].tolist()
        return Answer.of_sums(self.asked, hits, sums, contradiction=self.found.impossible)


# By SQL -------------------------------------------------------------------------------------------


def _by_sql(
    asked: Query, compiled: Diagram, dataset: Dataset, statements: sql.Statements
) -> Answer:
    where = dataset.path
    rows, bad, mass, bad_truth, expected, *known = sql.run(where, statements.totals)[0]
    if rows != dataset.num_rows:
        raise InputError(
            f"{where} must have {dataset.num_rows} rows with different ids; {rows} "
            "were found. If a file was replaced meanwhile, search again."
        )
    if bad or (mass is not None and math.isnan(mass)):
        raise InputError(_first_bad(dataset, statements, PROBABILITY, int(bad or 0)))
    if bad_truth:
        raise InputError(_first_bad(dataset, statements, TRUTH, int(bad_truth)))
    best = statements.best(known.pop() if statements.bounded else None)
    hits = []
    if not compiled.impossible:
        each = conditions(asked, compiled.labels)
        for name, probability, *rest in sql.run(where, best):
            real = rest.pop(0) if statements.truth else None
            truth = None if real is None else real == 1
            hits.append(Hit(name, float(probability), each([float(x) for x in rest]), truth))
        _check_hits(hits, where)
    sums = [rows, expected or 0.0, *(known if statements.truth else (0, 0.0, 0))]
    ran = (best, statements.totals)
    return Answer.of_sums(asked, hits, sums, contradiction=compiled.impossible, sql=ran)


def _check_hits(hits: Sequence[Hit], where: object) -> None:
    """Raise if a row has no id or a duplicate one; the search relied on the writer's check."""
    seen: set[object] = set()
    for hit in hits:
        if hit.id is None:
            raise InputError(f"{where}: every row must have an id; some row has none.")
        if hit.id in seen:
            raise InputError(
                f"{where}: ids must be different; {hit.id!r} appears twice. Drop one of the rows "
                "or change an id."
            )
        seen.add(hit.id)


def _first_bad(dataset: Dataset, statements: sql.Statements, prefix: str, count: int) -> str:
    """Return the error message about the first row with an invalid value."""
    letter = "p" if prefix == PROBABILITY else "y"
    must = "probabilities must lie in [0, 1]"
    if prefix == TRUTH:
        must = f"targets must be {allowed()}"
    for place, label in enumerate(statements.labels):
        good = sql.good([place]) if prefix == PROBABILITY else sql.good_truth([place])
        first = (
            f"SELECT id, {letter}{place} FROM {statements.step} "
            f"WHERE CASE WHEN {good} THEN 0 ELSE 1 END = 1 ORDER BY id LIMIT 1"
        )
        rows = sql.run(dataset.path, f"{statements.scored}\n{first}")
        if rows:
            name, value = rows[0]
            others = f" ({count} such rows)" if count > 1 else ""
            got = "nothing" if value is None else "NaN" if math.isnan(value) else value
            return (
                f"{dataset.path}: {must}; got {got} in column {prefix + label!r} of the row with "
                f"id {name!r}{others}. Predict again, or drop those rows."
            )
    dataset.columns(list(statements.labels))  # DuckDB may not find NaN in a WHERE clause
    return f"{dataset.path}: {must}; some of {list(statements.labels)} are NaN."
