"""A served file that holds the most probable labels of each row, for the same pages."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly import metrics
from credibly.app.server.background import Pending, remembered
from credibly.app.statistics.labels import LabelSummary
from credibly.app.statistics.overview import FirstLook
from credibly.app.statistics.top_k import top_look
from credibly.app.store.files import SHOWN, LabelReport, RowOfLabel, ServedFile
from credibly.app.store.rows import Item, item_of
from credibly.checks import InputError
from credibly.predictions import Predictions
from credibly.retrieve import parse, probability, search
from credibly.retrieve.answer import Answer
from credibly.retrieve.index import within
from credibly.targets import Targets
from credibly.types import Array, JsonObject

if TYPE_CHECKING:
    from credibly.app.store.store import Rule


class ServedTop(ServedFile):
    """A file with the most probable labels; rows × k numbers are kept in memory."""

    usual_sort = "surprise"

    def __init__(self, path: Path, name: str, *, partial: bool = False) -> None:
        super().__init__(path, name, partial=partial)
        self._summed = Pending(lambda: top_look(self.scan), f"measuring {self.size}")

    def release(self) -> None:
        super().release()
        self._read = Pending(self.scan.read, f"reading {self.size}")

    @property
    def rows(self) -> Predictions:
        """Return all rows."""
        return self._read.result()

    def _first_look(self) -> FirstLook:
        return self._summed.result().first

    def _atlas(self) -> list[LabelSummary]:
        return self._summed.result().labels

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
        return list(map(str, self.rows.ids[places]))

    @remembered
    def label_report(self, label: str) -> LabelReport:
        number, rows = self.column_of(label), self.rows
        where, places = np.nonzero(rows.label_indices == number)
        values = rows.probabilities[where, places]
        best = np.argsort(-values, kind="stable")
        about: JsonObject = {"label": label, "rows": len(where), "expected": float(values.sum())}
        if rows.targets is None or rows.all_targets is None:
            few = [RowOfLabel(str(rows.ids[where[i]]), float(values[i])) for i in best[:SHOWN]]
            return LabelReport(about, None, None, {"most probable": few})
        truth = rows.targets[where, places]
        present = rows.all_targets.entry_rows()[rows.all_targets.indices == number]
        sure, diagram = truth >= 0, None
        about |= {"known": int(sure.sum()), "known_expected": float(values[sure].sum())}
        about |= {"present": int(truth[sure].sum()), "everywhere": len(present)}
        if sure.any():
            diagram = metrics.reliability(values[sure][:, None], Targets(truth[sure][:, None]))

        def listed(value: int) -> list[RowOfLabel]:
            chosen = [i for i in best if truth[i] == value][:SHOWN]
            return [RowOfLabel(str(rows.ids[where[i]]), float(values[i]), value) for i in chosen]

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
        one = rows[found[:1]]
        numbers, p, y = one.label_indices[one.held], one.probabilities[one.held], None
        if one.targets is not None and one.all_targets is not None:
            lacked = np.setdiff1d(one.all_targets.indices, numbers)
            y = np.append(one.targets[one.held], np.ones(len(lacked)))
            numbers, p = np.append(numbers, lacked), np.append(p, np.zeros(len(lacked), p.dtype))
        return item_of(id, [self.labels[number] for number in numbers], p, y, rule)
