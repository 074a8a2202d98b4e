"""Entries whose truth and calibrated probability disagree, the surest disagreement first."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.files import atomic_path, spreadsheet_cell
from credibly.predictions import Predictions
from credibly.review import noise_model
from credibly.targets import UNKNOWN
from credibly.types import Array

Kind = Literal["missing", "surplus", "unknown"]
KINDS: tuple[Kind, ...] = ("missing", "surplus", "unknown")
"""Marked absent but probably present; marked present but probably absent; not marked at all but
probably present."""

COLUMNS = ("rank", "id", "label", "kind", "given", "probability", "disagreement", "decision")
PROBABLY_WRONG = 0.9
"""A known label is probably wrong if the model gives the opposite at least this probability."""

RESAMPLES = 100
_FAR = 30.0


@dataclass(frozen=True)
class LabelIssue:
    """One entry to look at.

    Attributes:
        id, label: which entry.
        row: number of its row in the predictions.
        kind: ``"missing"``, ``"surplus"`` or ``"unknown"``, see ``KINDS``.
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
    predictions: Predictions,
    *,
    top: int | None = 1000,
    kinds: Sequence[Kind] = KINDS,
    min_disagreement: float = PROBABLY_WRONG,
    seed: int = 0,
) -> LabelIssues:
    """Return the entries whose truth and probability disagree, the surest disagreement first.

    The probabilities must be calibrated and come from a model that was not trained on these rows
    (held-out or cross-fitted); a model repeats the errors that it was trained on. Per-label
    calibration ranked best in our measurements (docs/guide/review.md).

    Args:
        predictions: with truth; soft targets are passed over.
        top: at most so many entries; None for all.
        kinds: which kinds of entries, see ``KINDS``.
        min_disagreement: least disagreement of an entry, in [0, 1].
        seed: of the resampling behind the intervals.

    Raises:
        InputError: if there is no truth.

    Example:
        >>> predictions = Predictions.from_arrays(
        ...     probabilities=[[0.99, 0.2], [0.03, 0.9]], targets=[[0, 0], [1, -1]],
        ...     labels=["cat", "dog"], ids=["a", "b"])
        >>> [(each.id, each.label, each.kind) for each in label_issues(predictions)]
        [('a', 'cat', 'missing'), ('b', 'cat', 'surplus'), ('b', 'dog', 'unknown')]
    """
    check_question(top, kinds, min_disagreement)
    predictions.check_dense("`label_issues`")
    if predictions.targets is None:
        raise InputError(WITHOUT_TRUTH)
    rows, columns, disagreement = disagreements(
        predictions.probabilities, predictions.targets, kinds, min_disagreement
    )
    order = np.argsort(-disagreement[rows, columns], kind="stable")[:top]
    issues = [
        _issue(predictions, int(row), int(column), float(disagreement[row, column]))
        for row, column in zip(rows[order], columns[order], strict=True)
    ]
    wrong = int(probably_wrong(predictions.probabilities, predictions.targets).sum())
    return LabelIssues(issues, *_errors(predictions, seed), wrong=wrong)


WITHOUT_TRUTH = (
    "label issues need the truth, which these predictions lack. Join it with "
    "`Predictions.join_truth`, or import it with `--truth`."
)


def check_question(top: int | None, kinds: Sequence[Kind], min_disagreement: float) -> None:
    """Raise if an argument of ``label_issues`` has no meaning."""
    checks.fraction("min_disagreement", min_disagreement)
    if top is not None:
        checks.at_least("top", top, 0)
    for kind in kinds:
        checks.choice("kinds", kind, KINDS)


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


def disagreements(
    probabilities: Array, targets: Array, kinds: Sequence[Kind], least: float
) -> tuple[Array, Array, Array]:
    """Return rows and columns of the entries that disagree by ``least``, and by how much all do."""
    present = targets == 1
    disagreement = np.where(present, 1 - probabilities, probabilities)
    asked = np.zeros(probabilities.shape, dtype=bool)
    for kind, mask in (
        ("missing", targets == 0),
        ("surplus", present),
        ("unknown", targets == UNKNOWN),
    ):
        if kind in kinds:
            asked |= mask
    rows, columns = np.nonzero(asked & (disagreement >= least))
    return rows, columns, disagreement


def _issue(predictions: Predictions, row: int, column: int, disagreement: float) -> LabelIssue:
    assert predictions.targets is not None
    given = int(predictions.targets[row, column])
    kind: Kind = "surplus" if given == 1 else "missing" if given == 0 else "unknown"
    return LabelIssue(
        id=str(predictions.ids[row]),
        label=predictions.labels[column],
        row=row,
        kind=kind,
        given=None if given == UNKNOWN else given,
        probability=float(predictions.probabilities[row, column]),
        disagreement=disagreement,
    )


def _errors(
    predictions: Predictions, seed: int
) -> tuple[list[LabelErrors], LabelErrors | None, noise_model.NoiseModel | None]:
    """Return the estimated number of errors per label and in all, and the model behind them."""
    assert predictions.targets is not None
    targets = predictions.targets
    known = (targets == 0) | (targets == 1)
    odds = log_odds(predictions.probabilities)
    marked = targets[known]
    if not len(marked) or not 0 < marked.sum() < len(marked):
        return [], None, None
    bins = noise_model.binned(odds[known], marked)
    columns = [
        (odds[rows, place], targets[rows, place], np.ones(int(rows.sum())))
        for place, rows in enumerate(known.T)
    ]
    return estimated_errors(predictions.labels, bins, columns, seed)


def estimated_errors(
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


def log_odds(probabilities: Array) -> Array:
    """Return log-odds within ±30."""
    from scipy.special import logit

    return np.clip(logit(probabilities.astype(np.float64)), -_FAR, _FAR)
