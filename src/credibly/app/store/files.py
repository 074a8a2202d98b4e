"""One predictions file, opened for serving: in memory for search, sampled for budgets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.app.server.background import Busy, NotReady, Pending, remembered
from credibly.app.statistics.decisions import (
    SetSizes,
    budget,
)
from credibly.app.statistics.labels import (
    Confusion,
    LabelSummary,
    confusions,
    label_atlas,
)
from credibly.app.statistics.overview import FirstLook, ThresholdCurve, first_look, threshold_curve
from credibly.app.store.rows import (
    Item,
    Neighbour,
    item_of,
    neighbours,
    uncertainty,
    usual_distance,
)
from credibly.checks import InputError, nearest
from credibly.decide import AverageSize, Recall, Threshold
from credibly.metrics.calibration import ReliabilityDiagram
from credibly.notebook import counted
from credibly.pipeline import Pipeline
from credibly.predictions import Dataset, Predictions
from credibly.predictions.shard import identity
from credibly.retrieve import Index, Joint, Query
from credibly.retrieve.answer import Answer
from credibly.retrieve.index import within
from credibly.retrieve.joint.pairs import Together, seen_together
from credibly.retrieve.query import folded
from credibly.review.issues import fit_noise
from credibly.review.noise_model import NoiseModel
from credibly.targets import Targets
from credibly.types import Array, JsonObject

if TYPE_CHECKING:
    from credibly.app.store.store import LabelOrder, Rule

SAMPLE = 50_000  # rows that budgets are worked out on; more would not move them visibly
SAMPLE_CELLS = 2**26  # and their probabilities: 256 MB, the truth beside them a quarter of it
TOGETHER, TOGETHER_CELLS = 12, 2**21  # labels shown beside a query; probabilities looked at
COUNTED_AT_ONCE = 2**22  # probabilities; the labels of larger files are counted in the background
BLOCK_CELLS = 2**22  # probabilities looked at in one go: 16 MB, and a few masks of a quarter
SHOWN = 8  # rows of each group on the page of a label


@dataclass(frozen=True)
class RowOfLabel:
    """A row with the probability of one label (None where the row does not hold it)."""

    id: str
    probability: float | None
    truth: int | None = None


@dataclass(frozen=True)
class LabelReport:
    """All that a label's page says.

    Attributes:
        about: its numbers by name.
        reliability, curve: None without truth.
        groups: rows to look at, by what they have in common.
    """

    about: JsonObject
    reliability: ReliabilityDiagram | None
    curve: ThresholdCurve | None
    groups: dict[str, list[RowOfLabel]]


class ServedFile(ABC):
    """What files of both layouts share: a column per label, or the top labels of each row.

    Attributes:
        path, name: where the file is, and what pages call it.
        every_label: whether it holds a probability for every label and row.
        has_truth: whether it holds targets.
        size: how large it is, for people.
        numbers: the number of each label's column.
        joint: which labels go together; None where that is not known.
    """

    joint: Joint | None = None
    usual_sort: str | None = None
    """The order of the labels where none is asked for; None for that of the file."""

    def __init__(self, path: Path, name: str, *, partial: bool = False) -> None:
        self.path, self.name = path, name
        self.identity = identity(path)  # before the file is opened: it may be replaced meanwhile
        self.scan = Dataset(path, partial=partial)
        self.partial = partial
        self.labels = list(self.scan.labels)
        self.every_label, self.has_truth = self.scan.every_label, self.scan.has_targets
        self.size = f"{counted(self.scan.num_rows, 'row')} and {counted(len(self.labels), 'label')}"
        self.numbers = {name: number for number, name in enumerate(self.labels)}
        self._judged = Pending(self._first_look, f"judging the probabilities, {self.size}")
        self._listed = Pending(self._atlas, f"measuring every label, {self.size}")
        self.release()

    def column_of(self, label: str) -> int:
        """Return the number of a label's column."""
        if label not in self.numbers:
            raise InputError(f"unknown label {label!r}. {nearest(label, self.labels)}")
        return self.numbers[label]

    def named(self, text: str) -> list[int]:
        """Return the numbers of labels that contain ``text``; those that start with it first."""
        asked = folded(text)
        inside = [number for number, name in enumerate(self._folded) if asked in name]
        return sorted(inside, key=lambda number: not self._folded[number].startswith(asked))

    @cached_property
    def _folded(self) -> list[str]:
        return [folded(name) for name in self.labels]

    def begin(self) -> None:
        """Begin to work out what the first page shows."""
        self._judged.begin()

    @property
    def first_look(self) -> FirstLook:
        """Return what the first page shows."""
        return self._judged.wait()

    def atlas(self, asked: LabelOrder) -> Sequence[LabelSummary]:
        """Return the labels that are asked for, with the noise of their numbers, on the sample."""
        rows = self._listed.wait()
        found = [rows[place] for place in sorted(self.named(asked.contains))]
        found = [row for row in found if row.flag or not asked.flagged]
        sort = asked.sort or self.usual_sort
        if sort is None:
            return found
        return sorted(found, key=_KEYS[sort], reverse=asked.down or asked.sort is None)

    @property
    def label_counts(self) -> list[float]:
        """Return how many rows carry each label, or are expected to; empty while not measured."""
        if self.scan.num_rows * len(self.labels) <= COUNTED_AT_ONCE:
            with suppress(NotReady):  # search does not wait for it
                self._listed.wait()
        found = self._listed.result() if self._listed.done else []
        return [each.expected if each.present is None else each.present for each in found]

    @abstractmethod
    def _atlas(self) -> list[LabelSummary]: ...

    @abstractmethod
    def _first_look(self) -> FirstLook: ...

    @abstractmethod
    def search(
        self, query: str, top: int, between: tuple[float, float] | None = None
    ) -> Answer: ...

    @abstractmethod
    def item(self, id: str, rule: Rule) -> Item:
        """Return one row by its id."""

    @abstractmethod
    def ids(self, places: Array) -> list[str]:
        """Return the ids of some rows."""

    @abstractmethod
    def label_report(self, label: str) -> LabelReport: ...

    @cached_property
    @abstractmethod
    def highest(self) -> Array:
        """The probability of each row's most probable label."""

    @property
    def measured(self) -> int:
        """Return how many rows the numbers come from."""
        return self.scan.num_rows

    @property
    def uncalibrated(self) -> ServedPredictions | None:
        """Return the same scores through the loss's link alone, where the file tells how."""
        return None

    def release(self) -> None:
        """Forget the rows; they are read again when they are asked for."""
        vars(self).pop("highest", None)

    def neighbours(self, id: str) -> list[Neighbour]:
        """Return the rows whose probabilities are most like those of a row, if all are known."""
        return []

    def truth_of(self, id: str, labels: Sequence[str]) -> dict[str, int]:
        """Return what is annotated for some labels of a row; those that are known."""
        return {}

    def together(self, query: Query) -> list[Together]:
        """Return the labels most probable where the query holds, if all probabilities are known."""
        return []

    def confusions(self, label: str, limit: float) -> dict[str, list[Confusion]]:
        """Return which labels a label is confused with, from one threshold on."""
        return {}

    def places(self, between: tuple[float, float] | None) -> Array:
        """Return where the rows lie whose most probable label is in a range; all without one."""
        if between is None:
            return np.arange(self.scan.num_rows)
        return np.flatnonzero(within(self.highest, between))


