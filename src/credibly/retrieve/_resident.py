"""Predictions kept in memory for many queries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.retrieve._answer import Answer, Hit, conditions, holds
from credibly.retrieve._diagram import ALWAYS, Diagram, diagram
from credibly.retrieve._engines import checked_top
from credibly.retrieve._formula import Query
from credibly.retrieve._parts import ID, PROBABILITY, TRUTH, open_parts
from credibly.retrieve._rows import as_query, evaluate_rows
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    from credibly.retrieve._joint import Joint

# A walk this long costs about as much as the scan it wants to save: its reads are scattered.
_WALKED_SHARE = 1 / 400


class Index:
    """Rows resident in memory, label by label, for many queries.

    Rows are kept in the order of their ids, so that equal probabilities come out by id as in every
    other engine. Without ``ids`` rows are called by their number.

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
        ids: Sequence[Any] | Array | None = None,
        targets: ArrayLike | None = None,
    ) -> None:
        chances = checks.matrix("probabilities", np.asarray(to_numpy(probabilities)))
        truth = None if targets is None else np.asarray(to_numpy(targets))
        if truth is not None:
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
        self._set(columns, names, None if truth is None else np.ascontiguousarray(truth.T))

    @classmethod
    def read(cls, path: str | os.PathLike[str], labels: Sequence[str] | None = None) -> Index:
        """Load a predictions file, or a folder of parts; all labels or some, column by column."""
        import pyarrow.dataset as arrow_dataset

        parts = open_parts(path)
        chosen = parts.labels if labels is None else tuple(labels)
        for name in chosen:
            if name not in parts.labels:
                raise InputError(
                    f"{path}: unknown label {name!r}. {checks.nearest(name, parts.labels)}"
                )
        dataset = arrow_dataset.dataset(list(parts.files), format="parquet")
        rows = dataset.count_rows()
        index = cls.__new__(cls)
        index.labels = chosen
        columns = np.empty((len(chosen), rows), np.float32)
        truths = parts.truths.issuperset(chosen)
        targets = np.empty((len(chosen), rows), np.int8) if truths else None
        for place, name in enumerate(chosen):
            columns[place] = _column(dataset, PROBABILITY + name, np.nan)
            if targets is not None:
                soft = _column(dataset, TRUTH + name, -1)
                targets[place] = np.where((soft == 0) | (soft == 1), soft, -1)
        index._set(columns, dataset.to_table(columns=[ID])[ID].combine_chunks(), targets)
        return index

    def _set(self, columns: Array, ids: Any, targets: Array | None) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        checks.probabilities(columns.T)
        if not columns.size:
            raise InputError(f"predictions must have rows and labels; got {columns.T.shape}.")
        if targets is not None:
            checks.target_values(targets.T)
        self._ids: Any = ids if isinstance(ids, pa.Array) else pa.array(ids)
        order = pc.call_function("array_sort_indices", [self._ids]).to_numpy()
        if (np.diff(order.astype(np.int64)) != 1).any():
            self._ids = self._ids.take(pa.array(order))
            for column in columns:  # one at a time: never two whole copies
                column[:] = column[order]
            targets = None if targets is None else targets[:, order]
        self._columns, self._targets = columns, targets
        self._places = {name: place for place, name in enumerate(self.labels)}
        self._masses = columns.sum(axis=1, dtype=np.float64)
        self._orders: dict[int, Array] = {}

    def __len__(self) -> int:
        return self._columns.shape[1]

    def search(
        self, query: str | Query, *, top: int = 20, count: bool = True, joint: Joint | None = None
    ) -> Answer:
        """The best rows for a query.

        ``count=False`` leaves out the expected hits, which need every row. A conjunction with a
        wanted label then walks down the rarest one's probabilities and stops as soon as no further
        row can enter; the order it walks in is sorted once a label, when first used.
        """
        asked = as_query(query, self.labels)
        found, top = diagram(asked), min(checked_top(top), len(self))
        if found.impossible:
            none = {} if self._targets is None else self._truth(found, None)
            return Answer(asked, [], len(self), 0.0 if count else None, contradiction=True, **none)
        values: Array | None = None
        if joint is not None or found.root == 1:
            values = evaluate_rows(found, self._places, self._columns, joint)
            best, rows = _best(values, top)
            total = float(values.sum())
        else:
            best, rows, total = self._ranked(found, top, count)
        known = self._truth(found, values) if count and self._targets is not None else {}
        hits = self._hits(asked, found, best, rows)
        return Answer(asked, hits, len(self), total if count else None, **known)

    def _ranked(self, found: Diagram, top: int, count: bool) -> tuple[Array, Array, float]:
        from credibly.retrieve import _scan

        places = np.array([self._places[name] for name in found.labels])
        wanted = [place for place, sign in found.signs or () if sign]
        if wanted and not count:
            signs = np.array([sign for _, sign in found.signs or ()])
            driver = int(min(places[wanted], key=self._masses.__getitem__))
            visits = int(len(self) * _WALKED_SHARE) + 4 * top
            best, rows, filled = _scan.walk(
                self._columns, self._order(driver), places, signs, driver, top, visits
            )
            if filled >= 0:
                return best, rows, np.nan
        return _scan.scan(self._columns, *self._nodes(found, places), top)

    def _order(self, place: int) -> Array:
        if place not in self._orders:
            self._orders[place] = np.argsort(-self._columns[place], kind="stable").astype(np.int32)
        return self._orders[place]

    def _truth(self, found: Diagram, values: Array | None) -> dict[str, Any]:
        """Rows with known truth, and expected and real hits among them."""
        from credibly.retrieve import _scan

        assert self._targets is not None
        places = np.array([self._places[name] for name in found.labels], np.int64)
        known, expected, real = _scan.count_known(
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
        """The diagram for compiled loops: column, and what follows if present and if not."""
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


def _best(values: Array, top: int) -> tuple[Array, Array]:
    rows = np.argsort(-values, kind="stable")[:top]
    return values[rows], rows


def _column(dataset: Any, name: str, missing: float) -> Array:
    import pyarrow.compute as pc

    column = dataset.to_table(columns=[name])[name]
    return pc.fill_null(column, missing).to_numpy()
