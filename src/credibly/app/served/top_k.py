"""One file with the most probable labels of each row, opened for serving."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from threading import RLock

import numpy as np
from markupsafe import Markup

from credibly import metrics
from credibly.app.charts import reliability_chart
from credibly.app.server.uploads import Uploads
from credibly.app.views.top_k import TopLabelSummary, TopSummary, top_summary
from credibly.checks import InputError, nearest
from credibly.data import ImageFolder
from credibly.predictions import Dataset, Predictions
from credibly.predictions.dataset import identity
from credibly.retrieve import Answer, search
from credibly.retrieve.query.parser import folded
from credibly.targets import Targets
from credibly.types import Array

SHOWN = 12  # rows of each kind on the page of a label
KEPT = 256  # labels remembered


@dataclass(frozen=True)
class HeldRow:
    """A row with the probability of one label; None where the row does not hold it."""

    id: str
    probability: float | None


@dataclass(frozen=True)
class HeldLabel:
    """One label of a row: its probability, and 1, 0 or None, whether it is there."""

    label: str
    probability: float
    truth: int | None


@dataclass(frozen=True)
class TopItem:
    """One row: the labels it holds, and those it has but does not hold."""

    id: str
    labels: list[HeldLabel]
    missed: list[str]
    known: bool


@dataclass(frozen=True)
class TopLabelReport:
    """All that the page of a label says."""

    about: TopLabelSummary
    chart: Markup
    best: list[HeldRow]
    false_alarms: list[HeldRow]
    missed: list[HeldRow]


class ServedTop:
    """A file with the most probable labels; rows × k numbers are kept in memory."""

    uncalibrated = None
    """There is no view before calibration: other labels might then be the most probable."""

    def __init__(
        self, path: str | os.PathLike[str], *, partial: bool = False, name: str | None = None
    ) -> None:
        self.path = Path(path)
        self.name = name or self.path.stem
        self.identity = identity(path)  # before the file is opened: it may be replaced meanwhile
        self.partial = partial
        self.scan = Dataset(path, partial=partial)
        self.labels = self.scan.labels
        self._lock = RLock()
        self.label_report = lru_cache(maxsize=KEPT)(self._label_report)

    def reopened(self) -> ServedTop:
        """Return the file as it is now."""
        return ServedTop(self.path, partial=self.partial, name=self.name)

    @property
    def has_truth(self) -> bool:
        return self.scan.has_targets

    # The first to ask reads the file, others wait.

    @property
    def rows(self) -> Predictions:
        """Return all rows."""
        with self._lock:
            return self._rows

    @property
    def summary(self) -> TopSummary:
        """Return what the rows are worth."""
        with self._lock:
            return self._summary

    @cached_property
    def _rows(self) -> Predictions:
        return self.scan.read()

    @cached_property
    def _summary(self) -> TopSummary:
        return top_summary(self.scan)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.labels)}

    @cached_property
    def _folded(self) -> list[str]:
        return [folded(name) for name in self.labels]

    def warm_up(self) -> None:
        """Read the file and measure it."""
        _ = self.rows, self.summary, self._numbers, self._folded

    def search(self, query: str, top: int) -> Answer:
        """Return the most probable rows for a query."""
        return search(self.rows, query, top=top)

    def named(self, text: str) -> Array:
        """Return the numbers of labels that contain ``text``; those that start with it first."""
        asked = folded(text)
        inside = [number for number, name in enumerate(self._folded) if asked in name]
        inside.sort(key=lambda number: not self._folded[number].startswith(asked))
        return np.array(inside, dtype=np.int64)

    def _number(self, label: str) -> int:
        if label not in self._numbers:
            raise InputError(f"there is no label {label!r}. {nearest(label, self.labels)}")
        return self._numbers[label]

    def _label_report(self, label: str) -> TopLabelReport:
        number, rows = self._number(label), self.rows
        where, places = np.nonzero(rows.label_indices == number)
        values = rows.probabilities[where, places]
        order = np.argsort(-values, kind="stable")
        listed = [HeldRow(str(rows.ids[where[i]]), float(values[i])) for i in order]
        chart, false_alarms, missed = Markup(""), [], []
        if rows.targets is not None and rows.all_targets is not None and self.summary.has_truth:
            truth = rows.targets[where, places]
            known = truth >= 0
            if known.any():
                found = metrics.reliability(values[known][:, None], Targets(truth[known][:, None]))
                alt = f"Reliability diagram of {label}, over {int(known.sum()):,} rows that hold it"
                chart = reliability_chart(found, alt)
            false_alarms = [listed[i] for i, row in enumerate(order) if truth[row] == 0][:SHOWN]
            present = rows.all_targets.entry_rows()[rows.all_targets.indices == number]
            unheld = np.setdiff1d(present, where)[:SHOWN]
            missed = [HeldRow(str(rows.ids[row]), None) for row in unheld]
        return TopLabelReport(
            self.summary.label(number), chart, listed[:SHOWN], false_alarms, missed
        )

    def item(self, id: str) -> TopItem:
        """Return one row by its id."""
        rows = self.rows
        found = np.flatnonzero(rows.ids == id)
        if not len(found):
            raise InputError(f"there is no row {id[:200]!r}.")
        row = int(found[0])
        held = rows.held[row]
        numbers = rows.label_indices[row][held]
        truth = None if rows.all_targets is None else rows.all_targets[[row]]
        known = truth is not None and (truth.known is None or bool(truth.known[0]))
        present = set() if truth is None else set(truth.indices.tolist())
        return TopItem(
            id,
            [
                HeldLabel(self.labels[n], float(p), int(n in present) if known else None)
                for n, p in zip(numbers.tolist(), rows.probabilities[row][held], strict=True)
            ],
            [self.labels[n] for n in sorted(present - set(numbers.tolist()))],
            known,
        )


@dataclass(frozen=True)
class TopState:
    """Everything a server over files with the most probable labels was started with."""

    files: list[ServedTop]
    images: ImageFolder | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    uploads: Uploads = field(default_factory=Uploads)
    model: None = None
    reviewing: None = None
    runs: None = None

    pages = (("/", "Home"), ("/labels", "Labels"), ("/docs", "API"))

    def file(self, number: int, raw: bool = False) -> ServedTop:
        """Return one of the files."""
        if not 0 <= number < len(self.files):
            raise InputError(
                f"`file` must be below {len(self.files)}, the number of files; got {number}."
            )
        return self.files[number]

    def warm_up(self) -> None:
        """Read the first file: the first request is fast."""
        self.files[0].warm_up()

    def begin(self) -> None:
        """Nothing more is worked out ahead."""

    def close(self) -> None:
        """Delete what people brought."""
        self.uploads.close()
