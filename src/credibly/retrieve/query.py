"""Queries: parse text into boolean formulas over labels, and compute their probability.

    disjunction = conjunction ("|" conjunction)*
    conjunction = factor ("&"? factor)*              adjacent factors mean "and"
    factor      = ("+" | "-" | "!")* (name | '"' quoted name '"' | "(" disjunction ")")

``-`` and ``!`` both mean "not"; ``+`` has no effect. If no label has a name, but exactly one label
differs from it only in case and accents, the name means that label. Inside quotes, put a backslash
before every quote and backslash of the name.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, NoReturn, TypeAlias

from credibly.checks import InputError, nearest

# A name that needs no quotes: no spaces, quotes or operators, and no sign at the start.
_BARE = r'[^\s"()|&!+\-][^\s"()|&!]*'


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
        """Return all labels of the query, each once."""
        return tuple(dict.fromkeys(self.wanted + self.unwanted))

    @property
    def expression(self) -> Formula:
        """Return the query as a formula, even if it is a conjunction."""
        if self.formula is not None:
            return self.formula
        return normal(And((*map(Label, self.wanted), *(Not(Label(x)) for x in self.unwanted))))

    def check(self, labels: Sequence[str]) -> Query:
        """Return the query after checking that every label is one of ``labels``."""
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
    if plain:  # a label may be both wanted and unwanted: the contradiction is kept
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
    """Return a label name in the form that a query uses, with quotes if necessary.

    Example:
        >>> print(quoted("dog"), quoted("dining table"), quoted('5" disk'))
        dog "dining table" "5\\" disk"
    """
    if re.fullmatch(_BARE, name):
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


_MAX_DEPTH = 100
_MAX_CHARACTERS = 100_000
_OPERATOR_WORDS = {"AND": "&", "OR": "|", "NOT": "!"}


def parse(text: str, labels: Sequence[str] | None = None) -> Query:
    """Return the query of a text.

    Args:
        text: the query, for example ``+dog -beach``.
        labels: the known labels, if any. Every name must then be one of them; case and accents may
            differ.

    Raises:
        InputError: if the text is not a query or names an unknown label. The message marks the
            position.

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
    parser = _QueryParser(text, tokens, labels)
    formula = parser.disjunction(0)
    if parser.next.kind != "end":
        parser.fail(f"unexpected {parser.next.text!r}: no bracket is open here")
    return query_of(formula)


class _Token(NamedTuple):
    kind: str  # "name", "end" or the operator itself
    text: str
    position: int  # in the text


class _QueryParser:
    """Recursive descent over the tokens: one method per rule of the grammar."""

    def __init__(self, text: str, tokens: list[_Token], labels: Sequence[str] | None) -> None:
        self.text, self.tokens = text, tokens
        self.known = None if labels is None else dict.fromkeys(labels)
        self.index = 0

    @cached_property
    def by_folded(self) -> dict[str, list[str]]:
        """Return the labels by their names without case and accents."""
        found: dict[str, list[str]] = {}
        for name in self.known or ():
            found.setdefault(folded(name), []).append(name)
        return found

    @property
    def next(self) -> _Token:
        return self.tokens[self.index]

    def take(self) -> _Token:
        token = self.next
        self.index += 1
        return token

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        raise InputError(
            _pointing(self.text, self.next.position if position is None else position, reason)
        )

    def disjunction(self, depth: int) -> Formula:
        parts = [self.conjunction(depth)]
        while self.next.kind == "|":
            self.take()
            parts.append(self.conjunction(depth))
        return Or(tuple(parts))

    def conjunction(self, depth: int) -> Formula:
        parts = [self.factor(depth)]
        while self.next.kind not in ("|", ")", "end"):
            if self.next.kind == "&":
                self.take()
            parts.append(self.factor(depth))
        return And(tuple(parts))

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
            self.fail(f"several labels match {token.text!r}. Write {names}", token.position)
        if not alike:
            hint = nearest(token.text, self.known)
            self.fail(f"unknown label {token.text!r}. {hint}", token.position)
        return Label(alike[0])


