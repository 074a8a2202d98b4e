"""Search straight on Parquet: DuckDB on this machine, Spark on many, with the same statements."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from credibly.checks import InputError, choice
from credibly.retrieve import _sql
from credibly.retrieve._answer import Answer, Hit, conditions
from credibly.retrieve._diagram import Diagram, diagram
from credibly.retrieve._formula import Query
from credibly.retrieve._parts import PROBABILITY, Parts, is_remote, open_parts
from credibly.retrieve._rows import as_query

if TYPE_CHECKING:
    from credibly.retrieve._joint import Joint

Row = tuple[Any, ...]
Run = Callable[[str], list[Row]]


def search(
    path: str | os.PathLike[str],
    query: str | Query,
    *,
    top: int = 20,
    engine: str = "duckdb",
    joint: Joint | None = None,
    session: Any = None,
) -> Answer:
    """Rank the rows of a predictions file, or of a folder of parts, by a query.

    Args:
        path: a Parquet file or a folder of Parquet parts; with Spark also any address its cluster
            reads.
        query: text (see ``parse``) or a ``Query``.
        top: how many rows to give back.
        engine: ``"duckdb"`` or ``"spark"``; both give the same ids and probabilities.
        joint: a fitted ``Joint``, for labels that depend on each other.
        session: a Spark session to use; one on this machine is started otherwise.
    """
    choice("engine", engine, ("duckdb", "spark"))
    top = checked_top(top)
    if engine == "spark":
        from credibly.retrieve._spark import opened

        parts, source, run = opened(path, session)
        names = None
        quote = "`"
    else:
        if is_remote(path):
            raise InputError(f"{path} is an address; only `engine='spark'` reads those.")
        parts = open_parts(path)
        source, run = _duckdb_source(parts.files), _duckdb()
        names, quote = _duckdb_names(run, source, parts), '"'
    asked = as_query(query, parts.labels)
    found = diagram(asked)
    if joint is not None:
        joint.check(parts.labels)
    texts = _sql.statements(
        found,
        source,
        quote=quote,
        top=top,
        truth=parts.truths.issuperset(found.labels),
        paths=parts.has_paths,
        joint=joint,
        names=names,
    )
    return _answer(asked, found, parts, texts, run)


def checked_top(top: int) -> int:
    """A whole number of at least 1."""
    if isinstance(top, bool) or not hasattr(top, "__index__") or top < 1:
        raise InputError(f"`top` must be a whole number of at least 1; got {top!r}.")
    return int(top)


def _answer(asked: Query, found: Diagram, parts: Parts, texts: _sql.Statements, run: Run) -> Answer:
    truth = parts.truths.issuperset(found.labels)
    rows, bad, expected, *known = run(texts.totals)[0]
    if bad or (expected is not None and math.isnan(expected)):
        raise InputError(_first_bad(parts, texts, run, int(bad)))
    hits = (
        [] if found.impossible else [_hit(asked, found, parts, truth, x) for x in run(texts.best)]
    )
    known_rows = int(known[0] or 0) if truth else 0
    return Answer(
        query=asked,
        hits=hits,
        rows=int(rows),
        expected_hits=float(expected or 0.0),
        known_rows=known_rows,
        known_expected=float(known[1]) if known_rows else None,
        known_hits=int(known[2]) if known_rows else None,
        contradiction=found.impossible,
        sql=(texts.best, texts.totals),
    )


def _hit(asked: Query, found: Diagram, parts: Parts, truth: bool, row: Row) -> Hit:
    values = iter(row)
    name, probability = next(values), float(next(values))
    file = next(values) if parts.has_paths else None
    real = next(values) if truth else None
    present = dict(zip(found.labels, map(float, values), strict=True))
    each = {
        text: present[label] if wanted else 1.0 - present[label]
        for text, label, wanted in conditions(asked)
    }
    return Hit(name, probability, each, None if real is None else real == 1, file)


def _first_bad(parts: Parts, texts: _sql.Statements, run: Run, bad: int) -> str:
    for place, label in enumerate(texts.labels):
        wrong = f"CASE WHEN {_sql.good([place])} THEN 0 ELSE 1 END = 1"
        first = f"SELECT id, p{place} FROM {texts.step} WHERE {wrong} ORDER BY id LIMIT 1"
        rows = run(f"{texts.scored}\n{first}")
        if rows:
            name, value = rows[0]
            return (
                f"{parts.where}: probabilities must lie in [0, 1]; got {value} in column "
                f"{PROBABILITY + label!r} of the row with id {name!r} ({bad} such rows). "
                "Predict again, or drop those rows."
            )
    raise AssertionError("a bad row was counted but not found")


@cache
def _database() -> Any:
    import duckdb

    return duckdb.connect()  # in memory; opening one costs as much as half a search


def _duckdb() -> Run:
    import duckdb

    connection = _database().cursor()  # a thread's own

    def run(statement: str) -> list[Row]:
        try:
            return connection.execute(statement).fetchall()
        except duckdb.IOException as error:
            raise InputError(
                f"the predictions could not be read; {str(error).splitlines()[0]} "
                "If a part was replaced meanwhile, search again."
            ) from error

    return run


def _duckdb_source(files: Sequence[str]) -> str:
    # A path is a glob to DuckDB: a bracket around each special character takes its meaning away.
    plain = ["".join(f"[{c}]" if c in "*?[" else c for c in file) for file in files]
    return f"read_parquet([{', '.join(map(_sql.text_literal, plain))}])"


def _duckdb_names(run: Run, source: str, parts: Parts) -> dict[str, str]:
    """What DuckDB calls each column: names that differ only by case get a number."""
    described = [row[0] for row in run(f"DESCRIBE SELECT * FROM {source}")]
    return dict(zip(parts.columns, described, strict=True))
