"""Parse the text of a query: ``+fork +apple -knife``, or ``(dog | cat) & !beach``.

    disjunction = conjunction ("|" conjunction)*
    conjunction = factor ("&"? factor)*              adjacent factors mean "and"
    factor      = ("+" | "-" | "!")* (name | '"' quoted name '"' | "(" disjunction ")")

``-`` and ``!`` both mean "not"; ``+`` has no effect. A name that no label has stands for the label
that differs in case and accents only, if there is one such label. Inside quotes, write a quote or a
backslash of the name with a backslash before it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from credibly.checks import InputError, nearest
from credibly.retrieve.query.formula import BARE_NAME, And, Formula, Label, Not, Or, Query, query_of

_MAX_DEPTH = 100
_MAX_CHARACTERS = 100_000
_OPERATOR_WORDS = {"AND": "&", "OR": "|", "NOT": "!"}


def parse(text: str, labels: Sequence[str] | None = None) -> Query:
    """Return the query that a text describes.

    Args:
        text: the query, for example ``+dog -beach``.
        labels: the labels there are, if known; every name must be one of them, whatever its case
            and accents.

    Raises:
        InputError: if the text is not a query or names an unknown label. The message points at the
            place.

    Example:
        >>> parse('+fork +apple -"dining table"')
        Query(wanted=('fork', 'apple'), unwanted=('dining table',), formula=None)
        >>> str(parse("(dog|cat) !beach"))
        '(dog | cat) & !beach'
        >>> parse("+cafe", labels=["café", "beach"]).wanted
        ('café',)
        >>> parse("+dgo -beach", labels=["dog", "beach"])
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: query: unknown label 'dgo'. Did you mean 'dog'?
            +dgo -beach
             ^
    """
    if len(text) > _MAX_CHARACTERS:
        raise InputError(
            f"query: it must have at most {_MAX_CHARACTERS:,} characters; got {len(text):,}. Split "
            "it."
        )
    tokens = _tokens(text)
    if len(tokens) == 1:
        raise InputError(
            "query: it must name at least one label; got nothing. Write for example '+dog -beach'."
        )
    parser = _Parser(text, tokens, labels)
    formula = parser.disjunction(0)
    if parser.next.kind != "end":
        parser.fail(f"unexpected {parser.next.text!r}: no bracket is open here")
    return query_of(formula)


@dataclass(frozen=True)
class _Token:
    kind: str  # "name", "end" or the operator itself
    text: str
    position: int  # in the text


class _Parser:
    """Recursive descent over the tokens: one method per rule of the grammar."""

    def __init__(self, text: str, tokens: list[_Token], labels: Sequence[str] | None) -> None:
        self.text, self.tokens, self.labels = text, tokens, labels
        self.known = None if labels is None else set(labels)
        self.index = 0

    @cached_property
    def by_folded(self) -> dict[str, list[str]]:
        """Return the labels by their names without case and accents."""
        found: dict[str, list[str]] = {}
        for name in self.labels or ():
            found.setdefault(folded(name), []).append(name)
        return found

    @property
    def next(self) -> _Token:
        return self.tokens[self.index]

    def take(self) -> _Token:
        token = self.next
        self.index += 1
        return token

    def fail(self, reason: str, position: int | None = None) -> None:
        raise InputError(
            _pointing(self.text, self.next.position if position is None else position, reason)
        )

    def disjunction(self, depth: int) -> Formula:
        parts = [self.conjunction(depth)]
        while self.next.kind == "|":
            self.take()
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def conjunction(self, depth: int) -> Formula:
        parts = [self.factor(depth)]
        while self.next.kind not in ("|", ")", "end"):
            if self.next.kind == "&":
                self.take()
            parts.append(self.factor(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def factor(self, depth: int) -> Formula:
        negated = False
        while self.next.kind in ("+", "-", "!"):
            negated ^= self.take().kind != "+"
        if self.next.kind == "(":
            formula = self.bracket(depth + 1)
        elif self.next.kind == "name":
            formula = self.label()
        else:
            found = "the end" if self.next.kind == "end" else repr(self.next.text)
            self.fail(f"expected a label or '(' here; got {found}")
            raise AssertionError  # unreachable: fail raises
        return Not(formula) if negated else formula

    def bracket(self, depth: int) -> Formula:
        opening = self.take()
        if depth > _MAX_DEPTH:
            self.fail(f"brackets may be nested {_MAX_DEPTH} deep at most", opening.position)
        formula = self.disjunction(depth)
        if self.next.kind != ")":
            self.fail("this bracket is never closed; add ')'", opening.position)
        self.take()
        return formula

    def label(self) -> Label:
        token = self.take()
        if self.known is None or token.text in self.known:
            return Label(token.text)
        if token.text in _OPERATOR_WORDS:
            hint = f"Write {_OPERATOR_WORDS[token.text]!r} for it."
            self.fail(f"unknown label {token.text!r}. {hint}", token.position)
        alike = self.by_folded.get(folded(token.text), [])
        if len(alike) > 1:
            names = " or ".join(map(repr, alike[:5]))
            reason = f"several labels are called like {token.text!r}. Write {names}"
            self.fail(reason, token.position)
        if not alike:
            hint = nearest(token.text, self.labels or ())
            self.fail(f"unknown label {token.text!r}. {hint}", token.position)
        return Label(alike[0])


def _tokens(text: str) -> list[_Token]:
    """Return the tokens of a text, with an end token last."""
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        start, character = position, text[position]
        if character.isspace():
            position += 1
        elif character in "()|&!+-":
            tokens.append(_Token(character, character, start))
            position += 1
        elif character == '"':
            name, position = _quoted_name(text, start)
            tokens.append(_Token("name", name, start))
        else:
            match = BARE_NAME.match(text, position)
            assert match is not None  # everything else was handled above
            position = match.end()
            tokens.append(_Token("name", match.group(), start))
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _quoted_name(text: str, start: int) -> tuple[str, int]:
    """Return the name in quotes that begins at ``start``, and the position after it."""
    name: list[str] = []
    position = start + 1
    while position < len(text):
        if text[position] == '"':
            return "".join(name), position + 1
        if text[position] == "\\" and text[position + 1 : position + 2] in ('"', "\\"):
            position += 1
        name.append(text[position])
        position += 1
    raise InputError(_pointing(text, start, "this quote is never closed; add '\"'"))


def _pointing(text: str, position: int, reason: str) -> str:
    """Return the reason, the text in one line, and a caret below the position."""
    shown = "".join(" " if character.isspace() else character for character in text)
    reason = reason if reason.endswith((".", "?")) else reason + "."
    return f"query: {reason}\n    {shown}\n    {' ' * position}^"


def as_query(query: str | Query, labels: Sequence[str]) -> Query:
    """Return the query, parsed if it is text; every label must be one of ``labels``."""
    return parse(query, labels) if isinstance(query, str) else query.check(labels)


@lru_cache(maxsize=2**16)
def folded(text: str) -> str:
    """Return text for comparison: without case and accents.

    Example:
        >>> folded("Café") == folded("CAFE")
        True
    """
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))
