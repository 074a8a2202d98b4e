"""A query as SQL that DuckDB and Spark both run.

Labels enter only as quoted identifiers and numbers only as literals made here; nothing a person
typed is ever pasted into the text. The formula itself is written by the same code that computes it
on arrays: a ``Term`` knows the operators of an array and answers with text. A value that is used
twice becomes a column of an earlier step, so the text stays as short as the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from credibly.retrieve._diagram import Diagram, evaluate
from credibly.retrieve._parts import ID, PATH, PROBABILITY, TRUTH

if TYPE_CHECKING:
    from credibly.retrieve._joint import Joint


@dataclass(frozen=True)
class Statements:
    """``best`` ranks; ``totals`` counts and sums over all rows; ``scored`` is what both start with.

    ``step`` is the name of the last step of ``scored``; ``labels`` belong to p0, p1, ….
    """

    labels: tuple[str, ...]
    scored: str
    step: str
    best: str
    totals: str


@dataclass(frozen=True)
class Term:
    """A piece of SQL that yields a float64, and the step whose columns it needs."""

    text: str
    step: int

    def __add__(self, other: Term | float) -> Term:
        return self._with("+", other)

    def __mul__(self, other: Term | float) -> Term:
        return self._with("*", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self._with("/", other)

    def __rmul__(self, other: float) -> Term:
        return Term(f"({number(other)} * {self.text})", self.step)

    def __rsub__(self, other: float) -> Term:
        return Term(f"({number(other)} - {self.text})", self.step)

    def _with(self, sign: str, other: Term | float) -> Term:
        if isinstance(other, Term):
            return Term(f"({self.text} {sign} {other.text})", max(self.step, other.step))
        return Term(f"({self.text} {sign} {number(other)})", self.step)


class Steps:
    """Columns to add, step by step; a step reads the columns of those before it."""

    def __init__(self, first: str) -> None:
        self.first = first
        self.added: list[list[str]] = []
        self.kept = 0

    def keep(self, term: Term) -> Term:
        """Give the value a column of its own."""
        self.kept += 1
        return self.name(f"v{self.kept}", term)

    def name(self, column: str, term: Term) -> Term:
        """Add the value as ``column``."""
        while len(self.added) <= term.step:
            self.added.append([])
        self.added[term.step].append(f"{term.text} AS {column}")
        return Term(column, term.step + 1)

    def text(self) -> tuple[str, str]:
        """The ``WITH`` clause, and the name of its last step."""
        lines, last = [f"rows_read AS ({self.first})"], "rows_read"
        for place, columns in enumerate(self.added, start=1):
            lines.append(f"step{place} AS (SELECT *, {', '.join(columns)} FROM {last})")
            last = f"step{place}"
        return "WITH " + ",\n".join(lines), last


def statements(
    found: Diagram,
    source: str,
    *,
    quote: str,
    top: int,
    truth: bool = False,
    paths: bool = False,
    joint: Joint | None = None,
    names: dict[str, str] | None = None,
) -> Statements:
    """The statements for a diagram over ``source``, already a piece of SQL.

    ``quote`` is the dialect's mark around identifiers; ``names`` gives columns that the engine
    calls differently than the file does.
    """

    def column(name: str) -> str:
        return identifier((names or {}).get(name, name), quote)

    def columns(prefix: str, letter: str, labels: Sequence[str]) -> list[str]:
        return [
            f"CAST({column(prefix + label)} AS DOUBLE) AS {letter}{place}"
            for place, label in enumerate(labels)
        ]

    # The query's labels come first: p0, p1, … are its conditions whatever else is read.
    labels = found.labels if joint is None else joint.in_order(found.labels)
    read = [f"{column(ID)} AS id", *([f"{column(PATH)} AS path"] if paths else [])]
    read += columns(PROBABILITY, "p", labels)
    read += columns(TRUTH, "y", found.labels) if truth else []
    steps = Steps(f"SELECT {', '.join(read)} FROM {source}")
    present = [Term(f"p{place}", 0) for place in range(len(labels))]
    if joint is None:
        probability = evaluate(found, present, steps.keep)
    else:
        probability = joint.evaluate(found, labels, present, steps.keep, _at_most_one)
    steps.name("probability", probability)
    if truth:
        _add_truth(steps, found)
    scored, last = steps.text()
    shown = ["id", "probability", *(["path"] if paths else []), *(["truth"] if truth else [])]
    shown += [f"p{place}" for place in range(len(found.labels))]
    totals = ", ".join(_totals(range(len(labels)), truth))
    return Statements(
        labels=labels,
        scored=scored,
        step=last,
        best=f"{scored}\nSELECT {', '.join(shown)}\nFROM {last}\n"
        f"ORDER BY probability DESC, id\nLIMIT {top:d}",
        totals=f"{scored}\nSELECT {totals}\nFROM {last}",
    )


def identifier(name: str, quote: str) -> str:
    """A name between quotes, quotes inside doubled.

    Example:
        >>> print(identifier('p:5" disk', '"'))
        "p:5"" disk"
    """
    return quote + name.replace(quote, 2 * quote) + quote


def text_literal(text: str) -> str:
    """A string between single quotes, quotes inside doubled."""
    return "'" + text.replace("'", "''") + "'"


def number(value: float) -> str:
    """A float64 literal: the exponent makes it one, 17 digits make it exact.

    Example:
        >>> number(1.0), number(0.1)
        ('1e0', '1.00000000000000006e-01')
    """
    return f"{value:.0f}e0" if value in (0, 1) else f"{value:.17e}"


def good(places: Sequence[int]) -> str:
    """Whether probabilities can be used; NULL is not true.

    The last comparison is there for NaN. DuckDB trusts the file's least and greatest values, which
    leave NaN out, and takes plain comparisons (and ``isnan``) for decided by them.
    """
    return " AND ".join(
        f"p{place} >= 0e0 AND p{place} <= 1e0 AND abs(p{place} - 5e-1) <= 5e-1" for place in places
    )


def _at_most_one(term: Term) -> Term:
    return Term(f"least(1e0, {term.text})", term.step)


def _add_truth(steps: Steps, found: Diagram) -> None:
    places = range(len(found.labels))
    known = " AND ".join(f"y{place} IN (0, 1)" for place in places)
    steps.name("known", Term(f"CASE WHEN {known} THEN 1 ELSE 0 END", 0))
    real = evaluate(found, [Term(f"y{place}", 0) for place in places], steps.keep)
    steps.name("truth", Term(f"CASE WHEN {known} THEN {real.text} END", real.step))


def _totals(places: range, truth: bool) -> list[str]:
    totals = [
        "count(*) AS num_rows",
        f"sum(CASE WHEN {good(places)} THEN 0 ELSE 1 END) AS bad_rows",
        "sum(probability) AS expected_hits",
    ]
    if truth:
        totals += [
            "sum(known) AS known_rows",
            "sum(CASE WHEN known = 1 THEN probability END) AS known_expected",
            "sum(truth) AS known_hits",
        ]
    return totals
