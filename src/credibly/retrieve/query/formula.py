"""Queries: boolean formulas over labels, their normal form and their canonical text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from credibly.checks import InputError, nearest

# A name that needs no quotes: no spaces, quotes or operators, and no sign at the start.
BARE_NAME = re.compile(r'[^\s"()|&!+\-][^\s"()|&!]*')


@dataclass(frozen=True)
class Label:
    """The label is present."""

    name: str


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Formula


@dataclass(frozen=True)
class And:
    """Every part holds."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Or:
    """At least one part holds."""

    parts: tuple[Formula, ...]


Formula: TypeAlias = Label | Not | And | Or


@dataclass(frozen=True)
class Query:
    """A query: labels that must be present and labels that must be absent, or a formula.

    ``str(query)`` is its canonical text; ``parse`` returns the same query for it.

    Args:
        wanted: labels that must be present. With a ``formula``, the labels that occur in it without
            a negation.
        unwanted: labels that must be absent. With a ``formula``, the labels that occur in it only
            negated.
        formula: None for a conjunction of ``wanted`` and ``unwanted``.

    Example:
        >>> query = Query(wanted=("fork", "apple"), unwanted=("dining table",))
        >>> str(query)
        '+fork +apple -"dining table"'
    """

    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    formula: Formula | None = field(default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", tuple(dict.fromkeys(self.wanted)))
        object.__setattr__(self, "unwanted", tuple(dict.fromkeys(self.unwanted)))
        if not self.labels:
            raise InputError(
                "a query must name at least one label; got none. Write for example '+dog -beach'."
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Return every label of the query once."""
        return tuple(dict.fromkeys(self.wanted + self.unwanted))

    @property
    def expression(self) -> Formula:
        """Return the query as a formula, also if it is a conjunction."""
        if self.formula is not None:
            return self.formula
        return normal(And((*map(Label, self.wanted), *(Not(Label(x)) for x in self.unwanted))))

    def check(self, labels: Sequence[str]) -> Query:
        """Return the query itself; every label must be one of ``labels``."""
        known = set(labels)
        for name in self.labels:
            if name not in known:
                raise InputError(f"unknown label {name!r} in {self}. {nearest(name, labels)}")
        return self

    def __str__(self) -> str:
        if self.formula is not None:
            return _text(self.formula, 0)
        signed = [f"+{quoted(name)}" for name in self.wanted]
        return " ".join(signed + [f"-{quoted(name)}" for name in self.unwanted])


def query_of(formula: Formula) -> Query:
    """Return the query of a formula; for a conjunction of labels, its ``formula`` is None."""
    formula = normal(formula)
    parts = formula.parts if isinstance(formula, And) else (formula,)
    plain = all(isinstance(_inner(part), Label) for part in parts)
    occurrences = list(_occurrences(formula, True))
    wanted = tuple(name for name, positive in occurrences if positive)
    unwanted = tuple(name for name, positive in occurrences if not positive)
    if plain:  # a label may be both wanted and unwanted here: a contradiction, kept as it is
        return Query(wanted, unwanted)
    return Query(wanted, tuple(name for name in unwanted if name not in wanted), formula)


def normal(formula: Formula) -> Formula:
    """Flatten nested ``and`` and ``or``; remove double negations and repeated parts."""
    if isinstance(formula, Label):
        return formula
    if isinstance(formula, Not):
        part = normal(formula.part)
        return part.part if isinstance(part, Not) else Not(part)
    kind = type(formula)
    parts: list[Formula] = []
    for part in map(normal, formula.parts):
        parts.extend(part.parts if isinstance(part, kind) else (part,))
    unique = tuple(dict.fromkeys(parts))
    return unique[0] if len(unique) == 1 else kind(unique)


def quoted(name: str) -> str:
    """Return a label name as it is written in a query.

    Example:
        >>> print(quoted("dog"), quoted("dining table"), quoted('5" disk'))
        dog "dining table" "5\\" disk"
    """
    if BARE_NAME.fullmatch(name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(formula: Formula, binding: int) -> str:
    """Return the text; ``binding`` is the precedence around it (0 none, 1 or, 2 and, 3 not)."""
    if isinstance(formula, Label):
        return quoted(formula.name)
    if isinstance(formula, Not):
        return "!" + _text(formula.part, 3)
    own, sign = (2, " & ") if isinstance(formula, And) else (1, " | ")
    text = sign.join(_text(part, own) for part in formula.parts)
    return f"({text})" if binding > own else text


def _inner(formula: Formula) -> Formula:
    return formula.part if isinstance(formula, Not) else formula


def _occurrences(formula: Formula, positive: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(formula, Label):
        yield formula.name, positive
    elif isinstance(formula, Not):
        yield from _occurrences(formula.part, not positive)
    else:
        for part in formula.parts:
            yield from _occurrences(part, positive)
