"""Entries whose truth is probably wrong, the surest first, and how many there are.

One pass over the rows, in memory that does not grow with them.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.calibrate.histogram import LogOddsHistogram
from credibly.checks import InputError
from credibly.executors import Executor, is_remote, open_executor
from credibly.files import atomic_path, spreadsheet_cell
from credibly.predictions import Dataset, Predictions
from credibly.review import noise_model
from credibly.targets import UNKNOWN
from credibly.types import Array

Kind = Literal["missing", "extra", "unknown"]
KINDS: tuple[Kind, ...] = ("missing", "extra", "unknown")
"""Marked absent but probably present; marked present but probably absent; not marked at all but
probably present."""

COLUMNS = ("rank", "id", "label", "kind", "given", "probability", "disagreement", "decision")
PROBABLY_WRONG = 0.9
"""A known label is probably wrong if the model gives the opposite at least this probability."""

RESAMPLES = 100
_POOLED_FROM = 4096
"""With more labels errors are estimated for all of them together only."""
_FAR = 30.0


@dataclass(frozen=True)
class LabelIssue:
    """One entry to look at.

    Attributes:
        id, label: which entry.
        row: number of its row in the predictions.
        kind: ``"missing"``, ``"extra"`` or ``"unknown"``, see ``KINDS``.
        given: what the truth says: 1, 0, or None for unknown.
        probability: calibrated probability that the label is present.
        disagreement: probability that the truth is wrong if the model is right: 1 − p where the
            label is marked present, p elsewhere.
    """

    id: str
    label: str
    row: int
    kind: Kind
    given: int | None
    probability: float
    disagreement: float


@dataclass(frozen=True)
class LabelErrors:
    """An estimate of how many entries of a label are marked wrongly, with a 95 % interval.

    It also counts what the model cannot resolve, which the interval does not cover: an estimate to
    compare labels by, not a measurement (docs/guide/review.md).
    """

    label: str
    known: int
    expected: float
    low: float
    high: float


@dataclass(frozen=True)
class LabelIssues:
    """Entries to look at, the surest disagreement first, and the estimated number of errors.

    Attributes:
        issues: the entries.
        errors: per label, in the order of the predictions; empty where it cannot be estimated.
        total: the same over all labels; None where it cannot be estimated.
        noise: the fitted curve behind these numbers.
        wrong: how many labels of all rows are probably wrong, see ``probably_wrong``.
    """

    issues: list[LabelIssue]
    errors: list[LabelErrors]
    total: LabelErrors | None
    noise: noise_model.NoiseModel | None
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
            errors = (
                f"; about {self.total.expected:,.0f} errors estimated "
                f"[{self.total.low:,.0f}, {self.total.high:,.0f}]"
            )
        return f"LabelIssues({counts}{errors})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a plain document."""
        return {
            "issues": [vars(each) for each in self.issues],
            "errors": [vars(each) for each in self.errors],
            "total": None if self.total is None else vars(self.total),
            "wrong": self.wrong,
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the queue as CSV, with an empty column ``decision`` for ``read_reviews``.

        The file is complete or not there. Text that a spreadsheet would run as a formula begins
        with an apostrophe.
        """
        with atomic_path(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for rank, each in enumerate(self.issues, start=1):
                given = "" if each.given is None else each.given
                numbers = [f"{each.probability:.6f}", f"{each.disagreement:.6f}"]
                names = [spreadsheet_cell(each.id), spreadsheet_cell(each.label)]
                writer.writerow([rank, *names, each.kind, given, *numbers, ""])


def label_issues(
    predictions: Predictions | str | os.PathLike[str],
    *,
    top: int | None = 1000,
    kinds: Sequence[Kind] = KINDS,
    min_disagreement: float = PROBABLY_WRONG,
    seed: int = 0,
    partial: bool = False,
    executor: str | Executor = "local",
) -> LabelIssues:
    """Return the entries whose truth and probability disagree, the surest disagreement first.

    The probabilities must be calibrated and come from a model that was not trained on these rows
    (held-out or cross-fitted); a model repeats the errors that it was trained on. Per-label
    calibration ranked best in our measurements (docs/review.md). The estimated numbers of errors
    come from a fine histogram of the log-odds; past 4,096 labels there is one for all labels
    together. Where rows hold their most probable labels, a label that is present but not held is
    not found.

    Args:
        predictions: with truth: in memory, or a file or a folder of shards of any size. Soft
            targets are passed over.
        top: at most so many entries; None for all.
        kinds: which kinds of entries, see ``KINDS``.
        min_disagreement: least disagreement of an entry, in [0, 1].
        seed: of the resampling behind the intervals.
        partial: whether a folder may lack shards; otherwise that is an error.
        executor: ``"local"``, this machine; ``"spark"`` or ``Spark(session)``, a cluster.

    Raises:
        InputError: if there is no truth.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.99, 0.2], [0.03, 0.9]], targets=[[0, 0], [1, -1]],
        ...     labels=["cat", "dog"], ids=["a", "b"])
        >>> [(each.id, each.label, each.kind) for each in label_issues(predictions)]
        [('a', 'cat', 'missing'), ('b', 'cat', 'extra'), ('b', 'dog', 'unknown')]
    """
    checks.fraction("min_disagreement", min_disagreement)
    if top is not None:
        checks.at_least("top", top, 0)
    for kind in kinds:
        checks.choice("kinds", kind, KINDS)
    if isinstance(predictions, Predictions):
        if predictions.targets is None:
            raise InputError(_WITHOUT_TRUTH)
        found = _Issues(predictions.labels, top, tuple(kinds), min_disagreement)
        found.update(predictions, 0)
        return found.result(seed)
    if is_remote(predictions):
        raise InputError(f"{predictions} is an address; give a path that every worker sees.")
    dataset, worker = Dataset(predictions, partial=partial), open_executor(executor)
    if not dataset.has_targets:
        raise InputError(f"{predictions}: {_WITHOUT_TRUTH}")
    worker.check_ids(dataset)
    found = _Issues(dataset.labels, top, tuple(kinds), min_disagreement)
    return worker.accumulate(dataset, found, _Issues.update).result(seed)


_WITHOUT_TRUTH = (
    "label issues need the truth, which these predictions lack. Join it with "
    "`Predictions.join_truth`, or import it with `--truth`."
)


def probably_wrong(probabilities: Array, targets: Array) -> Array:
    """Return which known labels the model contradicts with ``PROBABLY_WRONG`` or more.

    This is the one definition behind every count of labels to review.

    Args:
        probabilities: calibrated, of rows that the model was not trained on.
        targets: decoded, of the same shape; unknown and soft entries are never counted.

    Example:
        >>> probably_wrong(np.array([[0.95, 0.5, 0.99]]), np.array([[0, 1, -1]]))
        array([[ True, False, False]])
    """
    missing = (targets == 0) & (probabilities >= PROBABLY_WRONG)
    return missing | ((targets == 1) & (1 - probabilities >= PROBABLY_WRONG))


class _Issues:
    """The surest entries so far, and the log-odds of all known ones by label and truth."""

    def __init__(
        self, labels: Sequence[str], top: int | None, kinds: tuple[Kind, ...], least: float
    ) -> None:
        self.labels, self.top, self.kinds, self.least = labels, top, kinds, least
        self.histogram = LogOddsHistogram(1 if len(labels) > _POOLED_FROM else len(labels))
        self._entries: dict[str, Array] = {}
        self.wrong = 0

    def update(self, batch: Predictions, first_row: int) -> None:
        p, labels, targets = batch.probabilities, batch.label_indices, batch.targets
        assert targets is not None
        if not batch.held.all():  # entries without a label are neither known nor unknown
            targets = np.where(batch.held, targets, np.float32(np.nan))
        hard = (targets == 0) | (targets == 1)  # soft targets are passed over
        numbers = labels[hard] if self.histogram.num_labels > 1 else np.zeros(hard.sum(), int)
        self.histogram.update(numbers, _log_odds(p[hard]), targets[hard])
        self.wrong += int(probably_wrong(p, targets).sum())
        rows, columns, disagreement = _disagreements(p, targets, self.kinds, self.least)
        each = disagreement[rows, columns]
        if (
            self.top is not None and len(rows) > self.top
        ):  # ties with the last one stay in until all are ordered
            kept = each >= -np.partition(-each, self.top)[self.top]
            rows, columns, each = rows[kept], columns[kept], each[kept]
        self.add_entries(
            {
                "disagreement": each,
                "row": rows + first_row,
                "label": labels[rows, columns].astype(np.int64),
                "given": targets[rows, columns].astype(np.float64),
                "probability": p[rows, columns],
                "id": np.asarray(batch.ids[rows], dtype=str),
            }
        )

    def add_entries(self, entries: Mapping[str, Array]) -> None:
        """Add entries and keep the surest; of equals the first by row and label."""
        if self._entries:
            entries = {
                name: np.concatenate([self._entries[name], each]) for name, each in entries.items()
            }
        order = np.lexsort((entries["label"], entries["row"], -entries["disagreement"]))
        self._entries = {name: each[order[: self.top]] for name, each in entries.items()}

    def state(self) -> dict[str, Array]:
        entries = {f"entry:{name}": each for name, each in self._entries.items()}
        return {**self.histogram.state(), **entries, "wrong": np.array(self.wrong)}

    def merge(self, state: Mapping[str, Array]) -> None:
        self.histogram.merge(state)
        self.wrong += int(state["wrong"])
        start = "entry:"
        entries = {
            name.removeprefix(start): each for name, each in state.items() if name.startswith(start)
        }
        if entries:
            self.add_entries(entries)

    def result(self, seed: int) -> LabelIssues:
        """Return the surest entries, in order, and the estimated numbers of errors."""
        columns = [self._entries[name].tolist() for name in _FIELDS]
        issues = [self._issue(*entry) for entry in zip(*columns, strict=True)]
        labels = [] if len(self.labels) > _POOLED_FROM else self.labels
        return LabelIssues(issues, *_errors(self.histogram, labels, seed), wrong=self.wrong)

    def _issue(
        self, id: str, label: int, row: int, given: float, probability: float, disagreement: float
    ) -> LabelIssue:
        kind: Kind = "extra" if given == 1 else "missing" if given == 0 else "unknown"
        known = None if given == UNKNOWN else int(given)
        return LabelIssue(id, self.labels[label], row, kind, known, probability, disagreement)


_FIELDS = ("id", "label", "row", "given", "probability", "disagreement")


def _disagreements(
    probabilities: Array, targets: Array, kinds: Sequence[Kind], least: float
) -> tuple[Array, Array, Array]:
    """Return rows and columns of the entries that disagree by ``least``, and by how much all do."""
    present = targets == 1
    disagreement = np.where(present, 1 - probabilities, probabilities)
    asked = np.zeros(probabilities.shape, dtype=bool)
    for kind, mask in (
        ("missing", targets == 0),
        ("extra", present),
        ("unknown", targets == UNKNOWN),
    ):
        if kind in kinds:
            asked |= mask
    rows, columns = np.nonzero(asked & (disagreement >= least))
    return rows, columns, disagreement


def _errors(
    histogram: LogOddsHistogram, labels: Sequence[str], seed: int
) -> tuple[list[LabelErrors], LabelErrors | None, noise_model.NoiseModel | None]:
    """Return the estimated number of errors per label and in all, and the model behind them."""
    label, odds, targets, counts = histogram.cells()
    present = counts[targets == 1].sum()
    if not len(counts) or not 0 < present < counts.sum():
        return [], None, None
    bins = noise_model.binned(odds, targets, counts)
    names = labels or ["all labels"]
    columns = [
        (odds[label == place], targets[label == place], counts[label == place])
        for place in range(len(names))
    ]
    errors, total, model = _estimated_errors(names, bins, columns, seed)
    return (errors if labels else []), total, model


def _estimated_errors(
    labels: Sequence[str],
    bins: noise_model.Binned,
    columns: Sequence[tuple[Array, Array, Array]],
    seed: int,
) -> tuple[list[LabelErrors], LabelErrors | None, noise_model.NoiseModel | None]:
    """Return the estimates from pooled bins and each label's (log-odds, targets, weights)."""
    model = noise_model.fit_binned(bins)
    fits = noise_model.resampled(bins, model, RESAMPLES, seed)
    rng = np.random.default_rng(seed)
    sums = np.array([float(w @ model.error_probability(g, y)) for g, y, w in columns])
    draws = np.array(
        [
            [_drawn(fit.error_probability(g, y), w, rng) if len(w) else 0 for g, y, w in columns]
            for fit in fits
        ]
    )
    counts = np.array([w.sum() for _, _, w in columns])
    errors = [
        _estimate(name, counts[place], sums[place], draws[:, place])
        for place, name in enumerate(labels)
    ]
    total = _estimate("all labels", counts.sum(), sums.sum(), draws.sum(axis=1))
    return errors, total, model


def _drawn(chances: Array, weights: Array, rng: np.random.Generator) -> float:
    """Return a draw of the number of errors: normal, with the mean and variance of the sum."""
    spread = float(np.sqrt(weights @ (chances * (1 - chances))))
    return max(0.0, float(weights @ chances) + spread * float(rng.normal()))


def _estimate(label: str, known: float, expected: float, draws: Array) -> LabelErrors:
    """Return an estimate whose interval holds it: draws below 0 count as 0, which lifts them."""
    low, high = (float(end) for end in np.quantile(draws, [0.025, 0.975]))
    return LabelErrors(
        label, round(known), float(expected), min(low, float(expected)), max(high, float(expected))
    )


def _log_odds(probabilities: Array) -> Array:
    """Return log-odds within ±30."""
    from scipy.special import logit

    return np.clip(logit(probabilities.astype(np.float64)), -_FAR, _FAR)
