"""One predictions file, opened for serving: in memory for search, sampled for budgets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from credibly import metrics
from credibly.app.charts import reliability_chart
from credibly.app.server.background import Pending
from credibly.app.views.decisions import (
    Budget,
    EntryCosts,
    Outcome,
    ThresholdCounts,
    budget,
    outcome,
    threshold_counts,
)
from credibly.app.views.labels import AtlasRow, label_atlas, summarize_columns
from credibly.app.views.overview import FirstLook, first_look
from credibly.checks import InputError, nearest
from credibly.decide import AverageSize, Threshold
from credibly.pipeline import Pipeline
from credibly.predictions import Predictions
from credibly.predictions.dataset import identity
from credibly.retrieve import Answer, Index, Joint, Query, seen_together
from credibly.retrieve.joint.pairs import Together
from credibly.targets import Targets
from credibly.types import Array

SAMPLE = 50_000  # rows that budgets are worked out on; more would not move them visibly
SAMPLE_CELLS = 2**26  # and their probabilities: 256 MB, the truth beside them a quarter of it
TOGETHER, TOGETHER_CELLS = 12, 2**21  # labels shown beside a query; probabilities looked at
Prices = tuple[str, float, float, float, float, float]
"""A label with the costs of a miss, a false alarm and a look; where review and acceptance begin."""
KEPT = 256  # labels, charts and budgets remembered; the least recently used are forgotten


@dataclass(frozen=True)
class Mistake:
    """A row where the label's probability was confidently wrong."""

    id: str
    probability: float
    present: bool


@dataclass(frozen=True)
class LabelReport:
    """All that a label's page says, from its column, read once."""

    about: dict[str, Any]
    reliability: metrics.Reliability | None
    mistakes: list[Mistake]


