"""From text to a query: ``+fork +apple -knife``, or ``(dog | cat) & !beach``.

    any   = all ("|" all)*
    all   = one ("&"? one)*              side by side means "and"
    one   = ("+" | "-" | "!")* (name | '"' quoted name '"' | "(" any ")")

``-`` and ``!`` both mean "not", ``+`` means nothing. Inside quotes a backslash stands before a
quote or a backslash that belongs to the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from credibly.checks import InputError, nearest
from credibly.retrieve._formula import BARE_NAME, And, Formula, Label, Not, Or, Query, query_of

_DEEPEST = 100
_LONGEST = 100_000
_SPELT_OUT = {"AND": "&", "OR": "|", "NOT": "!"}


def parse(text: str, labels: Sequence[str] | None = None) -> Query:
    """Read a query; where ``labels`` is given, every name must be one of them.

    Example:
        >>> parse('+fork +apple -"dining table"')
        Query(wanted=('fork', 'apple'), unwanted=('dining table',), formula=None)
        >>> str(parse("(dog|cat) !beach"))
        '(dog | cat) & !beach'
        >>> parse("+dgo -beach", labels=["dog", "beach"])
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: query: unknown label 'dgo'. Did you mean 'dog'?
            +dgo -beach
             ^
    """
    if len(text) > _LONGEST:
        raise InputError(
            f"query: it may have {_LONGEST:,} characters at most; got {len(text):,}. Split it."
        )
    tokens = _tokens(text)
    if len(tokens) == 1:
        raise InputError(
            "query: it must name at least one label; got nothing. Write for example '+dog -beach'."
        )
    reader = _Reader(text, tokens, labels)
    formula = reader.any_of(0)
    if reader.next.kind != "end":
        reader.fail(f"unexpected {reader.next.text!r}: no bracket is open here")
    return query_of(formula)


@dataclass(frozen=True)
class _Token:
    kind: str  # "name", "end" or the operator itself
    text: str
    place: int


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, text: str, tokens: list[_Token], labels: Sequence[str] | None) -> None:
        self.text, self.tokens, self.labels = text, tokens, labels
        self.known = None if labels is None else set(labels)
        self.at = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.next
        self.at += 1
        return token

    def fail(self, reason: str, place: int | None = None) -> None:
        raise InputError(_pointing(self.text, self.next.place if place is None else place, reason))

    def any_of(self, depth: int) -> Formula:
        parts = [self.all_of(depth)]
        while self.next.kind == "|":
            self.take()
            parts.append(self.all_of(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def all_of(self, depth: int) -> Formula:
        parts = [self.one(depth)]
        while self.next.kind not in ("|", ")", "end"):
            if self.next.kind == "&":
                self.take()
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def one(self, depth: int) -> Formula:
        negated = False
        while self.next.kind in ("+", "-", "!"):
            negated ^= self.take().kind != "+"
        if self.next.kind == "(":
            formula = self.bracket(depth + 1)
        elif self.next.kind == "name":
            formula = self.label()
        else:
            found = "the end" if self.next.kind == "end" else repr(self.next.text)
            self.fail(f"a label or '(' must stand here; got {found}")
            raise AssertionError  # unreachable: fail raises
        return Not(formula) if negated else formula

    def bracket(self, depth: int) -> Formula:
        opening = self.take()
        if depth > _DEEPEST:
            self.fail(f"brackets may be nested {_DEEPEST} deep at most", opening.place)
        formula = self.any_of(depth)
        if self.next.kind != ")":
            self.fail("this bracket is never closed; add ')'", opening.place)
        self.take()
        return formula

    def label(self) -> Label:
        token = self.take()
        if self.known is not None and token.text not in self.known:
            hint = nearest(token.text, self.labels or ())
            if token.text in _SPELT_OUT:
                hint = f"Write {_SPELT_OUT[token.text]!r} for it."
            self.fail(f"unknown label {token.text!r}. {hint}", token.place)
        return Label(token.text)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while place < len(text):
        start, character = place, text[place]
        if character.isspace():
            place += 1
        elif character in "()|&!+-":
            tokens.append(_Token(character, character, start))
            place += 1
        elif character == '"':
            name, place = _quoted_name(text, start)
            tokens.append(_Token("name", name, start))
        else:
            match = BARE_NAME.match(text, place)
            assert match is not None  # everything else was handled above
            place = match.end()
            tokens.append(_Token("name", match.group(), start))
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _quoted_name(text: str, start: int) -> tuple[str, int]:
    name: list[str] = []
    place = start + 1
    while place < len(text):
        if text[place] == '"':
            return "".join(name), place + 1
        if text[place] == "\\" and text[place + 1 : place + 2] in ('"', "\\"):
            place += 1
        name.append(text[place])
        place += 1
    raise InputError(_pointing(text, start, "this quote is never closed; add '\"'"))


def _pointing(text: str, place: int, reason: str) -> str:
    """The reason, the text on one line, and a caret under the place."""
    shown = "".join(" " if character.isspace() else character for character in text)
    reason = reason if reason.endswith((".", "?")) else reason + "."
    return f"query: {reason}\n    {shown}\n    {' ' * place}^"
