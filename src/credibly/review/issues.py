"""Find labels that are probably wrong, and estimate the number of errors.

It reads the rows twice, with memory that does not depend on their number. The first pass fits how
often the truth is wrong, and the second collects the entries.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.executors import Executor, open_executor
from credibly.files import atomic_path, spreadsheet_cell
from credibly.metrics.accumulators import Accumulator, Accumulators, BestRows
from credibly.notebook import draw
from credibly.predictions import Dataset, Predictions
from credibly.review.noise_model import (
    KINDS,
    PROBABLY,
    Kind,
    LogOddsHistogram,
    NoiseModel,
    log_odds,
)
from credibly.targets import UNKNOWN
from credibly.types import FilePath

COLUMNS = ("rank", "id", "label", "kind", "given", "probability", "error_probability", "decision")
_POOLED_FROM = 4096
"""With more labels errors are estimated for all of them together only."""


@dataclass(frozen=True)
class LabelIssue:
    """One entry to review.

    Attributes:
        id, label: the row and the label of the entry.
        row: index of the row in the predictions.
        kind: ``"missing"`` (marked absent, probably present), ``"extra"`` (marked present,
            probably absent) or ``"unknown"`` (not marked, probably present).
        given: the truth of the entry: 1, 0, or None for unknown.
        probability: calibrated probability that the label is present.
        error_probability: probability that the given truth is wrong; for an unknown label, that it
            is present.
    """

    id: str
    label: str
    row: int
    kind: Kind
    given: int | None
    probability: float
    error_probability: float


@dataclass(frozen=True)
class LabelErrors:
    """The estimated number of wrong annotations among the known ones of a label.

    It also counts what the model cannot resolve. Use it to compare labels; it is not a measurement
    (docs/guide/review.md).
    """

    label: str
    known: int
    expected: float


@dataclass(frozen=True)
class LabelIssues:
    """Entries to review, the most certain first, and the estimated number of errors.

    Attributes:
        issues: the entries.
        errors: one estimate per label, in the order of the predictions; empty without an estimate.
        total: the estimate over all labels; None without one.
        noise: the fitted curve behind these estimates.
        wrong: number of labels in all rows that are probably wrong: known labels with an error
            probability of at least ½. It is at most twice the estimate, which also counts errors
            that no single entry shows.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.99, 0.2]], targets=[[-1, -1]], labels=["cat", "dog"])
        >>> label_issues(predictions)
        LabelIssues(0 missing, 0 extra, 1 unknown)
    """

    issues: list[LabelIssue]
    errors: list[LabelErrors]
    total: LabelErrors | None
    noise: NoiseModel
    wrong: int = 0

    def __len__(self) -> int:
        return len(self.issues)

    def __iter__(self) -> Iterator[LabelIssue]:
        return iter(self.issues)

    def __getitem__(self, place: int) -> LabelIssue:
        return self.issues[place]

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{sum(each.kind == kind for each in self.issues):,} {kind}" for kind in KINDS
        )
        errors = ""
        if self.total is not None:
            errors = f"; about {self.total.expected:,.0f} errors estimated"
        return f"LabelIssues({counts}{errors})"

    def _repr_html_(self) -> str:
        """Return the number of labels that are probably wrong and the first ones, for notebooks."""
        return draw("issues", self)

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain values."""
        return {
            "issues": [vars(each) for each in self.issues],
            "errors": [vars(each) for each in self.errors],
            "total": None if self.total is None else vars(self.total),
            "wrong": self.wrong,
        }

    def write(self, path: FilePath) -> None:
        """Write the queue as CSV, with an empty column ``decision`` for ``read_reviews``.

        The file is complete or absent. Text that a spreadsheet would run as a formula gets an
        apostrophe in front.
        """
        with atomic_path(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for rank, each in enumerate(self.issues, start=1):
                given = "" if each.given is None else each.given
                numbers = [f"{each.probability:.6f}", f"{each.error_probability:.6f}"]
                names = [spreadsheet_cell(each.id), spreadsheet_cell(each.label)]
                writer.writerow([rank, *names, each.kind, given, *numbers, ""])


def label_issues(
    predictions: Predictions | FilePath,
    *,
    top: int | None = 1000,
    kinds: Sequence[Kind] = KINDS,
    min_probability: float = PROBABLY,
    partial: bool = False,
    executor: str | Executor = "local",
) -> LabelIssues:
    """Return the labels that are probably wrong, the most certain first.

    A curve of how often the truth contradicts the probabilities shows which disagreements are
    errors. For example, if probabilities of 0.95 are right in 95 of 100 rows, the other 5 are not
    errors. The probabilities must be calibrated. They must come from a model that was not trained
    on these rows (held-out or cross-fitted), because a model repeats the errors of its training
    data. Per-label calibration ranked best in our measurements (docs/guide/review.md). Above 4,096
    labels, there is one estimate for all labels together. If rows store only their most probable
    labels, other labels that are present are not found.

    Args:
        predictions: with truth: in memory, or a file or a folder of shards of any size. Soft
            targets are ignored.
        top: limit on the number of entries; None for all.
        kinds: the kinds of entries to return: ``"missing"``, ``"extra"``, ``"unknown"``.
        min_probability: the minimum error probability of an entry, in [0, 1].
        partial: whether a folder may lack shards; by default that is an error.
        executor: ``"local"`` for this machine; ``"spark"`` or ``Spark(session)`` for a cluster.

    Raises:
        InputError: if the predictions have no truth.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.99, 0.2]] * 50 + [[0.01, 0.9]] * 50,
        ...     targets=[[1, 0]] * 49 + [[0, 0]] + [[0, 1]] * 49 + [[1, -1]],
        ...     labels=["cat", "dog"])
        >>> [(each.id, each.label, each.kind) for each in label_issues(predictions)]
        [('99', 'cat', 'extra'), ('49', 'cat', 'missing'), ('99', 'dog', 'unknown')]
    """
    checks.fraction("min_probability", min_probability)
    if top is not None:
        checks.at_least("top", top, 0)
    for kind in kinds:
        checks.choice("kinds", kind, KINDS)
    rows, worker = _opened(predictions, partial, executor)
    histogram = worker.accumulate(rows, _empty_histogram(rows.labels), _count)
    noise = _noise(histogram)
    queue = _IssueQueue(top, tuple(kinds), min_probability, noise)
    worker.accumulate(rows, queue, _IssueQueue.update)
    errors, total = _errors(histogram, rows.labels, noise)
    return LabelIssues(queue.issues(rows.labels), errors, total, noise, queue.wrong)


def fit_noise(predictions: Predictions) -> NoiseModel:
    """Return the model of wrong truth for these predictions that ``label_issues`` fits.

    Its method ``probably_wrong`` finds the wrong labels. If all truth is present or all is absent,
    only the probabilities decide.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.95], [0.3]], targets=[[0], [0]], labels=["cat"])
        >>> p, y = predictions.probabilities, predictions.targets
        >>> fit_noise(predictions).probably_wrong(p, y).tolist()
        [[True], [False]]
    """
    histogram = _empty_histogram(predictions.labels)
    if predictions.targets is not None:
        _count(histogram, predictions, 0)
    return _noise(histogram)


def _opened(
    predictions: Predictions | FilePath, partial: bool, executor: str | Executor
) -> tuple[Predictions | Dataset, Executor]:
    """Return the rows, which must have truth, and the executor."""
    needed = (
        "label issues need the truth, and these predictions have none. Add it: credibly import … "
        "--truth FILE."
    )
    if isinstance(predictions, Predictions):
        if predictions.targets is None:
            raise InputError(needed)
        return predictions, open_executor("local")
    dataset, worker = Dataset(predictions, partial=partial), open_executor(executor)
    if not dataset.has_targets:
        raise InputError(f"{predictions}: {needed}")
    worker.check_ids(dataset)
    return dataset, worker


def _empty_histogram(labels: Sequence[str]) -> LogOddsHistogram:
    return LogOddsHistogram(1 if len(labels) > _POOLED_FROM else len(labels))


def _count(histogram: LogOddsHistogram, batch: Predictions, first_row: int) -> None:
    """Add the log-odds of the known entries of some rows; soft targets are ignored."""
    targets = batch.targets
    assert targets is not None
    hard = batch.held & ((targets == 0) | (targets == 1))
    labels = batch.label_indices[hard] if histogram.num_labels > 1 else np.zeros(hard.sum(), int)
    histogram.update(labels, log_odds(batch.probabilities[hard]), targets[hard])


class _IssueQueue(Accumulators):
    """The most certain entries so far, and the number of labels that are probably wrong."""

    def __init__(
        self, top: int | None, kinds: tuple[Kind, ...], least: float, noise: NoiseModel
    ) -> None:
        self.kinds, self.least, self.noise = kinds, least, noise
        # Entries with equal error probability are ordered by row and label.
        self._entries = BestRows(("-error_probability", "row", "label"), top)
        self._count = Accumulator(wrong=np.zeros(1))

    @property
    def wrong(self) -> int:
        """The number of labels that are probably wrong."""
        return int(self._count.sums["wrong"][0])

    def update(self, batch: Predictions, first_row: int) -> None:
        p, targets = batch.probabilities, batch.targets
        assert targets is not None
        wrong = batch.held & self.noise.probably_wrong(p, targets)
        self._count.sums["wrong"] += wrong.sum()
        asked = self.noise.suspects(p, targets, self.least, self.kinds)
        rows, columns = np.nonzero(batch.held & asked)
        p, given = p[rows, columns], targets[rows, columns]
        self._entries.update(
            {
                "error_probability": self.noise.error_probability(log_odds(p), given),
                "row": rows + first_row,
                "label": batch.label_indices[rows, columns].astype(np.int64),
                "given": given.astype(np.float64),
                "probability": p,
                "id": np.asarray(batch.ids[rows], dtype=str),
            }
        )

    def issues(self, labels: Sequence[str]) -> list[LabelIssue]:
        """Return the most certain entries, in order."""
        fields = ("id", "label", "row", "given", "probability", "error_probability")
        found = []
        for id, label, row, given, probability, error in zip(
            *(self._entries.columns[name].tolist() for name in fields), strict=True
        ):
            kind: Kind = "extra" if given == 1 else "missing" if given == 0 else "unknown"
            known = None if given == UNKNOWN else int(given)
            found.append(LabelIssue(id, labels[int(label)], row, kind, known, probability, error))
        return found


def _noise(histogram: LogOddsHistogram) -> NoiseModel:
    _, odds, targets, counts = histogram.bins()
    return NoiseModel.fit(odds, targets, counts) or NoiseModel.UNINFORMED


def _errors(
    histogram: LogOddsHistogram, labels: Sequence[str], noise: NoiseModel
) -> tuple[list[LabelErrors], LabelErrors | None]:
    """Return the estimated number of errors per label and in total."""
    if noise is NoiseModel.UNINFORMED:
        return [], None
    label, odds, targets, counts = histogram.bins()
    known, expected = (
        np.bincount(label, weights=counts * each, minlength=histogram.num_labels)
        for each in (np.ones(len(counts)), noise.error_probability(odds, targets))
    )
    total = LabelErrors("all labels", round(known.sum()), float(expected.sum()))
    if histogram.num_labels != len(labels):
        return [], total
    each = zip(labels, known.tolist(), expected.tolist(), strict=True)
    return [LabelErrors(name, round(count), errors) for name, count, errors in each], total
