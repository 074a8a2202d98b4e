"""Queries over rows in memory: their probability, and an index for many queries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.checks import InputError
from credibly.predictions import Dataset
from credibly.retrieve.answer import Answer, Hit, checked_top, conditions, holds
from credibly.retrieve.query.diagram import ALWAYS, Diagram, diagram, evaluate
from credibly.retrieve.query.formula import Query
from credibly.retrieve.query.parser import as_query
from credibly.targets import UNKNOWN, Coding, decode
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    import pyarrow as pa

    from credibly.retrieve.joint.model import Joint

_READ_CELLS = 2**24  # values read at a time: 64 MB beside the index itself
# A walk this long costs about as much as the scan it wants to save: its reads are scattered.
_WALKED_SHARE = 1 / 400


class Index:
    """Predictions in memory, label by label, for many queries.

    Rows are kept in the order of their ids, so that equal probabilities come out by id as in every
    other engine.

    Args:
        probabilities: (rows, labels) in [0, 1].
        labels: one name per column.
        ids: one per row, all different; the row numbers if not given.
        targets: (rows, labels) coded as ``credibly.targets`` says, or class indices (rows,).
        coding: how to read targets that are only −1 and +1.

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
        import pyarrow as pa

        chances = checks.matrix("probabilities", np.asarray(to_numpy(probabilities)))
        if not chances.size:
            raise InputError(f"predictions must have rows and labels; got {chances.shape}.")
        checks.probabilities(chances)
        truth = None
        if targets is not None:
            truth = decode(targets, coding=coding, num_labels=chances.shape[1])
            checks.same_shapes(probabilities=chances, targets=truth)
        self.labels = tuple(str(name) for name in labels)
        if len(self.labels) != chances.shape[1] or len(set(self.labels)) != len(self.labels):
            raise InputError(
                f"`labels` must name each of the {chances.shape[1]} columns once; got "
                f"{len(self.labels)} names, {len(set(self.labels))} different."
            )
        names = list(range(len(chances))) if ids is None else np.asarray(ids).tolist()
        if len(names) != len(chances):
            raise InputError(f"`ids` must name {len(chances)} rows; got {len(names)}.")
        # Label-major and contiguous: a query reads its own labels' columns and nothing else.
        columns = np.ascontiguousarray(chances.T, np.float32)
        held = None if truth is None else np.ascontiguousarray(truth.T)
        self._set(columns, pa.array(names), held, "")

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        labels: Sequence[str] | None = None,
        *,
        partial: bool = False,
    ) -> Index:
        """Read a predictions file, or a folder of shards; all labels or some of them.

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
                hard = (truth == 0) | (truth == 1)  # soft truth is no truth to count by
                targets[first : first + width] = np.where(hard, truth, UNKNOWN).T
        index._set(columns, dataset.arrow_ids(), targets, f"{path}: ")
        return index

    def _set(self, columns: Array, ids: pa.Array, targets: Array | None, where: str) -> None:
        """Keep checked columns in the order of their ids, which must differ."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._ids: Any = ids
        order = pc.call_function("array_sort_indices", [self._ids]).to_numpy()
        if (np.diff(order.astype(np.int64)) != 1).any():
            self._ids = self._ids.take(pa.array(order))
            for column in columns:  # one at a time: never two full copies
                column[:] = column[order]
            targets = None if targets is None else targets[:, order]
        same = pc.call_function("equal", [self._ids[1:], self._ids[:-1]])
        if place := pc.call_function("index", [same], pc.IndexOptions(pa.scalar(True))).as_py() + 1:
            raise InputError(
                f"{where}ids must differ; {self._ids[place].as_py()!r} is there twice. Drop one of "
                "the rows or make the ids distinct."
            )
        self._columns, self._targets = columns, targets
        self._places = {name: place for place, name in enumerate(self.labels)}
        self._masses = columns.sum(axis=1, dtype=np.float64)
        self._orders: dict[int, Array] = {}
        self._prepared: tuple[str | None, Any] = (None, None)

    def __len__(self) -> int:
        return self._columns.shape[1]

    @property
    def has_targets(self) -> bool:
        """Whether the truth of the rows is there."""
        return self._targets is not None

    def column_block(self, first: int, last: int) -> tuple[Array, Array | None]:
        """Return probabilities and targets of the labels ``first`` to ``last``, (labels, rows).

        They are views, in the order of ``ids``; nothing is copied. Soft targets are unknown here.
        """
        truth = None if self._targets is None else self._targets[first:last]
        return self._columns[first:last], truth

    def row(self, place: int) -> tuple[Array, Array | None]:
        """Return probabilities and targets of the row at a place in the order of ``ids``."""
        truth = None if self._targets is None else self._targets[:, place]
        return self._columns[:, place], truth

    def ids(self, places: Sequence[int] | Array | None = None) -> list[Any]:
        """Return the ids at some places, or all of them; they are sorted."""
        import pyarrow as pa

        chosen = self._ids if places is None else self._ids.take(pa.array(places, pa.int64()))
        return chosen.to_pylist()

    def place(self, id: object) -> int | None:
        """Return the place of an id among the sorted ids; None where there is no such row.

        Example:
            >>> index = Index([[0.9], [0.8]], labels=["fork"], ids=["b", "a"])
            >>> index.place("b"), index.place("c"), index.ids([0])
            (1, None, ['a'])
        """
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._ids[middle].as_py() < id:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._ids[low].as_py() == id else None

    def places_in(self, other: Index) -> Array:
        """Return, for each row in the order of ``ids``, its place in another index; −1 if absent.

        Example:
            >>> one = Index([[0.9], [0.8]], labels=["fork"], ids=["a", "c"])
            >>> one.places_in(Index([[0.9], [0.8]], labels=["fork"], ids=["b", "c"]))
            array([-1,  1])
        """
        import pyarrow.compute as pc

        if self._ids.equals(other._ids):
            return np.arange(len(self))
        found = pc.call_function("index_in", [self._ids], pc.SetLookupOptions(other._ids))
        return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)

    def search(
        self,
        query: str | Query,
        *,
        top: int = 20,
        count: bool = True,
        joint: Joint | None = None,
    ) -> Answer:
        """Return the best rows for a query.

        Args:
            query: text (see ``parse``) or a ``Query``.
            top: how many rows to return.
            count: whether to sum the expected hits, which needs every row. Without it, a
                conjunction with a wanted label walks down the rarest one's probabilities and stops
                as soon as no further row can enter; the order of the walk is sorted once per
                label, when first used.
            joint: a fitted joint model, for labels that depend on each other. What its queries
                share is computed at its first one and kept until another model is used.
        """
        from credibly.retrieve import memory_kernels

        asked = as_query(query, self.labels)
        found, top = diagram(asked), min(checked_top(top), len(self))
        if found.impossible:
            none = {} if self._targets is None else self._truth(found, None)
            return Answer(asked, [], len(self), 0.0 if count else None, contradiction=True, **none)
        values: Array | None = None
        if joint is not None and not (count and self._targets is not None):
            prepared = self._prepare(joint)
            best, rows, total = joint.best_columns(
                found, self._places, self._columns, prepared, top
            )
        elif joint is not None or found.root == 1:
            values = self._values(found, joint)
            best, rows, total = memory_kernels.best_of(values, top)
        else:
            best, rows, total = self._ranked(found, top, count)
        known = self._truth(found, values) if count and self._targets is not None else {}
        hits = self._hits(asked, found, best, rows)
        return Answer(asked, hits, len(self), total if count else None, **known)

    def _values(self, found: Diagram, joint: Joint | None) -> Array:
        if joint is None:
            return evaluate_rows(found, self._places, self._columns, None)
        prepared = self._prepare(joint)
        return joint.evaluate_columns(found, self._places, self._columns, prepared)

    def _prepare(self, joint: Joint) -> Any:
        """Return what the queries of a joint model share, computed at its first one."""
        if self._prepared[0] != joint.digest:
            joint.check(self.labels)
            self._prepared = (joint.digest, joint.prepare(self._places, self._columns))
        return self._prepared[1]

    def _ranked(self, found: Diagram, top: int, count: bool) -> tuple[Array, Array, float]:
        from credibly.retrieve import memory_kernels

        places = np.array([self._places[name] for name in found.labels])
        wanted = [place for place, sign in found.signs or () if sign]
        if wanted and not count:
            signs = np.array([sign for _, sign in found.signs or ()])
            driver = int(min(places[wanted], key=self._masses.__getitem__))
            visits = int(len(self) * _WALKED_SHARE) + 4 * top
            best, rows, filled = memory_kernels.walk(
                self._columns, self._order(driver), places, signs, driver, top, visits
            )
            if filled >= 0:
                return best, rows, np.nan
        return memory_kernels.scan(self._columns, *self._nodes(found, places), top)

    def _order(self, place: int) -> Array:
        if place not in self._orders:
            self._orders[place] = np.argsort(-self._columns[place], kind="stable").astype(np.int32)
        return self._orders[place]

    def _truth(self, found: Diagram, values: Array | None) -> dict[str, Any]:
        """Return the number of rows with known truth, and expected and real hits among them."""
        from credibly.retrieve import memory_kernels

        assert self._targets is not None
        places = np.array([self._places[name] for name in found.labels], np.int64)
        known, expected, real = memory_kernels.count_known(
            self._columns, self._targets, places, *self._nodes(found, places)
        )
        rows = int(known.sum())
        if not rows:
            return {}
        if found.root <= ALWAYS:  # without a node: nothing, or everything, satisfies it
            expected, real = float(rows * found.root), rows * found.root
        if values is not None:
            expected = float(values[known].sum())
        return {"known_rows": rows, "known_expected": expected, "known_hits": int(real)}

    def _nodes(self, found: Diagram, places: Array) -> tuple[Array, Array, Array]:
        """Return the diagram for compiled loops: column, next node if present, next node if not."""
        asks = np.array([places[node.label] for node in found.nodes], np.int64)
        highs = np.array([node.high for node in found.nodes], np.int64)
        lows = np.array([node.low for node in found.nodes], np.int64)
        return asks, highs, lows

    def _hits(self, asked: Query, found: Diagram, best: Array, rows: Array) -> list[Hit]:
        import pyarrow as pa

        texts, names, signs = zip(*conditions(asked), strict=True)
        cells = np.ix_([self._places[name] for name in names], rows.tolist())
        ids = self._ids.take(pa.array(rows)).to_pylist()
        chances = self._columns[cells].astype(np.float64)
        chances = np.where(np.array(signs)[:, None], chances, 1.0 - chances).T.tolist()
        truths: list[bool | None] = [None] * len(ids)
        if self._targets is not None:
            seen = self._targets[cells].T.tolist()
            truths = [holds(found, dict(zip(names, row, strict=True))) for row in seen]
        return [
            Hit(name, value, dict(zip(texts, each, strict=True)), truth)
            for name, value, each, truth in zip(ids, best.tolist(), chances, truths, strict=True)
        ]


