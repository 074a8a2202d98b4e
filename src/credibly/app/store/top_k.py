"""A served file that holds the most probable labels of each row, for the same pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from credibly import metrics
from credibly.app.server.background import Pending, remembered
from credibly.app.statistics.labels import LabelSummary
from credibly.app.statistics.overview import FirstLook
from credibly.app.statistics.top_k import TopLook, top_first_look, top_summary
from credibly.app.store.address import LabelOrder, Rule
from credibly.app.store.files import SHOWN, LabelReport, RowOfLabel, ServedFile
from credibly.app.store.rows import Item, LabelOfRow
from credibly.checks import InputError
from credibly.predictions import Predictions
from credibly.retrieve import parse, probability, search
from credibly.retrieve.answer import Answer
from credibly.retrieve.index import within
from credibly.targets import Targets
from credibly.types import Array, JsonObject


class ServedTop(ServedFile):
    """A file with the most probable labels; rows × k numbers are kept in memory."""

    def __init__(self, path: Path, name: str, *, partial: bool = False) -> None:
        super().__init__(path, name, partial=partial)
        self._summed = Pending(lambda: top_summary(self.scan), f"measuring {self.size}")

    def release(self) -> None:
        super().release()
        self._read = Pending(self.scan.read, f"reading {self.size}")

    @property
    def rows(self) -> Predictions:
        """Return all rows."""
        return self._read.result()

    @property
    def summary(self) -> TopLook:
        """Return what the rows are worth."""
        return self._summed.result()

    def _first_look(self) -> FirstLook:
        return top_first_look(self.summary)

    def search(self, query: str, top: int, between: tuple[float, float] | None = None) -> Answer:
        """Return the most probable rows for a query; a label that a row does not hold is absent."""
        rows = self.rows
        if between is not None:
            asked = parse(query, self.labels)
            few = rows.select(asked.labels)
            rows = rows[within(probability(asked, few.probabilities, asked.labels), between)]
        return search(rows, query, top=top)

    @cached_property
    def highest(self) -> Array:
        return self.rows.probabilities.max(1)

    def ids(self, places: Array) -> list[str]:
        """Return the ids of some rows."""
        return list(map(str, self.rows.ids[places]))

    def atlas(self, asked: LabelOrder) -> Sequence[LabelSummary]:
        """Return labels, those first whose hits differ most from what was expected."""
        summary = self.summary
        order = _ORDERS.get(asked.sort or "", TopLook.by_surprise)(summary)
        if asked.sort is not None and not asked.down:
            order = order[::-1]
        if asked.contains:
            order = order[np.isin(order, self.named(asked.contains))]
        return _OrderedRows(summary, order)

    @property
    def label_counts(self) -> list[float]:
        """Return how many rows hold each label; empty while not measured."""
        return self.summary.held.tolist() if self._summed.done else []

    @remembered
    def label_report(self, label: str) -> LabelReport:
        number, rows = self.column_of(label), self.rows
        where, places = np.nonzero(rows.label_indices == number)
        values = rows.probabilities[where, places]
        best = np.argsort(-values, kind="stable")
        found = self.summary
        expected = float(found.expected[number])
        about: JsonObject = {"label": label, "rows": int(found.held[number]), "expected": expected}
        if rows.targets is None or rows.all_targets is None or not found.has_truth:
            few = [RowOfLabel(str(rows.ids[where[i]]), float(values[i])) for i in best[:SHOWN]]
            return LabelReport(about, None, None, {"most probable": few})
        about |= {"known": int(found.known[number]), "known_expected": expected}
        about |= {"present": int(found.hits[number]), "everywhere": int(found.present[number])}
        truth = rows.targets[where, places]
        sure, diagram = truth >= 0, None
        if sure.any():
            diagram = metrics.reliability(values[sure][:, None], Targets(truth[sure][:, None]))

        def listed(value: int) -> list[RowOfLabel]:
            chosen = [i for i in best if truth[i] == value][:SHOWN]
            return [RowOfLabel(str(rows.ids[where[i]]), float(values[i]), value) for i in chosen]

        present = rows.all_targets.entry_rows()[rows.all_targets.indices == number]
        unheld = np.setdiff1d(present, where)[:SHOWN]
        missed = [RowOfLabel(str(rows.ids[row]), None, 1) for row in unheld]
        groups = {"right": listed(1), "wrong": listed(0), "missed": missed}
        return LabelReport(about, diagram, None, groups)

    def item(self, id: str, rule: Rule) -> Item:
        """Return one row by its id: the labels it holds, and those it has and does not hold."""
        rows = self.rows
        found = np.flatnonzero(rows.ids == id)
        if not len(found):
            raise InputError(f"there is no row with the id {id[:200]!r} in {self.name}.")
        row = int(found[0])
        held = rows.held[row]
        numbers = rows.label_indices[row][held].tolist()
        values = rows.probabilities[row][held].tolist()
        truth = None if rows.all_targets is None else rows.all_targets[[row]]
        known = truth is not None and (truth.known is None or bool(truth.known[0]))
        present = set() if truth is None else set(truth.indices.tolist())
        lacked = sorted(present - set(numbers))
        limit = float(rule.accept_from)
        labels = [
            LabelOfRow(
                self.labels[number],
                p,
                int(number in present) if known else None,
                limit,
                chosen=p >= limit,
                look=False,
                distance=p - limit,
            )
            for number, p in zip([*numbers, *lacked], [*values, *[0.0] * len(lacked)], strict=True)
        ]
        return Item(id, labels, rule.words)


class _OrderedRows(Sequence[LabelSummary]):
    """Labels in an order, each made when it is asked for: there may be a million."""

    def __init__(self, summary: TopLook, order: Array) -> None:
        self._summary, self._order = summary, order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self._summary.row(int(each)) for each in self._order[which]]
        return self._summary.row(int(self._order[which]))


_ORDERS: dict[str, Callable[[TopLook], Array]] = {
    "label": lambda found: np.arange(len(found.names))[::-1],
    "known": lambda found: np.argsort(-found.held, kind="stable"),
    "rate": lambda found: np.argsort(-found.hits, kind="stable"),
}
