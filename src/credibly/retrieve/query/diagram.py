"""The exact probability of a boolean formula when labels are independent.

A formula becomes a reduced ordered decision diagram (Bryant 1986): each node tests one label,
no label is tested twice on a path, and equal parts are shared. So a label that occurs twice is
counted once, where the product rule would count it twice. The cost is one multiply-add per node.

The arithmetic is part of the definition. Labels are tested in the order of their names, all in
float64 from float32 probabilities, and a node is ``p·high + (1 − p)·low`` with the terms that are
0 or 1 left out. Arrays, SQL and compiled scans follow it literally, so every engine gives the same
bits, and so do formulas that mean the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from credibly.checks import InputError
from credibly.retrieve.query.formula import And, Formula, Label, Not, Query

Keep: TypeAlias = Callable[[Any], Any]

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

    @property
    def signs(self) -> tuple[tuple[int, bool], ...] | None:
        """Return (label, wanted) in order if the formula is a conjunction."""
        chain = []
        for node in reversed(self.nodes):
            if node.low == NEVER:
                chain.append((node.label, True))
            elif node.high == NEVER:
                chain.append((node.label, False))
            else:
                return None
        return tuple(chain) if self.nodes else None


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


def evaluate(found: Diagram, present: Sequence[Any], keep: Keep = lambda value: value) -> Any:
    """Return the probability of the formula from each label's: of every row, or as text.

    Args:
        found: the diagram.
        present: one value per label: float64 columns, or terms of SQL, which have the same
            operators.
        keep: called with every value that is used more than once; returns what to use instead.
    """
    uses = Counter(child for node in found.nodes for child in (node.high, node.low))
    left = dict(uses)
    values: list[Any] = (
        [0.0 * present[0], 0.0 * present[0] + 1.0] if found.root <= ALWAYS else [0, 1]
    )
    for place, node in enumerate(found.nodes, start=2):
        value = _node_value(present[node.label], node, values)
        values.append(keep(value) if uses[place] > 1 else value)
        for child in (node.high, node.low):  # columns that no later node reads are let go
            left[child] -= 1
            if child > ALWAYS and not left[child]:
                values[child] = None
    return values[found.root]


def _node_value(present: Any, node: Node, values: list[Any]) -> Any:
    if node.high == NEVER:
        absent = 1.0 - present
        return absent if node.low == ALWAYS else absent * values[node.low]
    held = present if node.high == ALWAYS else present * values[node.high]
    if node.low == NEVER:
        return held
    absent = 1.0 - present
    return held + (absent if node.low == ALWAYS else absent * values[node.low])


class _Builder:
    """Builds hash-consed nodes: the same label with the same children is the same node."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.index = {name: place for place, name in enumerate(labels)}
        self.nodes: list[Node] = []
        self.numbers: dict[Node, int] = {}
        self.pairs: dict[tuple[bool, int, int], int] = {}
        self.operations = 0

    def count(self) -> None:
        """Count one operation; raise where a query needs too many."""
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise InputError(_too_large("more operations", MOST_OPERATIONS))

    def build(self, formula: Formula) -> int:
        if isinstance(formula, Label):
            return self.number(Node(self.index[formula.name], ALWAYS, NEVER))
        if isinstance(formula, Not):
            return self.negation(self.build(formula.part), {NEVER: ALWAYS, ALWAYS: NEVER})
        both = isinstance(formula, And)
        result = ALWAYS if both else NEVER
        # Those that ask for late labels first: joining n labels then takes n steps, not n².
        for part in sorted(map(self.build, formula.parts), key=self.first_label, reverse=True):
            result = self.combine(both, result, part)
        return result

    def first_label(self, number: int) -> int:
        """Return the label that a node tests; constants test none and come last."""
        return self.nodes[number - 2].label if number > ALWAYS else len(self.index)

    def number(self, node: Node) -> int:
        if node.high == node.low:
            return node.high
        if node not in self.numbers:
            self.count()
            self.nodes.append(node)
            self.numbers[node] = len(self.nodes) + 1
        return self.numbers[node]

    def negation(self, one: int, known: dict[int, int]) -> int:
        if one not in known:
            self.count()
            node = self.nodes[one - 2]
            known[one] = self.number(
                Node(node.label, self.negation(node.high, known), self.negation(node.low, known))
            )
        return known[one]

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
    """Return only the nodes that the root leads to, those of later labels first."""
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
