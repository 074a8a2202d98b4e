"""Search Parquet files directly: DuckDB on one machine, Spark on many, with the same statements."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.checks import InputError, choice, require
from credibly.executors import file_address, is_remote, spark_session
from credibly.predictions import Dataset, Predictions
from credibly.predictions.dataset import identity
from credibly.predictions.file_schema import PROBABILITY, TRUTH, Schema
from credibly.retrieve import sql
from credibly.retrieve.answer import Answer, Hit, checked_top, conditions
from credibly.retrieve.memory import Index
from credibly.retrieve.query.diagram import Diagram, diagram
from credibly.retrieve.query.formula import Query
from credibly.retrieve.query.parser import as_query
from credibly.targets import as_decoded

if TYPE_CHECKING:
    from credibly.retrieve.joint.model import Joint

Row = tuple[Any, ...]
Run = Callable[[str], list[Row]]


@dataclass(frozen=True)
class Opened:
    """Predictions that an engine has opened, and how it runs statements on them.

    Attributes:
        where: path or address, for errors.
        labels: names of the labels.
        sources: tables to search as one, in SQL; all files of one have the same columns.
        quote: the dialect's mark around identifiers.
        run: runs a statement and returns its rows.
        dataset: the files themselves, where they are on this machine.
        add_table: makes an Arrow table known by a name, where tables can be joined by position.
        add_file: makes a Parquet file known by a name, where tables are joined by id.
        has_largest: whether its SQL has ``max(value, n)``.
    """

    where: str
    labels: list[str]
    sources: list[sql.Source]
    quote: str
    run: Run
    dataset: Dataset | None = None
    add_table: Callable[[str, Any], object] | None = None
    add_file: Callable[[str, Path], object] | None = None
    has_largest: bool = False


def search(
    path: str | os.PathLike[str] | Predictions,
    query: str | Query,
    *,
    top: int = 20,
    engine: str = "duckdb",
    joint: Joint | None = None,
    session: object = None,
    partial: bool = False,
) -> Answer:
    """Rank the rows of a predictions file, of a folder of shards, or of a table, by a query.

    Args:
        path: a Parquet file or a folder of Parquet files; with Spark also any address its cluster
            reads; or predictions in memory (for many queries, make an ``Index``).
        query: text (see ``parse``) or a ``Query``.
        top: how many rows to return.
        engine: ``"duckdb"`` or ``"spark"``; both give the same ids and probabilities.
        joint: a fitted joint model, for labels that depend on each other.
        session: a Spark session to use; one on this machine is started otherwise.
        partial: whether a folder may lack shards; otherwise that is an error.

    Returns:
        The best rows, most probable first, and the number of hits to expect in all. Where rows
        hold their most probable labels, a label that a row does not hold has probability 0, and
        rows of probability 0 are not listed.

    Raises:
        InputError: if the query or the predictions cannot be used; says why.
        FileNotFoundError: if there is nothing at ``path``.
    """
    choice("engine", engine, ("duckdb", "spark"))
    top = checked_top(top)
    if isinstance(path, Predictions):
        return _search_table(path, query, top, joint)
    if not is_remote(path):
        dataset = _dataset(str(path), partial, identity(path))
        if dataset.top:
            return _search_table(dataset, query, top, joint)
    if engine == "spark":
        opened = _spark_engine(path, session, partial=partial)
    else:
        opened = _duckdb_engine(path, partial=partial)
    asked = as_query(query, opened.labels)
    compiled = diagram(asked)
    if joint is not None:
        joint.check(opened.labels)
        opened = _weighted(opened, joint, partial=partial)
    _check_names(compiled.labels if joint is None else opened.labels, opened.where)
    statements = sql.statements(
        compiled,
        opened.sources,
        quote=opened.quote,
        top=top,
        joint=joint,
        has_largest=opened.has_largest,
    )
    return _answer(asked, compiled, opened, statements)


def _search_table(
    source: Predictions | Dataset, query: str | Query, top: int, joint: Joint | None
) -> Answer:
    """Return the answer of an index of the labels that the query names."""
    held = isinstance(source, Dataset) or source.top is not None
    if joint is not None:
        source.check_dense("a joint model")
    asked = as_query(query, source.labels)
    names = list(dict.fromkeys(label for _, label, _ in conditions(asked)))
    labels = source.labels if joint is not None else names
    rows = source.read(labels) if isinstance(source, Dataset) else source.select(labels)
    index = Index(rows.probabilities, labels, rows.ids, as_decoded(rows.targets))
    answer = index.search(asked, top=top, joint=joint)
    hits = [hit for hit in answer.hits if hit.probability > 0 or not held]
    return replace(answer, hits=hits)


def _weighted(opened: Opened, joint: Joint, *, partial: bool) -> Opened:
    """Return the engine with the weights of its rows under ``joint``, where both have them."""
    if opened.dataset is None:
        return opened
    if opened.add_file is not None:
        return _with_stored_weights(opened, opened.add_file, joint)
    if opened.add_table is None:
        return opened
    import pyarrow as pa

    from credibly.retrieve.joint.row_weights import row_weights

    weights = row_weights(opened.where, joint, partial=partial)
    rows = {shard.path: shard.num_rows for shard in opened.dataset.shards}
    starts = dict(zip(rows, accumulate(rows.values(), initial=0), strict=False))
    sources = []
    for place, (source, (_, files)) in enumerate(
        zip(opened.sources, by_columns(opened.dataset), strict=True)
    ):
        own = [weights.slice(starts[file], rows[file]) for file in files]
        opened.add_table(f"credibly_weights_{place}", pa.concat_tables(own))
        sources.append(replace(source, weights=f"credibly_weights_{place}"))
    return replace(opened, sources=sources)


def _with_stored_weights(
    opened: Opened, add_file: Callable[[str, Path], object], joint: Joint
) -> Opened:
    """Return the engine with stored weights; without any, its statements compute them."""
    from credibly.retrieve.joint.row_weights import stored_row_weights

    stored = stored_row_weights(opened.where, joint)
    if stored is None:
        return opened
    add_file("credibly_weights", stored)
    sources = [
        replace(source, weights="credibly_weights", weights_by_id=True) for source in opened.sources
    ]
    return replace(opened, sources=sources)


def by_columns(dataset: Dataset) -> list[tuple[Schema, list[Path]]]:
    """Return the files of a dataset, those with the same columns in the same order together."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, shard in enumerate(dataset.shards):
        kinds = (str(kind) for kind in shard.schema.types.values())
        groups[(*shard.schema.columns, *kinds)].append(place)
    return [
        (dataset.shards[places[0]].schema, [dataset.files[place] for place in places])
        for places in groups.values()
    ]


