"""Query rows in memory: probabilities of a query, and an index for many queries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.checks import InputError
from credibly.compiled import compiled
from credibly.predictions import Dataset
from credibly.retrieve.answer import Answer, Hit, conditions, holds
from credibly.retrieve.query import ALWAYS, NEVER, Diagram, Node, Query, as_query, diagram, evaluate
from credibly.targets import UNKNOWN, Coding, decode
from credibly.types import Array, ArrayLike, FilePath

if TYPE_CHECKING:
    from credibly.retrieve.joint.model import Joint

_BLOCK = 256  # so that all nodes of a block stay in the first-level cache


@compiled(error_model="numpy", nogil=True)
def _node(present, label_high, label_low, values, out):
    """Evaluate one node on one block of rows, without the terms that are 0 or 1."""
    rows = present.size
    high, low = values[label_high], values[label_low]
    if label_high == 0:
        if label_low == 1:
            for i in range(rows):
                out[i] = 1.0 - np.float64(present[i])
        else:
            for i in range(rows):
                out[i] = (1.0 - np.float64(present[i])) * low[i]
    elif label_low == 0:
        if label_high == 1:
            for i in range(rows):
                out[i] = np.float64(present[i])
        else:
            for i in range(rows):
                out[i] = np.float64(present[i]) * high[i]
    else:  # multiplying by 1 is exact, so terms of 0 or 1 need no cases here
        for i in range(rows):
            held = np.float64(present[i])
            out[i] = held * high[i] + (1.0 - held) * low[i]


@compiled(error_model="numpy", nogil=True)
def _truth_node(truth, high, low, out):
    """Write the truth of the next node for each row of a block; the truth must be 0 or 1."""
    for i in range(truth.size):  # bytes: wider integers would be 8 times slower
        there = np.uint8(truth[i])
        absent = np.uint8(there ^ np.uint8(1))
        out[i] = np.uint8(np.uint8(high[i] & there) | np.uint8(low[i] & absent))


@compiled(error_model="numpy", nogil=True)
def _known(truth, out):
    """Mark the rows of a block whose truth is 0 or 1."""
    for i in range(truth.size):
        out[i] &= np.uint8(truth[i]) <= 1


@compiled(error_model="numpy", nogil=True, fastmath={"reassoc", "nsz"})
def _sum_of(values, where):
    """Return the sum of a block, and the sum of its rows with ``where`` 1."""
    total, inside = 0.0, 0.0
    for i in range(values.size):
        total += values[i]
        inside += values[i] * where[i]
    return total, inside


@compiled(error_model="numpy", nogil=True)
def _count_above(values, bar):
    """Return the number of values in a block above ``bar``."""
    above = 0
    for i in range(values.size):
        above += values[i] > bar
    return above


@compiled(error_model="numpy", nogil=True)
def _count_both(one, other):
    """Return the number of rows in a block in which both are 1."""
    both = 0
    for i in range(one.size):
        both += one[i] & other[i]
    return both


@compiled(error_model="numpy", nogil=True)
def _keep_best(values, rows, filled, top):
    """Sort candidates by descending value, then row; keep ``top`` and return how many remain."""
    by_row = np.argsort(rows[:filled])
    by_value = np.argsort(-values[:filled][by_row], kind="mergesort")
    kept = min(top, filled)
    order = by_row[by_value[:kept]]
    best_values, best_rows = values[order], rows[order]
    values[:kept], rows[:kept] = best_values, best_rows
    return kept


@compiled(error_model="numpy", nogil=True)
def scan(columns, nodes, targets, truth_nodes, labels, top):
    """Evaluate a diagram on every row; return the best values, their rows, and sums.

    The first sum is the total over all rows. The others are over rows whose truth is known for all
    ``labels``: their number, the total, and the number that satisfies ``truth_nodes``. They are 0
    if ``targets`` has no rows. Nodes are three arrays: column, next node if present, next node if
    absent.
    """
    asks, highs, lows = nodes
    truth_asks, truth_highs, truth_lows = truth_nodes
    rows, judged = columns.shape[1], targets.shape[0] > 0
    values = np.empty((asks.size + 2, _BLOCK))
    values[0], values[1] = 0.0, 1.0
    truths = np.zeros((truth_asks.size + 2, _BLOCK), np.uint8)
    truths[1] = 1
    known = np.zeros(_BLOCK, np.uint8)
    kept_values = np.empty(top + 2 * _BLOCK)
    kept_rows = np.empty(top + 2 * _BLOCK, np.int64)
    filled, bar, sums = 0, -1.0, np.zeros(4)
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        for node in range(asks.size):
            _node(
                columns[asks[node], start:stop], highs[node], lows[node], values, values[node + 2]
            )
        block = values[asks.size + 1, : stop - start]
        if judged:
            known[:] = 1
            for label in labels:
                _known(targets[label, start:stop], known)
            for node in range(truth_asks.size):
                truth = targets[truth_asks[node], start:stop]
                high, low = truths[truth_highs[node]], truths[truth_lows[node]]
                _truth_node(truth, high, low, truths[node + 2])
            seen = known[: stop - start]
            sums[1] += _count_both(seen, seen)
            sums[3] += _count_both(seen, truths[truth_asks.size + 1])
        total, inside = _sum_of(block, known)
        sums[0] += total
        sums[2] += inside
        # Rows come in order, so a later row that only equals the bar is never kept.
        if _count_above(block, bar) > 0:
            for i in range(stop - start):
                if block[i] > bar:
                    kept_values[filled], kept_rows[filled] = block[i], start + i
                    filled += 1
            if filled >= top and (bar < 0 or filled > top + _BLOCK):
                filled = _keep_best(kept_values, kept_rows, filled, top)
                bar = kept_values[filled - 1]
    filled = _keep_best(kept_values, kept_rows, filled, top)
    return kept_values[:filled].copy(), kept_rows[:filled].copy(), sums


_READ_CELLS = 2**24  # values read at a time: 64 MB besides the index itself


class Index:
    """An index of predictions in memory, for many queries.

    Rows are kept in the order of their ids, so rows with equal probability are returned by id, as
    in every other engine.

    Args:
        probabilities: (rows, labels) in [0, 1].
        labels: one name per column.
        ids: one per row, all different; by default the row indices.
        targets: (rows, labels) coded as ``credibly.targets`` says, or class indices (rows,).
        coding: how to read targets of only −1 and +1.

    Example:
        >>> index = Index([[0.9, 0.2], [0.8, 0.7]], labels=["fork", "knife"], ids=["a", "b"])
        >>> answer = index.search("+fork -knife", top=1)
        >>> answer.ids, round(answer.expected_hits, 2)
        (['a'], 0.96)
    """

    def __init__(
        self,
        probabilities: ArrayLike,
        labels: Sequence[str],
        ids: Sequence[object] | Array | None = None,
        targets: ArrayLike | None = None,
        *,
        coding: Coding | None = None,
    ) -> None:
        chances, names = named_columns(probabilities, labels)
        if not chances.size:
            raise InputError(f"predictions must have rows and labels; got {chances.shape}.")
        truth = None
        if targets is not None:
            truth = decode(targets, coding=coding, num_labels=chances.shape[1])
            checks.same_shapes(probabilities=chances, targets=truth)
        self.labels = tuple(names)
        rows = list(range(len(chances))) if ids is None else np.asarray(ids).tolist()
        if len(rows) != len(chances):
            raise InputError(f"`ids` must name {len(chances)} rows; got {len(rows)}.")
        # Label-major and contiguous, so a query reads only the columns of its labels.
        columns = np.ascontiguousarray(chances.T, np.float32)
        held = None if truth is None else np.ascontiguousarray(hard(truth).T)
        self._set(columns, pa.array(rows), held, "")

    @classmethod
    def read(
        cls,
        path: FilePath,
        labels: Sequence[str] | None = None,
        *,
        partial: bool = False,
    ) -> Index:
        """Read a predictions file, or a folder of shards, with all or some of the labels.

        A folder that lacks shards is an error unless ``partial``.
        """
        dataset = Dataset(path, partial=partial)
        index = cls.__new__(cls)
        index.labels = tuple(dataset.check_labels(labels))
        columns = np.empty((len(index.labels), dataset.num_rows), np.float32)
        targets = np.empty(columns.shape, np.int8) if dataset.has_targets else None
        width = max(1, _READ_CELLS // dataset.num_rows)
        for first in range(0, len(index.labels), width):
            names = index.labels[first : first + width]
            values, truth = dataset.columns(names, label_major=True)
            columns[first : first + width] = values.T
            if targets is not None and truth is not None:
                targets[first : first + width] = hard(truth).T
        index._set(columns, dataset.arrow_ids(), targets, f"{path}: ")
        return index

    def _set(self, columns: Array, ids: pa.Array, targets: Array | None, where: str) -> None:
        """Store checked columns in the order of their ids, which must be distinct."""
        self._ids = ids
        # Arrow's `to_numpy` and `scalar` would import pandas.
        sorted_rows = pc.call_function("array_sort_indices", [self._ids])
        order = np.from_dlpack(sorted_rows).astype(np.int64)
        if (np.diff(order) != 1).any():
            self._ids = self._ids.take(sorted_rows)
            for column in columns:  # one at a time, to avoid a second copy of all
                column[:] = column[order]
            targets = None if targets is None else np.take(targets, order, axis=1)
        same = pc.call_function("equal", [self._ids[1:], self._ids[:-1]])
        repeated = np.flatnonzero(np.from_dlpack(same.cast(pa.int8())))
        if len(repeated):
            place = int(repeated[0]) + 1
            raise InputError(
                f"{where}ids must be different; {self._ids[place].as_py()!r} appears twice. Drop "
                "one of the rows or make the ids distinct."
            )
        self._columns, self._targets = columns, targets
        self._places = {name: place for place, name in enumerate(self.labels)}
        self._prepared: tuple[str | None, Array | None] = (None, None)

    def __len__(self) -> int:
        return self._columns.shape[1]

    @property
    def has_targets(self) -> bool:
        """Whether the rows have truth."""
        return self._targets is not None

    def column_block(self, first: int, last: int) -> tuple[Array, Array | None]:
        """Return probabilities and targets of the labels ``first`` to ``last``, (labels, rows).

        They are views in the order of ``ids``, without a copy. Soft targets are unknown.
        """
        truth = None if self._targets is None else self._targets[first:last]
        return self._columns[first:last], truth

    def row(self, place: int) -> tuple[Array, Array | None]:
        """Return probabilities and targets of the row with this index in the order of ``ids``."""
        truth = None if self._targets is None else self._targets[:, place]
        return self._columns[:, place], truth

    def ids(self, places: Sequence[int] | Array | None = None) -> list[object]:
        """Return the ids at these indices, or all ids; they are sorted."""
        if places is None:
            return self._ids.to_pylist()
        return [self._ids[place].as_py() for place in np.asarray(places).tolist()]

    def place(self, id: str) -> int | None:
        """Return the index of an id among the sorted ids, or None if there is no such row.

        Example:
            >>> index = Index([[0.9], [0.8]], labels=["fork"], ids=["b", "a"])
            >>> index.place("b"), index.place("c"), index.ids([0])
            (1, None, ['a'])
        """
        found = bisect_left(self._ids, id, key=lambda name: name.as_py())
        return found if found < len(self) and self._ids[found].as_py() == id else None

    def places_in(self, other: Index) -> Array:
        """Return the index in another index of each row, in the order of ``ids``; −1 if absent.

        Example:
            >>> one = Index([[0.9], [0.8]], labels=["fork"], ids=["a", "c"])
            >>> one.places_in(Index([[0.9], [0.8]], labels=["fork"], ids=["b", "c"]))
            array([-1,  1])
        """
        if self._ids.equals(other._ids):
            return np.arange(len(self))
        found = pc.call_function("index_in", [self._ids], pc.SetLookupOptions(other._ids))
        return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)

    def search(
        self,
        query: str | Query,
        *,
        top: int = 20,
        joint: Joint | None = None,
        between: tuple[float, float] | None = None,
    ) -> Answer:
        """Return the best rows for a query.

        Args:
            query: text (see ``parse``) or a ``Query``.
            top: number of rows to return.
            joint: a fitted joint model, for labels that depend on each other. The first query with
                it computes values that later queries with the same model share.
            between: the lowest and the highest probability; other rows are neither returned nor
                counted.
        """
        asked = as_query(query, self.labels)
        found, top = diagram(asked), min(checks.whole_number("top", top, 1), len(self))
        places = np.array([self._places[name] for name in found.labels], np.int64)
        truth_nodes = _nodes(found, places)
        columns, nodes = self._columns, truth_nodes
        if joint is not None or found.root <= ALWAYS or between is not None:
            if joint is not None and self._prepared[0] != joint.digest:
                joint.check(self.labels)
                self._prepared = (joint.digest, joint.prepare(self._places, self._columns))
            columns = evaluate_rows(found, self._places, columns, joint, self._prepared[1])[None]
            nodes = _nodes(_IDENTITY, np.zeros(1, np.int64))
        targets = np.empty((0, 0), np.int8) if self._targets is None else self._targets
        inside = None
        if between is not None:
            inside = np.flatnonzero(within(columns[0], between))
            columns = np.ascontiguousarray(columns[:, inside])
            if self._targets is not None:
                targets = np.ascontiguousarray(targets[np.ix_(places, inside)])
                places = np.arange(len(places))
                truth_nodes = _nodes(found, places)
        best, rows, sums = scan(columns, nodes, targets, truth_nodes, places, top)
        total, known, expected, real = sums.tolist()
        rows = rows if inside is None else inside[rows]
        hits = [] if found.impossible else self._hits(asked, found, best, rows)
        sums = (columns.shape[1], total, known, expected, real * (not found.impossible))
        return Answer.of_sums(asked, hits, sums, contradiction=found.impossible)

    def _hits(self, asked: Query, found: Diagram, best: Array, rows: Array) -> list[Hit]:
        cells = np.ix_([self._places[name] for name in found.labels], rows.tolist())
        each = map(conditions(asked, found.labels), self._columns[cells].T.tolist())
        truths: Iterable[bool | None] = [None] * len(rows)
        if self._targets is not None:
            truths = [holds(found, row) for row in self._targets[cells].T.tolist()]
        return list(map(Hit, self.ids(rows), best.tolist(), each, truths))


def probability(
    query: str | Query,
    probabilities: ArrayLike,
    labels: Sequence[str],
    joint: Joint | None = None,
) -> Array:
    """Return the probability that each row satisfies the query.

    Labels are independent unless a ``joint`` is given.

    The probability of a conjunction is the product of its conditions' probabilities. Any other
    formula is exact too, also if a label occurs twice. Probabilities are rounded to float32, as in
    files.

    Example:
        >>> probability("dog | cat & dog", [[0.5, 0.25]], labels=["dog", "cat"])
        array([0.5])
    """
    chances, known = named_columns(probabilities, labels)
    found, names = diagram(as_query(query, known)), {name: at for at, name in enumerate(known)}
    columns = chances.T.astype(np.float32, copy=False)
    return like(evaluate_rows(found, names, columns, joint), probabilities)


def within(probabilities: Array, between: tuple[float, float]) -> Array:
    """Return which probabilities lie in a closed range, compared in float32 as in files."""
    low, high = between
    held = probabilities.astype(np.float32, copy=False)
    return (held >= np.float32(low)) & (held <= np.float32(high))


def named_columns(probabilities: ArrayLike, labels: Sequence[str]) -> tuple[Array, list[str]]:
    """Return checked probabilities, (rows, labels), and the names of their columns."""
    chances, names = to_numpy(probabilities), [str(name) for name in labels]
    checks.probabilities(checks.matrix("probabilities", chances))
    if len(names) != chances.shape[1] or len(set(names)) != len(names):
        raise InputError(
            f"`labels` must name each of the {chances.shape[1]} columns once; got {len(names)} "
            f"names, {len(set(names))} different."
        )
    return chances, names


def evaluate_rows(
    found: Diagram,
    names: dict[str, int],
    columns: Array,
    joint: Joint | None,
    prepared: Array | None = None,
) -> Array:
    """Return the same as ``probability`` from float32 ``columns`` of shape (labels, rows)."""
    if joint is None:
        return evaluate(found, [columns[names[x]].astype(np.float64) for x in found.labels])
    joint.check(list(names))
    return joint.evaluate_columns(found, names, np.ascontiguousarray(columns), prepared)


def hard(truth: Array) -> Array:
    """Return truth as int8; soft values become unknown because hits cannot be counted by them."""
    return np.where((truth == 0) | (truth == 1), truth, UNKNOWN).astype(np.int8)


_IDENTITY = Diagram(("",), (Node(0, ALWAYS, NEVER),), 2)
"""The diagram of one column as it is."""


def _nodes(found: Diagram, places: Array) -> tuple[Array, Array, Array]:
    """Return the diagram for the scan: column, next node if present, next node if not."""
    asks = np.array([places[node.label] for node in found.nodes], np.int64)
    highs = np.array([node.high for node in found.nodes], np.int64)
    lows = np.array([node.low for node in found.nodes], np.int64)
    return asks, highs, lows