class ServedPredictions(ServedFile):
    """A file with a column per label. What is slow is worked out once, when first asked for."""

    def __init__(
        self, path: Path, name: str, *, partial: bool = False, joint: Joint | None = None
    ) -> None:
        super().__init__(path, name, partial=partial)
        self.joint = joint
        if joint is not None:
            joint.check(self.labels)

    @property
    def measured(self) -> int:
        return len(self.sample)

    @property
    def uncalibrated(self) -> ServedPredictions | None:
        with suppress(OSError, Busy):  # error pages ask, too, of a file that is gone
            return self._linked.result()

    @property
    def index(self) -> Index:
        """Return all rows, for search."""
        return self._indexed.result()

    @property
    def sample(self) -> Predictions:
        """Return all rows, or a fixed random part of a large file.

        Raises:
            NotReady: while it is being read, after some seconds. So do ``atlas``, ``first_look``.
        """
        return self._sampled.wait()

    def known(self, label: str = "") -> tuple[Array, Array | None]:
        """Return probabilities and truth of the sample, of one label or all; None without truth."""
        rows, which = self.sample, [self.column_of(label)] if label else slice(None)
        truth = rows.targets if self.has_truth else None
        return rows.probabilities[:, which], None if truth is None else truth[:, which]

    @cached_property
    def noise(self) -> NoiseModel:
        """Return how often the truth is wrong."""
        return fit_noise(self._sampled.result())

    def release(self) -> None:
        super().release()
        self._indexed = Pending(self._read_index, f"reading {self.size}")
        self._sampled = Pending(self._read_sample, f"reading a sample of {self.size}")
        self._linked = Pending(self._before_calibration, f"opening {self.size}")

    def _before_calibration(self) -> ServedPredictions | None:
        about = self.scan.metadata
        if not (self.scan.has_scores and about.get("calibrator")):
            return None
        try:
            return _Uncalibrated(self.path, self.name, about.get("loss"), self.partial)
        except InputError:  # a loss of somebody else's, or of a later version
            return None

    def _read_index(self) -> Index:
        return Index.read(self.path, partial=self.partial)

    def _read_sample(self) -> Predictions:
        size = max(1000, min(SAMPLE, SAMPLE_CELLS // max(1, len(self.labels))))
        if self._indexed.done and not (self.scan.has_scores or self.scan.soft):
            return self._from_index(self.index, min(size, self.scan.num_rows))
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

    def item(self, id: str, rule: Rule) -> Item:
        return item_of(id, self.labels, *self.index.row(self.place(id)), rule)

    def ids(self, places: Array) -> list[str]:
        return list(map(str, self.index.ids(places)))

    def neighbours(self, id: str) -> list[Neighbour]:
        return neighbours(self.sample, self.index.row(self.place(id))[0], id)

    def truth_of(self, id: str, labels: Sequence[str]) -> dict[str, int]:
        place = self.index.place(id)
        y = None if place is None else self.index.row(place)[1]
        if y is None:
            return {}
        return {name: int(y[t]) for name in labels if y[t := self.column_of(name)] >= 0}

    def place(self, id: str) -> int:
        """Return where a row lies in the index."""
        place = self.index.place(id)
        if place is None:
            raise InputError(f"there is no row with the id {id!r} in {self.name}.")
        return place

    def _atlas(self) -> list[LabelSummary]:
        rows = self._sampled.result()
        truth = rows.targets if self.has_truth else None
        return label_atlas(self.labels, rows.probabilities, truth)

    def _first_look(self) -> FirstLook:
        rows = self._sampled.result()
        wrong = self._count_wrong() if self.has_truth else 0
        return first_look(rows, str(self.path), atlas=self._listed.result(), wrong=wrong)

    def _count_wrong(self) -> int:
        """Return how many labels of all rows are probably wrong, as the list of these counts."""
        step, total = max(1, BLOCK_CELLS // len(self.index)), 0
        for first in range(0, len(self.labels), step):
            p, y = self.index.column_block(first, first + step)
            total += 0 if y is None else int(self.noise.probably_wrong(p, y).sum())
        return total

    def search(self, query: str, top: int, between: tuple[float, float] | None = None) -> Answer:
        return self.index.search(query, top=top, joint=self.joint, between=between)

    @cached_property
    def highest(self) -> Array:
        return self.index.column_block(0, len(self.labels))[0].max(0)

    def column(self, label: str) -> tuple[Array, Array | None]:
        return self.scan.column(label)

    @remembered
    def label_report(self, label: str) -> LabelReport:
        """Return statistics of one label, its reliability and its most confident mistakes."""
        self.column_of(label)
        p, y = self.column(label)
        about: JsonObject = {
            "label": label,
            "rows": len(p),
            "expected": float(p.sum(dtype=np.float64)),
        }
        if y is None or not self.has_truth:
            return LabelReport(about, None, None, self._groups(label, p, None))
        (summary,) = label_atlas([label], p[:, None], y[:, None])
        about |= {
            "known": summary.rows,
            "known_expected": summary.expected,
            "present": summary.present,
            "average_precision": summary.average_precision,
            "calibration_error": summary.error,
            "log_loss": summary.log_loss,
        }
        curve = threshold_curve(p[:, None], y[:, None])
        return LabelReport(about, summary.diagram, curve, self._groups(label, p, y))

    def _groups(self, label: str, p: Array, y: Array | None) -> dict[str, list[RowOfLabel]]:
        """Return rows to look at: those that are surely right, wrong and in between."""
        near = np.abs(p - 0.5)
        if y is None:
            wanted = {"most probable": (p >= 0, -p), "borderline": (near < 0.25, near)}
        else:
            wanted = {
                "right": ((y >= 0.5) & (p >= 0.5), -p),
                "wrong": ((y >= 0) & (y < 0.5) & (p >= 0.5), -p),
                "borderline": ((near < 0.25) & (y >= 0), near),
                "missed": ((y >= 0.5) & (p < 0.5), p),
            }
        places = {name: _first(mask, key) for name, (mask, key) in wanted.items()}
        chosen = np.unique(np.concatenate(list(places.values())))
        read = self.scan.read(labels=[label], rows=chosen)
        ids = dict(zip(chosen.tolist(), read.ids, strict=True))
        return {
            name: [
                RowOfLabel(str(ids[row]), float(p[row]), None if y is None else int(y[row] >= 0.5))
                for row in rows.tolist()
            ]
            for name, rows in places.items()
        }

    @remembered
    def together(self, query: Query) -> list[Together]:
        p, y = self.known()
        few = slice(None, max(1000, TOGETHER_CELLS // len(self.labels)))
        truth = None if y is None else y[few]
        listed = seen_together(query, p[few], self.labels, joint=self.joint, targets=truth)
        return listed[:TOGETHER]

    def decision(self, average_size: float, labels: Sequence[str]) -> AverageSize:
        """Return the rule behind ``budget``, for probabilities with these labels in this order."""
        if sorted(labels) != sorted(self.labels):
            raise InputError(
                "`average_size` needs predictions of the labels of the run; those of "
                f"{self.name} differ."
            )
        return self._fitted(average_size, tuple(labels))

    @remembered
    def _fitted(self, average_size: float, labels: tuple[str, ...]) -> AverageSize:
        # Ties go to the label that comes first, so the order of the labels counts.
        columns = [self.labels.index(name) for name in labels]
        return AverageSize(average_size).fit(self.sample.probabilities[:, columns])

    @remembered
    def recall(self, level: float) -> Recall:
        p, y = self.known()
        if y is None:
            raise InputError(f"a guarantee needs rows with known truth; {self.name} has none.")
        return Recall(level, ("probability", 0.1)).fit(p, Targets(y))

    @remembered
    def of_sample(self, work: Callable[..., Any], label: str = "", *arguments: float | None) -> Any:
        """Return what ``work`` says of the sample, of one label or all; None without truth."""
        p, y = self.known(label)
        return None if y is None else work(p, y, *arguments)

    @remembered
    def confusions(self, label: str, limit: float) -> dict[str, list[Confusion]]:
        p, y = self.known()
        if y is None:
            return {}
        return confusions(self.labels, self.column_of(label), p >= p.dtype.type(limit), y)

    def limits(self, threshold: float, count: int) -> list[tuple[str, float, float]]:
        """Return the first labels with what a threshold finds of them and how often rightly."""
        p, y = self.known()
        found = right = np.full(min(count, len(self.labels)), np.nan)
        if y is not None:
            sets, truth = p[:, :count] >= p.dtype.type(threshold), y[:, :count]
            hits = (sets & (truth == 1)).sum(0)
            with np.errstate(invalid="ignore"):
                found, right = hits / (truth == 1).sum(0), hits / (sets & (truth >= 0)).sum(0)
        return list(zip(self.labels[:count], found.tolist(), right.tolist(), strict=True))

    @cached_property
    def usual_distance(self) -> float:
        """Return how far a row is from the most similar one at most, of 99 in 100 rows."""
        return usual_distance(self.sample.probabilities)

    @cached_property
    def usual_uncertainty(self) -> float:
        """Return how unsure the model is at most, of 99 in 100 rows."""
        return float(np.quantile(uncertainty(self.sample.probabilities), 0.99))

    def sets_of(self, by: str, size: float | None, threshold: float | None) -> SetSizes | None:
        """Return the sizes of sets by an average size or by a threshold; None for costs."""
        if by == "size" and size is not None:
            return self.budget(round(size, 2))
        return None if by == "cost" or threshold is None else self._at_least(threshold)

    @remembered
    def _at_least(self, threshold: float) -> SetSizes:
        return budget(Threshold(threshold), *self.known())

    @remembered
    def budget(self, average_size: float) -> SetSizes:
        """Return label sets for an average size, on the sample."""
        return budget(self._fitted(average_size, tuple(self.labels)), *self.known())


def _first(mask: Array, key: Array, count: int = SHOWN) -> Array:
    """Return where the smallest keys lie among those that are asked for."""
    inside = np.flatnonzero(mask)
    return inside[np.argsort(key[inside], kind="stable")[:count]]


def _number(value: float | None) -> float:
    """Return a value to sort by; what is not known comes last."""
    return -np.inf if value is None or np.isnan(value) else float(value)


_KEYS: dict[str, Callable[[LabelSummary], str | float]] = {
    "label": lambda row: folded(row.label),
    "known": lambda row: row.rows if row.present is not None else -1,
    "rate": lambda row: _number(row.present_share),
    "AP": lambda row: _number(row.average_precision),
    "gap": lambda row: _number(row.error),
    "excess": lambda row: _number(row.error - row.noise),
    "flag": lambda row: row.flag,
    "surprise": lambda row: row.surprise,
}


class _Uncalibrated(ServedPredictions):
    """A file read through its loss's link alone: what the model said before calibration."""

    def __init__(self, path: Path, name: str, loss: str | None, partial: bool) -> None:
        super().__init__(path, name, partial=partial)
        pipeline = Pipeline(loss, context={"num_labels": len(self.labels), "average_size": 1})
        found = pipeline.loss
        # A file holds one score per label: of two heads or without a link, the log-odds to rank by.
        count = len(self.labels)
        one_score = found is not None and found.has_link and found.num_outputs(count) == count
        self._pipeline = pipeline if one_score else Pipeline()

    def _before_calibration(self) -> None:
        """Return nothing: this is the state before calibration."""

    def _through_link(self, scores: Array | None) -> Array:
        assert scores is not None, "only files with scores have a state before calibration"
        return self._pipeline.probabilities(scores).astype(np.float32)

    def _read_index(self) -> Index:
        whole = self.scan.read()
        truth = None if self.scan.soft else whole.targets  # a soft target is no hit and no miss
        return Index(self._through_link(whole.scores), self.labels, whole.ids, truth)

    def _read_sample(self) -> Predictions:
        rows = super()._read_sample()
        return Predictions.from_arrays(
            probabilities=self._through_link(rows.scores),
            targets=None if rows.targets is None else Targets(rows.targets),
            labels=rows.labels,
            ids=rows.ids,
        )

    def column(self, label: str) -> tuple[Array, Array | None]:
        loss, names = self._pipeline.loss, [label]
        if loss is not None and not loss.labelwise:  # the link compares all labels of a row
            names = self.labels
        scores, targets = self.scan.columns(names, "scores")
        place = names.index(label)
        return self._through_link(scores)[:, place], None if targets is None else targets[:, place]