def _check_names(labels: Sequence[str], where: str) -> None:
    for name in labels:
        if "\0" in name:
            raise InputError(
                f"{where}: a label must not hold a zero byte to be searched; got {name!r}."
            )


def _answer(asked: Query, compiled: Diagram, opened: Opened, statements: sql.Statements) -> Answer:
    truth = statements.truth
    rows, bad, mass, bad_truth, expected, *known = opened.run(statements.totals)[0]
    if opened.dataset is not None and rows != opened.dataset.num_rows:
        raise InputError(
            f"{opened.where} must have {opened.dataset.num_rows} rows with different ids; {rows} "
            "were found. If a file was replaced meanwhile, search again."
        )
    if bad or (mass is not None and math.isnan(mass)):
        raise InputError(_first_bad(opened, statements, PROBABILITY, int(bad or 0)))
    if bad_truth:
        raise InputError(_first_bad(opened, statements, TRUTH, int(bad_truth)))
    best = statements.best(known.pop() if statements.bounded else None)
    hits = []
    if not compiled.impossible:
        hits = [_hit(asked, compiled, statements, row) for row in opened.run(best)]
        _check_hits(hits, opened.where)
    known_rows = int(known[0] or 0) if truth else 0
    return Answer(
        query=asked,
        hits=hits,
        rows=int(rows),
        expected_hits=float(expected or 0.0),
        known_rows=known_rows,
        known_expected=float(known[1]) if known_rows else None,
        known_hits=int(known[2]) if known_rows else None,
        contradiction=compiled.impossible,
        sql=(best, statements.totals),
    )


