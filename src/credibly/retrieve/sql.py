"""Open predictions files in DuckDB, and translate a query into its SQL.

Labels appear only as quoted identifiers and numbers only as literals made here. User input is never
copied into the statement. The code that computes a formula on arrays also writes it as SQL: a
``Term`` has the operators of an array and returns text. A value that is used twice becomes a column
of an earlier step, so the text stays as short as the formula.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.checks import InputError, require
from credibly.memory_limits import not_for_lack_of_memory
from credibly.predictions import Dataset
from credibly.predictions.file_schema import ID, PROBABILITY, TRUTH, Schema
from credibly.predictions.shard import Shard
from credibly.retrieve.query import Diagram, evaluate
from credibly.targets import IGNORED

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Source:
    """A table in SQL: its expression, its columns, and the columns that DuckDB renames."""

    table: str
    schema: Schema
    names: Mapping[str, str]


@lru_cache(maxsize=4)
def open_files(
    path: str, partial: bool, files: tuple[object, ...]
) -> tuple[Dataset, Sequence[Source]]:
    """Return a dataset, and its files with the same columns as one table each.

    ``files``, their identity, is part of the key.
    """
    del files
    dataset = Dataset(path, partial=partial)
    dataset.check_ids(trust_writer=True)
    groups: dict[tuple[str, ...], list[Shard]] = defaultdict(list)
    for shard in dataset.shards:
        kinds = (f"{name} {kind}" for name, kind in shard.schema.types.items())
        groups[tuple(kinds)].append(shard)
    sources = []
    for shards in groups.values():
        table, schema = _read_parquet([each.path for each in shards]), shards[0].schema
        sources.append(Source(table, schema, _names(path, table, schema)))
    return dataset, sources


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the database of this process."""
    require("search", "duckdb")
    import duckdb

    return duckdb.connect()  # in memory; opening a connection takes half as long as a search


def run(path: object, statement: str) -> Sequence[tuple[Any, ...]]:
    """Return the rows of a statement about the files at ``path``."""
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


def _names(path: str, table: str, schema: Schema) -> dict[str, str]:
    """Return DuckDB's names of the columns: it numbers columns that differ only by case."""
    if len({name.lower() for name in schema.types}) == len(schema.types):
        return {}
    described = run(path, f"DESCRIBE SELECT * FROM {table}")
    return {name: str(row[0]) for name, row in zip(schema.types, described, strict=True)}


@dataclass(frozen=True)
class Statements:
    """The statements of a query.

    Attributes:
        labels: the labels of the columns p0, p1, ….
        scored: the clause with which ``best`` and ``totals`` begin.
        step: name of the last step of ``scored``.
        shown: columns of the best rows.
        top: number of best rows.
        totals: counts and sums over all rows; if ``bounded``, the last column is the probability of
            the last of the best rows.
        truth: whether the best rows include their truth.
        bounded: whether the totals include that probability.
    """

    labels: tuple[str, ...]
    scored: str
    step: str
    shown: tuple[str, ...]
    top: int
    totals: str
    truth: bool
    bounded: bool

    def best(self, at_least: float | None = None) -> str:
        """Return the statement that ranks the rows.

        ``at_least`` is the probability of the last of the best rows. Rows below it are left out, so
        only the others are sorted, and ids and truth are computed for them alone.
        """
        kept = "" if at_least is None else f"WHERE probability >= {number(at_least)}\n"
        return (
            f"{self.scored}\nSELECT {', '.join(self.shown)}\nFROM {self.step}\n{kept}"
            f"ORDER BY probability DESC, id\nLIMIT {self.top:d}"
        )


@dataclass(frozen=True)
class Term:
    """An SQL expression of type float64, and the step whose columns it needs."""

    text: str
    step: int

    def __add__(self, other: Term | float) -> Term:
        return self._with("+", other)

    def __mul__(self, other: Term | float) -> Term:
        return self._with("*", other)

    def __rmul__(self, other: float) -> Term:
        return Term(f"({number(other)} * {self.text})", self.step)

    def __rsub__(self, other: float) -> Term:
        return Term(f"({number(other)} - {self.text})", self.step)

    def _with(self, sign: str, other: Term | float) -> Term:
        if isinstance(other, Term):
            return Term(f"({self.text} {sign} {other.text})", max(self.step, other.step))
        return Term(f"({self.text} {sign} {number(other)})", self.step)


class SqlSteps:
    """Columns that are added in steps; a step reads the columns of earlier steps."""

    def __init__(self, first: str) -> None:
        self.first = first
        self.added: list[list[str]] = []
        self.kept = 0

    def keep(self, term: Term) -> Term:
        """Store the value in a new column and return that column."""
        self.kept += 1
        return self.name(f"v{self.kept}", term)

    def name(self, column: str, term: Term) -> Term:
        """Add the value as ``column`` and return that column."""
        while len(self.added) <= term.step:
            self.added.append([])
        self.added[term.step].append(f"{term.text} AS {column}")
        return Term(column, term.step + 1)

    def text(self) -> tuple[str, str]:
        """Return the ``WITH`` clause and the name of its last step."""
        lines, last = [f"rows_read AS ({self.first})"], "rows_read"
        for place, columns in enumerate(self.added, start=1):
            lines.append(f"step{place} AS (SELECT *, {', '.join(columns)} FROM {last})")
            last = f"step{place}"
        return "WITH " + ",\n".join(lines), last


