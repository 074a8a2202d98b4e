"""Precision–recall and ROC curves of each label, with intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from credibly import checks
from credibly.arrays import like
from credibly.metrics.accumulators import Accumulator, Accumulators, score_pair
from credibly.metrics.calibration import proportion_interval
from credibly.metrics.intervals import Interval
from credibly.metrics.ranking import ValueCounts, cell_influence, tied_auroc, tied_average_precision
from credibly.targets import TargetsLike
from credibly.types import Array, ArrayLike


@dataclass(frozen=True, repr=False)
class Curve:
    """The precision–recall and ROC curve of one label.

    Attributes:
        thresholds: every score that occurs, descending; scores at or above it count as selected.
        precision, recall, false_positive_rate: at each threshold.
        precision_band, recall_band: lower and upper limits of pointwise Wilson intervals.
        average_precision, auroc: with Wilson intervals, whose variance comes from the influence of
            each entry (for AUROC the variance of DeLong et al., 1988).
    """

    thresholds: Array
    precision: Array
    recall: Array
    false_positive_rate: Array
    precision_band: tuple[Array, Array]
    recall_band: tuple[Array, Array]
    average_precision: Interval
    auroc: Interval

    def __repr__(self) -> str:
        numbers = (("AP", self.average_precision), ("AUROC", self.auroc))
        each = (f"{name} {x.estimate:.4f} [{x.low:.4f}, {x.high:.4f}]" for name, x in numbers)
        return f"Curve({len(self.thresholds)} thresholds; {'; '.join(each)})"


class Curves(Accumulators):
    """``curves`` over batches of rows, from the counts of positives and negatives at every score.

    Args:
        num_labels: number of labels.
        exact: limit on the different scores of a label; above it, scores with the same leading bits
            count as ties.
    """

    def __init__(self, num_labels: int, exact: int = 2**20) -> None:
        self.labels = [ValueCounts(exact) for _ in range(num_labels)]

    @property
    def parts(self) -> dict[str, Accumulator]:
        return {str(index): each for index, each in enumerate(self.labels)}

    def update(self, scores: Array, targets: Array) -> None:
        """Add checked rows of scores and decoded targets."""
        for counts, values, truth in zip(self.labels, scores.T, targets.T, strict=True):
            known = truth >= 0
            present = truth[known].astype(np.float64)
            counts.update(values[known], np.stack([1 - present, present], axis=1))

    def compute(self, level: float = 0.95) -> list[Curve]:
        """Return the curve of each label."""
        checks.fraction("level", level, low_open=True, high_open=True)
        return [_curve(each.values()[::-1], each.counts(), level) for each in self.labels]


def curves(scores: ArrayLike, targets: TargetsLike, level: float = 0.95) -> list[Curve]:
    """Return the precision–recall and ROC curve of each label, with intervals.

    Args:
        scores: (rows, labels) or (rows,); only their order counts.
        targets: of the same shape, 1, 0, soft or unknown; or class indices.
        level: of the intervals.

    Example:
        >>> (curve,) = curves(np.array([0.9, 0.8, 0.3]), np.array([1, 0, 1]))
        >>> curve.thresholds, curve.precision.round(2), curve.recall
        (array([0.9, 0.8, 0.3]), array([1.  , 0.5 , 0.67]), array([0.5, 0.5, 1. ]))
        >>> round(curve.average_precision.estimate, 4), curve.auroc.estimate
        (0.8333, 0.5)
    """
    values, truth = score_pair(scores, targets)
    found = Curves(values.shape[1], exact=max(len(values), 1))
    found.update(values, truth)
    return [_like(each, scores) for each in found.compute(level)]


def _like(curve: Curve, scores: ArrayLike) -> Curve:
    """Return a curve whose arrays are tensors if the scores are."""
    bands = {
        name: tuple(like(end, scores) for end in getattr(curve, name))
        for name in ("precision_band", "recall_band")
    }
    names = ("thresholds", "precision", "recall", "false_positive_rate")
    arrays = {name: like(getattr(curve, name), scores) for name in names}
    return replace(curve, **arrays, **bands)


def _curve(thresholds: Array, counts: Array, level: float) -> Curve:
    """Return the curve from negatives and positives in ascending cells of tied scores."""
    negative, positive = counts.T
    hits, wrong = (np.cumsum(each[::-1]) for each in (positive, negative))
    positives, negatives = positive.sum(), negative.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = hits / (hits + wrong), hits / positives, wrong / negatives
    cells = negative + positive, positive
    variance = np.einsum("kc,kcn->n", np.stack([negative, positive]), cell_influence(*cells) ** 2)
    fewest = positives, min(positives, negatives)
    estimates = tied_average_precision(*cells) if positives else np.nan, tied_auroc(*cells)
    return Curve(
        thresholds,
        *shares,
        proportion_interval(hits, hits + wrong, level),
        proportion_interval(hits, np.full_like(hits, positives), level),
        *map(_interval, estimates, variance, fewest, [level] * 2),
    )


def _interval(estimate: float, variance: float, fewest: float, level: float) -> Interval:
    """Return Wilson's interval for the number of trials that gives a share this variance.

    If all entries are right (or wrong), the variance is 0, and ``fewest`` is the number of trials.
    """
    if np.isnan(estimate):
        return Interval(estimate, np.nan, np.nan)
    trials = estimate * (1 - estimate) / variance if variance > 0 else 0.0
    trials = trials or float(fewest)
    low, high = proportion_interval(estimate * trials, trials, level)
    return Interval(estimate, float(low), float(high))
