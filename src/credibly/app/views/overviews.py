"""Compute what the first page and the report show: numbers first, then the words for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly import metrics
from credibly.app.views import AtlasRow, Overview, label_atlas, overview
from credibly.predictions import Predictions
from credibly.review import probably_wrong
from credibly.targets import Targets
from credibly.types import Array

SMALL_MULTIPLES = 24
"""Labels drawn on the first page; a link leads to the others."""

PAIRED_LABELS = 14
"""Labels of the heat map, the most frequent ones."""

_FEW_ROWS = 5.0
"""A pair that is neither expected nor seen in so many rows says nothing."""


@dataclass(frozen=True)
class ThresholdCurve:
    """What a single threshold for all labels returns, at 0 %, 1 %, … 100 %.

    Attributes:
        found: share of the present labels that are returned (recall).
        right: share of the returned labels that are present (precision); NaN where none is.
        size: labels returned per row, on average.
        empty: rows for which nothing is returned.
    """

    found: Array
    right: Array
    size: Array
    empty: Array

    def nearest(self, threshold: float) -> int:
        """Return the step of the curve that is nearest to a threshold."""
        return int(np.clip(round(100 * threshold), 0, len(self.found) - 1))

    def balanced(self) -> int:
        """Return the step with the highest F1, the harmonic mean of found and right."""
        right = np.nan_to_num(self.right)
        total = self.found + right
        return int(np.argmax(2 * self.found * right / np.where(total > 0, total, 1.0)))


def threshold_curve(probabilities: Array, targets: Array) -> ThresholdCurve:
    """Return what one threshold for all labels finds and how often it is right.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: decoded, same shape; −1 is unknown and counts for the size alone.

    Example:
        >>> p, y = np.array([[0.9, 0.4], [0.2, 0.6]]), np.array([[1, 0], [0, 1]])
        >>> curve = threshold_curve(p, y)
        >>> float(curve.found[50]), float(curve.right[50]), float(curve.right[30])
        (1.0, 1.0, 0.6666666666666666)
    """
    grid = np.linspace(0, 1, 101).astype(probabilities.dtype)
    step = np.searchsorted(grid, probabilities, side="right") - 1
    known = targets >= 0
    present = np.where(known, targets, 0)

    def at_least(weights: Array) -> Array:
        counts = np.bincount(step.ravel(), weights=weights.ravel(), minlength=len(grid))
        return counts[::-1].cumsum()[::-1]

    hits, judged, returned = at_least(present), at_least(known), at_least(np.ones(step.shape))
    highest = np.bincount(step.max(axis=1, initial=-1) + 1, minlength=len(grid) + 1)
    with np.errstate(invalid="ignore"):
        return ThresholdCurve(
            found=hits / max(float(hits[0]), 1e-300),
            right=hits / judged,
            size=returned / max(len(step), 1),
            empty=highest.cumsum()[: len(grid)],
        )


@dataclass(frozen=True)
class LabelLift:
    """How much more often labels occur together than by chance, in the truth.

    Attributes:
        labels: names, the most frequent first.
        together: (labels, labels) rows that carry both.
        expected: rows that would, were the labels independent.
    """

    labels: list[str]
    together: Array
    expected: Array

    @property
    def lift(self) -> Array:
        """Return together / expected; NaN where both are too few rows to say."""
        enough = np.maximum(self.together, self.expected) >= _FEW_ROWS
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(enough, self.together / self.expected, np.nan)

    @property
    def matters(self) -> Array:
        """Return which pairs occur at least twice as often as by chance, by 3 standard errors."""
        errors = (self.together - self.expected) / np.sqrt(np.maximum(self.expected, 1.0))
        return (errors > 3) & (np.nan_to_num(self.lift) >= 2)


def label_lift(labels: list[str], targets: Array, most: int = PAIRED_LABELS) -> LabelLift:
    """Return how often the most frequent labels occur together, against chance.

    Chance is the product of the rates of the two labels over the rows where both are known.

    Example:
        >>> y = np.array([[1, 1, 0]] * 40 + [[0, 0, 1]] * 60)
        >>> found = label_lift(["cup", "fork", "dog"], y)
        >>> found.labels, float(found.lift[1, 2])
        (['dog', 'cup', 'fork'], 2.5)
    """
    present = np.asarray(targets == 1)
    order = np.argsort(-present.sum(0), kind="stable")[:most]
    y = present[:, order].astype(np.float64)
    known = np.isin(targets[:, order], (0, 1)).astype(np.float64)
    with_other = y.T @ known  # rows that carry the first label where the second is known
    rows = known.T @ known
    expected = with_other * with_other.T / np.maximum(rows, 1.0)
    return LabelLift([labels[t] for t in order], y.T @ y, expected)


@dataclass(frozen=True)
class Fact:
    """A number with the words under it."""

    value: str
    words: str


@dataclass(frozen=True)
class FirstLook:
    """Everything that the first page shows about one file.

    Attributes:
        overview: verdict, labels to fix, next steps.
        labels: every label, the most clearly off first.
        wrong: annotations that are probably wrong.
        facts: accuracy, labels per row, rows that are exactly right.
        diagram, curve, lift: None without truth.
    """

    overview: Overview
    labels: list[AtlasRow]
    wrong: int
    facts: list[Fact]
    diagram: metrics.Reliability | None = None
    curve: ThresholdCurve | None = None
    lift: LabelLift | None = None


def first_look(
    predictions: Predictions, path: str, *, atlas: list[AtlasRow] | None = None
) -> FirstLook:
    """Return what the first page shows.

    Args:
        predictions: all rows, or a sample of them.
        path: of the file, for the commands.
        atlas: what ``label_atlas`` returns for these, where it is known already.
    """
    p, y = predictions.probabilities, predictions.targets
    rows = label_atlas(predictions.labels, p, y) if atlas is None else atlas
    found = overview(predictions, path, atlas=rows)
    if y is None or not (y >= 0).any():
        return FirstLook(found, rows, 0, [_size(p, None)])
    ordered = sorted(rows, key=lambda row: (not row.flag, -_off(row)))
    return FirstLook(
        overview=found,
        labels=ordered,
        wrong=int(probably_wrong(p, y).sum()),
        facts=[_accuracy(rows), _size(p, y), _exact(p, y)],
        diagram=metrics.reliability(p, Targets(y)),
        curve=threshold_curve(p, y),
        lift=label_lift(predictions.labels, y) if len(predictions.labels) > 1 else None,
    )


def _off(row: AtlasRow) -> float:
    """Return by how much more than chance a label's probabilities are off."""
    excess = row.summary.error - row.noise
    return float(excess) if np.isfinite(excess) else -1.0