# A space, an operator, a name in quotes or a name without. Inside quotes, a backslash protects a
# quote or a backslash; `*+` never reads a protected quote as the end.
_TOKEN = re.compile(
    rf"""\s+|(?P<sign>[()|&!+-])|"(?P<quoted>(?:\\["\\]|[^"])*+)"|(?P<name>{_BARE})"""
)


def _tokens(text: str) -> list[_Token]:
    """Return the tokens of a text, with an end token last."""
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:  # only a quote begins no token
            raise InputError(_pointing(text, position, "this quote is never closed; add '\"'"))
        if match["sign"]:
            tokens.append(_Token(match["sign"], match["sign"], position))
        elif match.lastgroup is not None:
            name = match["name"] or re.sub(r'\\(["\\])', r"\1", match["quoted"])
            tokens.append(_Token("name", name, position))
        position = match.end()
    return [*tokens, _Token("end", "", len(text))]


def _pointing(text: str, position: int, reason: str) -> str:
    """Return the reason, the text in one line, and a caret below the position."""
    shown = "".join(" " if character.isspace() else character for character in text)
    reason = reason if reason.endswith((".", "?")) else reason + "."
    return f"query: {reason}\n    {shown}\n    {' ' * position}^"


def as_query(query: str | Query, labels: Sequence[str]) -> Query:
    """Return the query after parsing text; every label must be one of ``labels``."""
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


Value: TypeAlias = Any
"""What has ``+``, ``-`` and ``*``: a float64 column, or an SQL term."""

NEVER, ALWAYS = 0, 1
_MOST_LABELS = 200
_MOST_NODES = 5000
MOST_OPERATIONS = 50_000
"""Nodes made and pairs of nodes combined while a diagram is built: about 0.2 s and 20 MB."""


@dataclass(frozen=True)
class Node:
    """A test of one label; ``high`` and ``low`` are the nodes for "present" and "absent"."""

    label: int
    high: int
    low: int


@dataclass(frozen=True)
class Diagram:
    """A decision diagram. ``nodes[i]`` has the number ``i + 2``; 0 is "never", 1 is "always".

    Children come before their parents."""

    labels: tuple[str, ...]
    nodes: tuple[Node, ...]
    root: int

    @property
    def impossible(self) -> bool:
        """Return whether the formula contradicts itself."""
        return self.root == NEVER


def diagram(query: Query) -> Diagram:
    """Return the diagram of a query.

    Raises:
        InputError: if it names too many labels, if building it would take more than
            ``MOST_OPERATIONS``, or if the result would need too many steps per row.
    """
    labels = tuple(sorted(query.labels))
    if len(labels) > _MOST_LABELS:
        raise InputError(
            f"a query may name {_MOST_LABELS} labels at most; got {len(labels)}. Split it."
        )
    builder = _Builder(labels)
    root = builder.build(query.expression)
    reduced = _reachable(labels, builder.nodes, root)
    if len(reduced.nodes) > _MOST_NODES:
        raise InputError(_too_large(f"{len(reduced.nodes):,} steps per row", _MOST_NODES))
    return reduced


def evaluate(
    found: Diagram, present: Sequence[Value], keep: Callable[[Value], Value] = lambda value: value
) -> Value:
    """Return the probability of the formula from the probabilities of the labels.

    Args:
        found: the diagram.
        present: one value per label.
        keep: called with every value that is used more than once; returns its replacement.
    """
    uses = Counter(child for node in found.nodes for child in (node.high, node.low))
    left = dict(uses)
    values: list[Value] = (
        [0.0 * present[0], 0.0 * present[0] + 1.0] if found.root <= ALWAYS else [0, 1]
    )
    for place, node in enumerate(found.nodes, start=2):
        value = _node_value(present[node.label], node, values)
        values.append(keep(value) if uses[place] > 1 else value)
        for child in (node.high, node.low):  # free columns that no later node reads
            left[child] -= 1
            if child > ALWAYS and not left[child]:
                values[child] = None
    return values[found.root]