def _check_hits(hits: Sequence[Hit], where: str) -> None:
    """Raise if a row has no id or shares it: the writer may have been trusted wrongly."""
    seen: set[Any] = set()
    for hit in hits:
        if hit.id is None:
            raise InputError(f"{where}: every row must have an id; some row has none.")
        if hit.id in seen:
            raise InputError(
                f"{where}: ids must differ; {hit.id!r} is there twice. Drop one of the rows or "
                "make the ids distinct."
            )
        seen.add(hit.id)


def _hit(asked: Query, compiled: Diagram, statements: sql.Statements, row: Row) -> Hit:
    values = iter(row)
    name, probability = next(values), float(next(values))
    file = next(values) if statements.paths else None
    real = next(values) if statements.truth else None
    present = dict(zip(compiled.labels, map(float, values), strict=True))
    each = {
        text: present[label] if wanted else 1.0 - present[label]
        for text, label, wanted in conditions(asked)
    }
    return Hit(name, probability, each, None if real is None else real == 1, file)


def _first_bad(opened: Opened, statements: sql.Statements, prefix: str, count: int) -> str:
    """Return the message about the first row that holds a value it must not hold."""
    letter = "p" if prefix == PROBABILITY else "y"
    must = "probabilities must lie in [0, 1]"
    if prefix == TRUTH:
        must = "targets must be 1 (present), 0 (absent), −1 (unknown) or soft in [0, 1]"
    for place, label in enumerate(statements.labels):
        good = sql.good([place]) if prefix == PROBABILITY else sql.good_truth([place])
        first = (
            f"SELECT id, {letter}{place} FROM {statements.step} "
            f"WHERE CASE WHEN {good} THEN 0 ELSE 1 END = 1 ORDER BY id LIMIT 1"
        )
        rows = opened.run(f"{statements.scored}\n{first}")
        if rows:
            name, value = rows[0]
            others = f" ({count} such rows)" if count > 1 else ""
            got = "nothing" if value is None else "NaN" if math.isnan(value) else value
            return (
                f"{opened.where}: {must}; got {got} in column {prefix + label!r} of the row with "
                f"id {name!r}{others}. Predict again, or drop those rows."
            )
    if opened.dataset is not None:  # NaN, which DuckDB may not see in a WHERE: read the columns
        opened.dataset.columns(list(statements.labels))
    return f"{opened.where}: {must}; some of {list(statements.labels)} are NaN."


# DuckDB ---------------------------------------------------------------------------------------


def _duckdb_engine(path: str | os.PathLike[str], *, partial: bool) -> Opened:
    if is_remote(path):
        raise InputError(f"{path} is an address; only `engine='spark'` reads those.")
    connection = _database().cursor()  # one per thread
    dataset, sources = _opened(str(path), partial, identity(path))
    run = _duckdb(path, connection)
    return Opened(
        str(path), dataset.labels, sources, '"', run, dataset, connection.register, has_largest=True
    )


@lru_cache(maxsize=4)
def _dataset(path: str, partial: bool, files: tuple[tuple[str, int, int, int], ...]) -> Dataset:
    """Return the dataset; the same files are opened once."""
    del files  # a part of the key: other files are another dataset
    return Dataset(path, partial=partial)


@lru_cache(maxsize=4)
def _opened(
    path: str, partial: bool, files: tuple[tuple[str, int, int, int], ...]
) -> tuple[Dataset, list[sql.Source]]:
    """Return the dataset and its tables; the same files are opened and described once."""
    dataset, run = _dataset(path, partial, files), _duckdb(path, _database().cursor())
    dataset.check_ids(trust_writer=True)
    sources = []
    for schema, shards in by_columns(dataset):
        table = _read_parquet(shards)
        sources.append(sql.Source(table, schema, _duckdb_names(run, table, schema)))
    return dataset, sources