class ServedPredictions:
    """A predictions file. Everything slow is worked out once, when first asked for."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        calibrated: bool = True,
        partial: bool = False,
        joint: Joint | None = None,
        name: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._name = name
        self.joint = joint
        self.identity = identity(path)  # before the file is opened: it may be replaced meanwhile
        self.scan = Predictions.scan(path, partial=partial)
        self.partial = partial
        self.labels = list(self.scan.labels)
        self._columns = {name: place for place, name in enumerate(self.labels)}
        self.calibrated = calibrated
        self._lock = Lock()
        self._sampling, self._summaries = Lock(), Lock()  # for these no search waits
        size = f"{self.scan.num_rows:,} rows and {len(self.labels):,} labels"
        self._sampled = Pending(self._waited_sample, f"reading a sample of {size}")
        self._listed = Pending(self._waited_atlas, f"measuring every label, of {size}")
        self._judged = Pending(self._waited_first_look, f"judging the probabilities, of {size}")
        self.label_report = lru_cache(maxsize=KEPT)(self._label_report)
        self.chart = lru_cache(maxsize=KEPT)(self._chart)
        self.budget = lru_cache(maxsize=KEPT)(self._budget)
        self._fitted = lru_cache(maxsize=KEPT)(self._fit)
        self.threshold_counts = lru_cache(maxsize=KEPT)(self._threshold_counts)
        self.outcome = lru_cache(maxsize=KEPT)(self._outcome)
        self._at_least = lru_cache(maxsize=KEPT)(self._threshold_budget)
        self.together = lru_cache(maxsize=KEPT)(self._together)
        if joint is not None:
            joint.check(self.labels)

    @property
    def name(self) -> str:
        if self._name is not None:
            return self._name
        stem = self.path.stem
        return self.path.resolve().parent.name if stem == "predictions" else stem

    def reopened(self) -> ServedPredictions:
        """Return the file as it is now."""
        return ServedPredictions(self.path, partial=self.partial, joint=self.joint, name=self._name)

    @property
    def has_truth(self) -> bool:
        return self.scan.has_targets

    # The first to ask reads the file and others wait. A cached property alone would let all of
    # them read it, from Python 3.12 on.

    @property
    def uncalibrated(self) -> ServedPredictions | None:
        """Return the same scores through the loss's link alone, where the file tells how."""
        with self._lock:
            return self._uncalibrated

    @property
    def index(self) -> Index:
        """Return all rows, for search."""
        with self._lock:
            return self._index

    @property
    def sample(self) -> Predictions:
        """Return all rows, or a fixed random part of a large file.

        Raises:
            NotReady: while it is being read, after some seconds. So do ``atlas``, ``first_look``.
        """
        if "_sample" not in self.__dict__:
            self._sampled.wait()
        return self._waited_sample()

    def _waited_sample(self) -> Predictions:
        with self._sampling:
            return self._sample

    def begin(self) -> None:
        """Begin to work out what the first page shows."""
        self._judged.begin()

    def release(self) -> None:
        """Forget the rows; they are read again when they are asked for."""
        with self._lock, self._sampling:
            for name in ("_index", "_sample", "_uncalibrated"):
                self.__dict__.pop(name, None)
            self._sampled = Pending(self._waited_sample, self._sampled.what)

    @cached_property
    def _uncalibrated(self) -> ServedPredictions | None:
        about = self.scan.metadata
        if not (self.calibrated and self.scan.has_scores and about.get("calibrator")):
            return None
        try:
            return _Uncalibrated(self.path, about.get("loss"), self.partial)
        except InputError:  # a loss of somebody else's, or of a later version
            return None

    @cached_property
    def _index(self) -> Index:
        return Index.read(self.path, partial=self.partial)

    @cached_property
    def _sample(self) -> Predictions:
        size = max(1000, min(SAMPLE, SAMPLE_CELLS // max(1, len(self.labels))))
        if "_index" in self.__dict__ and not (self.scan.has_scores or self.scan.soft):
            return self._from_index(self._index, min(size, self.scan.num_rows))
        if self.scan.num_rows <= size:
            return self.scan.read()
        chosen = np.random.default_rng(0).choice(self.scan.num_rows, size, replace=False)
        return self.scan.read(rows=np.sort(chosen))

    def _from_index(self, index: Index, size: int) -> Predictions:
        """Return the sample from memory, which is faster than from many columns of a file."""
        chosen = np.sort(np.random.default_rng(0).choice(len(index), size, replace=False))
        p, y = index.column_block(0, len(self.labels))
        return Predictions(
            labels=self.labels,
            ids=np.array(index.ids(chosen), dtype=object),
            probabilities=np.ascontiguousarray(p[:, chosen].T),
            targets=None if y is None else np.ascontiguousarray(y[:, chosen].T),
            scores=None,
            metadata=self.scan.metadata,
        )

    @property
    def atlas(self) -> list[AtlasRow]:
        """Return every label with the noise of its numbers, on the sample."""
        self._listed.wait()
        return self._waited_atlas()

    def _waited_atlas(self) -> list[AtlasRow]:
        with self._summaries:
            return self._atlas

    @cached_property
    def _atlas(self) -> list[AtlasRow]:
        rows = self._waited_sample()
        truth = rows.targets if self.has_truth else None
        return label_atlas(self.labels, rows.probabilities, truth)

    @property
    def first_look(self) -> FirstLook:
        """Return what the first page shows, on the sample."""
        self._judged.wait()
        return self._waited_first_look()

    def _waited_first_look(self) -> FirstLook:
        with self._summaries:
            return self._first_look

    @cached_property
    def _first_look(self) -> FirstLook:
        return first_look(self._waited_sample(), str(self.path), atlas=self._atlas)

    def search(self, query: str, top: int) -> Answer:
        return self.index.search(query, top=top, joint=self.joint)

    def column(self, label: str) -> tuple[Array, Array | None]:
        return self.scan.column(label)

    def column_of(self, label: str) -> int:
        """Return the number of a label's column."""
        return self._columns[self.check(label)]

    def check(self, label: str) -> str:
        """Return a label's name, which must be one of the file."""
        if label not in self._columns:
            raise InputError(f"unknown label {label!r}. {nearest(label, self.labels)}")
        return label

    def _label_report(self, label: str) -> LabelReport:
        """Return statistics of one label, its reliability and its most confident mistakes."""
        p, y = self.column(self.check(label))
        about: dict[str, Any] = {
            "label": label,
            "rows": len(p),
            "expected": float(p.sum(dtype=np.float64)),
        }
        if y is None or not self.has_truth:
            return LabelReport(about, None, [])
        (summary,) = summarize_columns([label], p[:, None], y[:, None])
        about["known"] = summary.rows
        about["known_expected"] = summary.expected
        about["present"] = summary.present
        about["average_precision"] = summary.average_precision
        about["calibration_error"] = summary.error
        about["log_loss"] = summary.log_loss
        diagram = metrics.reliability(p[:, None], Targets(y[:, None]))
        return LabelReport(about, diagram, self._mistakes(label, p, y))

    def _together(self, query: Query) -> list[Together]:
        """Return the labels most probable where the query holds, on a part of the sample."""
        rows = self.sample
        few = slice(None, max(1000, TOGETHER_CELLS // len(self.labels)))
        truth = rows.targets[few] if self.has_truth and rows.targets is not None else None
        listed = seen_together(
            query, rows.probabilities[few], self.labels, joint=self.joint, targets=truth
        )
        return listed[:TOGETHER]

    def _mistakes(self, label: str, p: Array, y: Array, count: int = 12) -> list[Mistake]:
        """Return the rows whose probability is farthest from the truth."""
        wrong = np.where(y >= 0, np.abs(p - y), -1.0)
        worst = np.argsort(-wrong, kind="stable")[:count]
        worst = worst[wrong[worst] > 0.5]
        if not worst.size:
            return []
        rows = self.scan.read(labels=[label], rows=worst)
        return [
            Mistake(str(name), float(p[row]), bool(y[row] >= 0.5))
            for name, row in zip(rows.ids, worst, strict=True)
        ]

    def _chart(self, label: str) -> str:
        diagram = self.label_report(label).reliability
        assert diagram is not None, "only labels with known truth have a reliability diagram"
        alt = f"Reliability diagram of {label}: share present against probability given"
        return reliability_chart(diagram, alt)

    def decision(self, average_size: float, labels: Sequence[str]) -> AverageSize:
        """Return the rule behind ``budget``, for probabilities with these labels in this order."""
        if sorted(labels) != sorted(self.labels):
            raise InputError(
                "`average_size` needs predictions of the labels of the run; those of "
                f"{self.name} differ."
            )
        return self._fitted(average_size, tuple(labels))

    def _fit(self, average_size: float, labels: tuple[str, ...]) -> AverageSize:
        # Ties go to the label that comes first, so the order of the labels counts.
        columns = [self.labels.index(name) for name in labels]
        return AverageSize(average_size).fit(self.sample.probabilities[:, columns])

    def _threshold_counts(self, label: str) -> ThresholdCounts:
        """Return entries with known truth by probability, of one label or all, on the sample."""
        rows = self.sample
        assert rows.targets is not None, "only files with truth are counted"
        place = self.column_of(label) if label else 0
        which = slice(place, place + 1) if label else slice(None)
        return threshold_counts(rows.probabilities[:, which], rows.targets[:, which])

    def _outcome(self, label: str, prices: tuple[Prices, ...]) -> Outcome:
        """Return what decisions by cost come to on the sample, for one label or all.

        Args:
            label: its name; empty for all.
            prices: of single labels by name, and under the empty name of all others.
        """
        rows = self.sample
        assert rows.targets is not None, "only files with truth are counted"
        usual = next(each[1:] for each in prices if not each[0])
        columns = np.tile(np.array(usual)[:, None], len(self.labels))
        for name, *own in prices:
            if name in self._columns:  # another file may lack the label
                columns[:, self._columns[name]] = own
        which = slice(None)
        if label:
            which = slice(self._columns[label], self._columns[label] + 1)
        costs = EntryCosts(*columns[:, which])
        return outcome(rows.probabilities[:, which], rows.targets[:, which], costs)

    def sets_of(self, by: str, size: float | None, threshold: float | None) -> Budget | None:
        """Return the sizes of sets by an average size or by a threshold; None for other rules."""
        if by == "size" and size is not None:
            return self.budget(round(size, 2))
        return self._at_least(threshold) if by == "threshold" and threshold is not None else None

    def _threshold_budget(self, threshold: float) -> Budget:
        rows = self.sample
        decision = Threshold(threshold)
        return budget(decision, rows.probabilities, rows.targets if self.has_truth else None)

    def _budget(self, average_size: float) -> Budget:
        """Return label sets for an average size, on the sample."""
        rows = self.sample
        decision = self._fitted(average_size, tuple(self.labels))
        return budget(decision, rows.probabilities, rows.targets if self.has_truth else None)


class _Uncalibrated(ServedPredictions):
    """A file read through its loss's link alone: what the model said before calibration."""

    def __init__(self, path: str | os.PathLike[str], loss: str | None, partial: bool) -> None:
        super().__init__(path, calibrated=False, partial=partial)
        pipeline = Pipeline(loss, context={"num_labels": len(self.labels), "average_size": 1})
        found = pipeline.loss
        # A file holds one score per label: of two heads or without a link, the log-odds to rank by.
        count = len(self.labels)
        one_score = found is not None and found.has_link and found.num_outputs(count) == count
        self._pipeline = pipeline if one_score else Pipeline()

    def _through_link(self, scores: Array) -> Array:
        return self._pipeline.probabilities(scores).astype(np.float32)

    @cached_property
    def _index(self) -> Index:
        whole = self.scan.read()
        truth = None if self.scan.soft else whole.targets  # a soft target is no hit and no miss
        return Index(self._through_link(_required(whole.scores)), self.labels, whole.ids, truth)

    @cached_property
    def _sample(self) -> Predictions:
        plain = ServedPredictions(self.path, calibrated=False, partial=self.partial)
        rows = plain._waited_sample()
        return Predictions.from_arrays(
            probabilities=self._through_link(_required(rows.scores)),
            targets=None if rows.targets is None else Targets(rows.targets),
            labels=rows.labels,
            ids=rows.ids,
        )

    def column(self, label: str) -> tuple[Array, Array | None]:
        scores, targets = self.scan.column(label, "scores")
        # A link may look at all labels of a row (softmax): then one column is not enough.
        loss = self._pipeline.loss
        if loss is not None and not loss.labelwise:
            scores = self.scan.columns(self.labels, "scores")[0]
            return self._through_link(scores)[:, self.labels.index(label)], targets
        return self._through_link(scores[:, None])[:, 0], targets


def _required(scores: Array | None) -> Array:
    assert scores is not None, "only files with scores have a state before calibration"
    return scores