def _node_value(present: Value, node: Node, values: list[Value]) -> Value:
    if node.high == NEVER:
        absent = 1.0 - present
        return absent if node.low == ALWAYS else absent * values[node.low]
    held = present if node.high == ALWAYS else present * values[node.high]
    if node.low == NEVER:
        return held
    absent = 1.0 - present
    return held + (absent if node.low == ALWAYS else absent * values[node.low])


class _Builder:
    """Builds hash-consed nodes: equal labels with equal children share one node."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.index = {name: place for place, name in enumerate(labels)}
        self.nodes: list[Node] = []
        self.numbers: dict[Node, int] = {}
        self.pairs: dict[tuple[bool, int, int], int] = {}
        self.operations = 0

    def count(self) -> None:
        """Count one operation; raise if the query needs too many."""
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise InputError(_too_large("more operations", MOST_OPERATIONS))

    def build(self, formula: Formula, positive: bool = True) -> int:
        """Return the node of a formula, or of its negation."""
        if isinstance(formula, Label):
            ends = (ALWAYS, NEVER) if positive else (NEVER, ALWAYS)
            return self.number(Node(self.index[formula.name], *ends))
        if isinstance(formula, Not):
            return self.build(formula.part, not positive)
        both = isinstance(formula, And) == positive
        result = ALWAYS if both else NEVER
        # Parts that begin with late labels first: joining n labels then takes n steps, not n².
        parts = [self.build(part, positive) for part in formula.parts]
        for part in sorted(parts, key=self.first_label, reverse=True):
            result = self.combine(both, result, part)
        return result

    def first_label(self, number: int) -> int:
        """Return the index of the label that a node tests; constants come last."""
        return self.nodes[number - 2].label if number > ALWAYS else len(self.index)

    def number(self, node: Node) -> int:
        if node.high == node.low:
            return node.high
        if node not in self.numbers:
            self.count()
            self.nodes.append(node)
            self.numbers[node] = len(self.nodes) + 1
        return self.numbers[node]

    def combine(self, both: bool, one: int, other: int) -> int:
        """Return the node of ``one and other`` or of ``one or other``."""
        stop = NEVER if both else ALWAYS
        if stop in (one, other):
            return stop
        if one <= ALWAYS or one == other:
            return other
        if other <= ALWAYS:
            return one
        key = (both, min(one, other), max(one, other))
        if key not in self.pairs:
            self.count()
            first, second = self.nodes[one - 2], self.nodes[other - 2]
            label = min(first.label, second.label)
            a = (first.high, first.low) if first.label == label else (one, one)
            b = (second.high, second.low) if second.label == label else (other, other)
            high, low = self.combine(both, a[0], b[0]), self.combine(both, a[1], b[1])
            self.pairs[key] = self.number(Node(label, high, low))
        return self.pairs[key]


def _too_large(got: str, bound: int) -> str:
    return (
        f"the query's exact probability must take at most {bound:,} operations; it would need "
        f"{got}. Use fewer labels, or fewer alternatives joined by '&'."
    )


def _reachable(labels: tuple[str, ...], nodes: list[Node], root: int) -> Diagram:
    """Return only the nodes reachable from the root; nodes of later labels come first."""
    order: dict[int, int] = {NEVER: NEVER, ALWAYS: ALWAYS}
    kept: list[Node] = []

    def visit(number: int) -> int:
        if number not in order:
            node = nodes[number - 2]
            kept.append(Node(node.label, *(visit(child) for child in (node.high, node.low))))
            order[number] = len(kept) + 1
        return order[number]

    top = visit(root)
    return Diagram(labels, tuple(kept), top)
