"""Several predictions of the same rows beside each other, measured once, in the background."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Condition, Thread

import numpy as np

from credibly import metrics
from credibly.app.served.dense import ServedPredictions
from credibly.app.views import (
    COLUMNS,
    Cell,
    Column,
    Difference,
    LabelDifferences,
    LabelSummary,
    Verdict,
    comparison_table,
    label_differences,
    paired_difference,
    summarize_columns,
    verdict,
)
from credibly.checks import InputError
from credibly.predictions import Predictions
from credibly.targets import Targets
from credibly.types import Array

RESAMPLES = 200
CELLS = 2**22
"""Probabilities of each file that numbers are measured on; all files on the same rows."""
FEWEST_ROWS = 1_000
FEWEST_SHARED = 30
"""Files that share fewer rows with the first are not compared with it."""
PAIRED = tuple(column for column in COLUMNS if column.name in ("NLL", "ACE", "mAP@y"))
_OF_LABELS = {"NLL": "log_loss", "ACE": "error", "mAP@y": "average_precision"}


@dataclass(frozen=True)
class SharedRows:
    """What files have in common.

    Attributes:
        places: by number of file, where the rows that are compared lie in it, in one order.
        labels: of all of them, in the order of the first.
        total: rows that they share, before a sample was taken.
        left_out: by number of file, why it is not compared.
    """

    places: dict[int, Array]
    labels: list[str]
    total: int
    left_out: dict[int, str]

    @property
    def rows(self) -> int:
        """Return how many rows are compared."""
        return len(next(iter(self.places.values()))) if self.places else 0


@dataclass(frozen=True)
class Measured:
    """The numbers of one file on the shared rows."""

    draws: metrics.Draws
    labels: list[LabelSummary]
    verdict: Verdict
    diagram: metrics.Reliability


@dataclass(frozen=True)
class Comparison:
    """What is known so far about the files, by their numbers.

    Attributes:
        shared: which rows are compared.
        measured: the files that are measured already.
        pending: how many are still to be measured.
    """

    shared: SharedRows
    measured: dict[int, Measured] = field(default_factory=dict)
    pending: int = 0

    def cells(self) -> dict[int, list[Cell]]:
        """Return the numbers of each file, the best of each column marked where it is clear."""
        draws = {str(number): each.draws for number, each in self.measured.items()}
        return {int(number): cells for number, cells in comparison_table(draws).items()}

    def difference(self, first: int, second: int, column: Column) -> Difference:
        """Return a number of one file minus that of another."""
        return paired_difference(self.measured[first].draws, self.measured[second].draws, column)

    def of_labels(self, number: int, column: Column) -> Array:
        """Return a number of every label, as ``column`` measures it."""
        name = _OF_LABELS[column.name]
        return np.array([vars(each)[name] for each in self.measured[number].labels])


@dataclass(frozen=True)
class Pair:
    """Two files, row by row.

    Attributes:
        differences: log loss of each label, the first file minus the second.
        apart: (labels,) mean absolute difference of the probabilities.
        first, second: probabilities of the shared rows.
    """

    differences: LabelDifferences
    apart: Array
    first: Array
    second: Array

    def sets_differ(self, threshold: Array) -> Array:
        """Return, by label, the share of rows that only one of the files selects."""
        limits = threshold.astype(self.first.dtype)
        return ((self.first >= limits) != (self.second >= limits)).mean(0)


class Comparing:
    """Measures files in a thread of its own; whoever asks sees what is known so far.

    A file is measured once per set of shared rows: only new files cost time, as long as they hold
    the same rows.
    """

    def __init__(self, files: Sequence[ServedPredictions]) -> None:
        self._files = files
        self._changed = Condition()
        self._count = -1
        self._shared = SharedRows({}, [], 0, {})
        self._measured: dict[int, Measured] = {}
        self._problem: Exception | None = None
        self._working, self._since = False, 0.0
        self.pair = lru_cache(maxsize=2)(self._pair)

    def known(self, wait: float = 0.0) -> Comparison:
        """Return what is known about all files; wait for it in its first seconds."""
        with self._changed:
            self._begin()
            left = self._since + wait - time.monotonic()  # who asks again is not kept again
            self._changed.wait_for(lambda: not self._working, max(left, 0.0))
            if self._problem is not None and not self._working:
                raise self._problem
            pending = len(self._shared.places) - len(self._measured)
            if self._count != len(self._files):
                pending = max(pending, 1)
            return Comparison(self._shared, dict(self._measured), pending)

    def _begin(self) -> None:
        if self._working or self._count == len(self._files):
            return
        self._working, self._since = True, time.monotonic()
        Thread(target=self._work, name="comparing", daemon=True).start()

    def _work(self) -> None:
        try:
            while self._count != (count := len(self._files)):
                shared = shared_rows(self._files[:count])
                with self._changed:
                    same = _same_rows(shared, self._shared)
                    self._measured = self._measured if same else {}
                    self._shared = shared
                    self.pair.cache_clear()
                for number in shared.places:
                    if number not in self._measured:
                        found = _measure(self._rows(number))
                        with self._changed:
                            self._measured[number] = found
                            self._changed.notify_all()
                with self._changed:
                    self._count, self._problem = count, None
        except (InputError, OSError, MemoryError) as error:
            with self._changed:
                self._problem = error
        finally:
            with self._changed:
                self._working = False
                self._changed.notify_all()

    def _rows(self, number: int) -> Predictions:
        scan = self._files[number].scan
        return scan.read(labels=self._shared.labels, rows=self._shared.places[number])

    def _pair(self, first: int, second: int) -> Pair:
        one, other = self._rows(first), self._rows(second)
        assert one.targets is not None, "only files with truth are compared"
        p, q = one.probabilities, other.probabilities
        apart = np.abs(p - q).mean(0, dtype=np.float64)
        return Pair(label_differences(p, q, one.targets), apart, p, q)


def shared_rows(files: Sequence[ServedPredictions]) -> SharedRows:
    """Return which rows to compare files on, and which files cannot be compared.

    Files with the labels of the first one with truth are compared on the rows that all of them
    hold, or on a fixed random part of those.
    """
    left_out: dict[int, str] = {}
    hashes: dict[int, Array] = {}
    common = np.empty(0, dtype=np.int64)
    labels: list[str] = []
    of = ""
    for number, file in enumerate(files):
        if reason := _unlike(file, labels, of):
            left_out[number] = reason
            continue
        ids = file.scan.hashed_ids()
        if not hashes:
            labels, of, common = file.labels, file.name, ids
        elif not np.array_equal(common, ids):
            both = common[np.isin(common, ids)]
            if len(both) < min(FEWEST_SHARED, len(common)):
                left_out[number] = f"shares {len(both)} rows with the others; too few to compare"
                continue
            common = both
        hashes[number] = ids
    chosen = _sample(common, len(labels))
    places = {number: _places(chosen, ids) for number, ids in hashes.items()}
    return SharedRows(places, labels, len(common), left_out)


def _unlike(file: ServedPredictions, labels: list[str], of: str) -> str:
    """Return why a file cannot be compared; empty where it can."""
    if file.scan.top:
        return "holds only the most probable labels of each row"
    if not file.has_truth:
        return "holds no truth"
    if labels and sorted(file.labels) != sorted(labels):
        return f"has other labels than {of}"
    return ""


def _sample(ids: Array, labels: int) -> Array:
    """Return the ids to compare, in the same order: all of them, or a fixed random part."""
    most = max(FEWEST_ROWS, CELLS // max(1, labels))
    if len(ids) <= most:
        return ids
    return ids[np.sort(np.random.default_rng(0).choice(len(ids), most, replace=False))]


def _places(wanted: Array, ids: Array) -> Array:
    order = np.argsort(ids, kind="stable")
    return order[np.searchsorted(ids, wanted, sorter=order)]


def _same_rows(one: SharedRows, other: SharedRows) -> bool:
    """Return whether the files of the second are compared on the same rows in the first."""
    return one.labels == other.labels and all(
        number in one.places and np.array_equal(one.places[number], places)
        for number, places in other.places.items()
    )


def _measure(rows: Predictions) -> Measured:
    assert rows.targets is not None, "only files with truth are compared"
    p, truth = rows.probabilities, Targets(rows.targets)
    draws = metrics.summary_draws(p, truth, rows.scores, resamples=RESAMPLES, seed=0)
    return Measured(
        draws,
        summarize_columns(rows.labels, p, rows.targets),
        verdict(rows),
        metrics.reliability(p, truth),
    )