def probability(
    query: str | Query,
    probabilities: ArrayLike,
    labels: Sequence[str],
    joint: Joint | None = None,
) -> Array:
    """Return the probability that each row satisfies the query.

    Labels are independent unless a ``joint`` is given.

    A conjunction is the product of its conditions' probabilities; any other formula is exact too,
    a label that occurs twice included. Probabilities count as float32, as files hold them.

    Example:
        >>> probability("dog | cat & dog", [[0.5, 0.25]], labels=["dog", "cat"])
        array([0.5])
    """
    chances = np.asarray(to_numpy(probabilities), np.float32)
    checks.matrix("probabilities", chances)
    checks.probabilities(chances)
    names = {name: place for place, name in enumerate(labels)}
    if len(names) != chances.shape[1]:
        raise InputError(
            f"`labels` must name each of the {chances.shape[1]} columns once; got {len(names)}."
        )
    asked = as_query(query, list(names))
    found = diagram(asked)
    return like(evaluate_rows(found, names, chances.T, joint), probabilities)


def evaluate_rows(
    found: Diagram, names: dict[str, int], columns: Array, joint: Joint | None
) -> Array:
    """Return the same from float32 ``columns`` of shape (labels, rows)."""
    if joint is None:
        return evaluate(found, [columns[names[x]].astype(np.float64) for x in found.labels])
    joint.check(list(names))
    return joint.evaluate_columns(found, names, np.ascontiguousarray(columns))
