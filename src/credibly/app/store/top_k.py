"""A served file that holds the most probable labels of each row, for the same pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from credibly import metrics
from credibly.app.server.background import Pending, remembered
from credibly.app.statistics.labels import Confusion, LabelSummary
from credibly.app.statistics.overview import FirstLook
from credibly.app.statistics.top_k import TopLook, top_first_look, top_summary
from credibly.app.store.address import LabelOrder, Rule
from credibly.app.store.files import SHOWN, LabelReport, RowOfLabel, ServedFile
from credibly.app.store.rows import Item, LabelOfRow, Neighbour
from credibly.checks import InputError
from credibly.predictions import Predictions
from credibly.retrieve import Query, parse, probability, search
from credibly.retrieve.answer import Answer
from credibly.retrieve.index import within
from credibly.retrieve.joint.pairs import Together
from credibly.targets import Targets
from credibly.types import Array, JsonObject


class ServedTop(ServedFile):
    """A file with the most probable labels; rows × k numbers are kept in memory."""

    joint = None
    uncalibrated = None
    """There is no view before calibration: other labels might then be the most probable."""

    def __init__(
        self, path: str | os.PathLike[str], *, partial: bool = False, name: str | None = None
    ) -> None:
        super().__init__(path, partial=partial, name=name)
        self._read = Pending(self.scan.read, f"reading {self.size}")
        self._summed = Pending(lambda: top_summary(self.scan), f"measuring {self.size}")

    def reopened(self) -> ServedTop:
        """Return the file as it is now."""
        return ServedTop(self.path, partial=self.partial, name=self._name)

    @property
    def measured(self) -> int:
        """Return how many rows the numbers come from."""
        return self.scan.num_rows

    def release(self) -> None:
        """Keep the rows: they are few."""

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

    def together(self, query: Query) -> list[Together]:
        """Return nothing: most probabilities are not known."""
        return []

    def confusions(self, label: str, limit: float) -> dict[str, list[Confusion]]:
        """Return nothing: most probabilities are not known."""
        return {}

    def ids(self, places: Array) -> list[str]:
        """Return the ids of some rows."""
        return list(map(str, self.rows.ids[places]))

    def neighbours(self, id: str) -> list[Neighbour]:
        """Return nothing: most probabilities are not known."""
        return []

    def atlas(self, asked: LabelOrder) -> Sequence[LabelSummary]:
        """Return labels, those first whose hits differ most from what was expected."""
        summary = self.summary
        order = _ORDERS[asked.sort or "excess"](summary)
        if asked.sort is not None and not asked.down:
            order = order[::-1]
        if asked.contains:
            order = order[np.isin(order, self.named(asked.contains))]
        return _OrderedRows(summary, order)

    @property
    def label_counts(self) -> list[float]:
        """Return how many rows hold each label; empty while not measured."""
        return self.summary.held.tolist() if self._summed.done else []

    def truth_of(self, id: str, labels: Sequence[str]) -> dict[str, int]:
        """Return nothing: only the labels that a row has are kept."""
        return {}

    @remembered
    def label_report(self, label: str) -> LabelReport:
        number, rows = self.column_of(label), self.rows
        where, places = np.nonzero(rows.label_indices == number)
        values = rows.probabilities[where, places]
        best = np.argsort(-values, kind="stable")
        held, known, hits, everywhere = (
            int(getattr(self.summary, name)[number])
            for name in ("held", "known", "hits", "present")
        )
        expected = float(self.summary.expected[number])
        about: JsonObject = {"label": label, "rows": held, "expected": expected}
        if rows.targets is None or rows.all_targets is None or not self.summary.has_truth:
            few = [RowOfLabel(str(rows.ids[where[i]]), float(values[i])) for i in best[:SHOWN]]
            return LabelReport(about, None, None, {"most probable": few})
        about |= {"known": known, "known_expected": expected, "present": hits}
        about |= {"everywhere": everywhere}
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
        numbers, values = (
            rows.label_indices[row][held].tolist(),
            rows.probabilities[row][held].tolist(),
        )
        truth = None if rows.all_targets is None else rows.all_targets[[row]]
        known = truth is not None and (truth.known is None or bool(truth.known[0]))
        present = set() if truth is None else set(truth.indices.tolist())
        lacked = sorted(present - set(numbers))
        limit = float(rule.accept_from)

        def label(number: int, p: float) -> LabelOfRow:
            inside = int(number in present) if known else None
            return LabelOfRow(self.labels[number], p, inside, limit, p >= limit, False, p - limit)

        labels = [label(n, p) for n, p in zip(numbers, values, strict=True)]
        return Item(id, [*labels, *(label(n, 0.0) for n in lacked)], rule.words)


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
    "AP": lambda found: found.by_surprise(),
    "gap": lambda found: found.by_surprise(),
    "excess": lambda found: found.by_surprise(),
    "flag": lambda found: found.by_surprise(),
}