def _accuracy(rows: list[AtlasRow]) -> Fact:
    judged = [row.summary for row in rows if np.isfinite(row.summary.average_precision)]
    if not judged:
        return Fact("–", "mAP: no label is known to be present")
    precision = float(np.mean([one.average_precision for one in judged]))
    chance = float(np.mean([one.present_share for one in judged]))
    return Fact(f"{100 * precision:.0f} %", f"mAP (random order: {100 * chance:.0f} %)")


def _size(p: Array, y: Array | None) -> Fact:
    if y is None:
        expected = p.sum(1, dtype=np.float64).mean() if len(p) else 0.0
        return Fact(f"{expected:.3g}", "labels expected per row")
    known = y >= 0
    present = np.where(known, y, 0).sum(1, dtype=np.float64).mean()
    expected = np.where(known, p, 0).sum(1, dtype=np.float64).mean()
    return Fact(f"{present:.3g}", f"labels per row ({expected:.3g} expected)")


def _exact(p: Array, y: Array) -> Fact:
    known = y >= 0
    judged = known.any(1)
    right = (((p >= 0.5) == (y >= 0.5)) | ~known).all(1)[judged]
    share = float(right.mean()) if right.size else 0.0
    return Fact(f"{100 * share:.0f} %", "of rows have every label right at 50 %")