@cache
def _database() -> Any:
    require("search", "duckdb")
    import duckdb

    return duckdb.connect()  # in memory; opening one costs as much as half a search


def _duckdb(path: str | os.PathLike[str], connection: Any) -> Run:
    import duckdb

    def run(statement: str) -> list[Row]:
        try:
            return connection.execute(statement).fetchall()
        except duckdb.Error as error:
            if isinstance(error, duckdb.OutOfMemoryException) or "allocate" in str(error):
                raise MemoryError(str(error).splitlines()[0]) from error
            raise InputError(
                f"{path} could not be searched; {str(error).splitlines()[0]} "
                "If a file was replaced meanwhile, search again."
            ) from error

    return run


def _read_parquet(files: Sequence[Path]) -> str:
    # A path is a glob to DuckDB: a bracket around each special character takes its meaning away.
    plain = ["".join(f"[{c}]" if c in "*?[" else c for c in str(file)) for file in files]
    listed = ", ".join(map(sql.text_literal, plain))
    # Folders may be called "id=5"; that says nothing about a column.
    return f"read_parquet([{listed}], hive_partitioning = false)"


def _duckdb_names(run: Run, table: str, schema: Schema) -> dict[str, str]:
    """Return what DuckDB calls columns whose names differ only by case: it numbers them."""
    if len({name.lower() for name in schema.columns}) == len(schema.columns):
        return {}
    described = [row[0] for row in run(f"DESCRIBE SELECT * FROM {table}")]
    return dict(zip(schema.columns, described, strict=True))


# Spark ----------------------------------------------------------------------------------------

_VIEW = "credibly_predictions"
_ARROW = {
    "string": "string",
    "float": "float32",
    "double": "float64",
    "boolean": "bool_",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "void": "null",
}


def _spark_engine(
    path: str | os.PathLike[str], session: Any = None, *, partial: bool = False
) -> Opened:
    """Return the predictions at ``path``, opened by Spark."""
    spark = spark_session() if session is None else session
    # Label names may differ by case alone; Spark takes them for one unless told otherwise.
    spark.conf.set("spark.sql.caseSensitive", "true")
    if is_remote(path):
        frame = spark.read.parquet(str(path))
        frame.createOrReplaceTempView(_VIEW)
        schema = Schema.from_arrow(_arrow_schema(frame.schema), None, f"{path}: ")
        return Opened(
            str(path), schema.labels, [sql.Source(_VIEW, schema)], "`", _runner(spark, path)
        )
    dataset = Dataset(path, partial=partial)
    dataset.check_ids(trust_writer=True)
    sources = []
    for place, (schema, files) in enumerate(by_columns(dataset)):
        frame = spark.read.parquet(*(file_address(str(file)) for file in files))
        frame.createOrReplaceTempView(f"{_VIEW}_{place}")
        sources.append(sql.Source(f"{_VIEW}_{place}", schema))

    def add_file(name: str, file: Path) -> None:
        spark.read.parquet(file_address(str(file))).createOrReplaceTempView(name)

    run = _runner(spark, path)
    return Opened(str(path), dataset.labels, sources, "`", run, dataset, add_file=add_file)


def _runner(spark: Any, path: str | os.PathLike[str]) -> Run:
    def run(statement: str) -> list[Row]:
        try:
            return [tuple(row) for row in spark.sql(statement).collect()]
        except Exception as error:  # py4j and Spark raise types of their own
            raise InputError(
                f"{path} could not be searched; {str(error).splitlines()[0]}"
            ) from error

    return run


def _arrow_schema(struct: Any) -> Any:
    """Return Spark's columns as Arrow's; types that predictions never have become lists."""
    import pyarrow as pa

    other = pa.list_(pa.null())
    kinds = {field.name: field.dataType.simpleString() for field in struct.fields}
    return pa.schema(
        [
            (name, getattr(pa, _ARROW[kind])() if kind in _ARROW else other)
            for name, kind in kinds.items()
        ]
    )