def statements(compiled: Diagram, sources: Sequence[Source], top: int) -> Statements:
    """Return the statements for a diagram over all tables together."""
    truth = any(source.schema.has_targets for source in sources)
    labels = compiled.labels
    selects = (_select(source, labels, truth) for source in sources)
    steps = SqlSteps("\nUNION ALL ".join(selects))
    present = [Term(f"p{place}", 0) for place in range(len(labels))]
    probability = evaluate(compiled, present, steps.keep)
    steps.name("probability", probability)
    if truth:
        _add_truth(steps, compiled)
    scored, last = steps.text()
    shown = ["id", "probability", *(["truth"] if truth else [])]
    shown += [f"p{place}" for place in range(len(labels))]
    totals = _totals(range(len(labels)), truth)
    bounded = top <= _LARGEST
    if bounded:
        totals.append(f"list_min(max(probability, {top:d})) AS last_of_best")
    return Statements(
        labels=labels,
        scored=scored,
        step=last,
        shown=tuple(shown),
        top=top,
        totals=f"{scored}\nSELECT {', '.join(totals)}\nFROM {last}",
        truth=truth,
        bounded=bounded,
    )


_LARGEST = 10_000  # DuckDB keeps the n largest values in a heap; its limit is a million


def _select(source: Source, labels: Sequence[str], truth: bool) -> str:
    """Return the columns to read, with the same result types from every source."""
    types = {name: str(kind) for name, kind in source.schema.types.items()}

    def column(name: str) -> str:
        return identifier(source.names.get(name, name))

    id = column(ID) if types[ID] in _TEXT else f"CAST({column(ID)} AS STRING)"
    read = [f"{id} AS id"]
    for place, label in enumerate(labels):
        name = PROBABILITY + label
        value = exact = f"CAST({column(name)} AS DOUBLE)"
        if types[name] not in _EXACT:
            # Probabilities are rounded to float32, but only after checking that they are in [0, 1].
            rounded = f"CAST(CAST({column(name)} AS FLOAT) AS DOUBLE)"
            value = f"CASE WHEN {exact} >= 0e0 AND {exact} <= 1e0 THEN {rounded} ELSE {exact} END"
        read.append(f"{value} AS p{place}")
    for place, label in enumerate(labels if truth else ()):
        value = column(TRUTH + label) if source.schema.has_targets else "NULL"
        read.append(f"CAST({value} AS DOUBLE) AS y{place}")
    return f"SELECT {', '.join(read)} FROM {source.table}"


_TEXT = ("string", "large_string")
_EXACT = ("float", "halffloat", "bool", "int8")  # Arrow types with float32-exact values in [0, 1]


def identifier(name: str) -> str:
    """Return a name as a quoted identifier; quotes in the name are doubled.

    Example:
        >>> print(identifier('p:5" disk'))
        "p:5"" disk"
    """
    return '"' + name.replace('"', '""') + '"'


def number(value: float) -> str:
    """Return an exact float64 literal: it has an exponent and 17 digits.

    Example:
        >>> number(1.0), number(0.1)
        ('1e0', '1.00000000000000006e-01')
    """
    return f"{value:.0f}e0" if value in (0, 1) else f"{value:.17e}"


def good(places: Sequence[int]) -> str:
    """Return the condition that probabilities lie in [0, 1]; it is not true for NULL.

    It may be true for NaN. DuckDB decides comparisons from the minimum and maximum of a file, which
    ignore NaN. The sum ``mass`` of the totals detects NaN.
    """
    return " AND ".join(f"p{place} >= 0e0 AND p{place} <= 1e0" for place in places)


def good_truth(places: Sequence[int]) -> str:
    """Return the condition that the truth is valid: null, unknown, or in [0, 1].

    NaN is unknown, as in ``credibly.targets``.
    """
    return " AND ".join(
        f"(y{place} IS NULL OR (y{place} >= 0e0 AND y{place} <= 1e0) OR "
        f"y{place} IN ({', '.join(map(str, IGNORED))}) OR isnan(y{place}))"
        for place in places
    )


def _add_truth(steps: SqlSteps, compiled: Diagram) -> None:
    places = range(len(compiled.labels))
    known = " AND ".join(f"y{place} IN (0, 1)" for place in places)
    steps.name("known", Term(f"CASE WHEN {known} THEN 1 ELSE 0 END", 0))
    real = evaluate(compiled, [Term(f"y{place}", 0) for place in places], steps.keep)
    steps.name("truth", Term(f"CASE WHEN {known} THEN {real.text} END", real.step))


def _totals(places: range, truth: bool) -> list[str]:
    bad_truth = f"sum(CASE WHEN {good_truth(places)} THEN 0 ELSE 1 END)" if truth else "0"
    totals = [
        "count(*) AS num_rows",
        f"sum(CASE WHEN {good(places)} THEN 0 ELSE 1 END) AS bad_rows",
        f"sum({' + '.join(f'p{place}' for place in places)}) AS mass",
        f"{bad_truth} AS bad_truths",
        "sum(probability) AS expected_hits",
    ]
    if truth:
        totals += [
            "sum(known) AS known_rows",
            "sum(CASE WHEN known = 1 THEN probability END) AS known_expected",
            "sum(truth) AS known_hits",
        ]
    return totals
