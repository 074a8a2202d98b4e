"""Precision–recall and ROC curves of each label, with intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from credibly import checks
from credibly.arrays import like
from credibly.metrics.accumulators import score_pair
from credibly.metrics.calibration import proportion_interval
from credibly.metrics.intervals import Interval
from credibly.metrics.ranking import cell_influence, tied_auroc, tied_average_precision
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
    checks.fraction("level", level, low_open=True, high_open=True)
    found = []
    for score, target in zip(values.T, truth.T, strict=True):
        known, present = score[target >= 0].astype(np.float64), target[target >= 0]
        thresholds, cells = np.unique(known, return_inverse=True)
        counts = [np.bincount(cells, each, len(thresholds)) for each in (1 - present, present)]
        found.append(_like(_curve(thresholds[::-1], counts[0], counts[1], level), scores))
    return found


def _like(curve: Curve, scores: ArrayLike) -> Curve:
    """Return a curve whose arrays are tensors if the scores are."""
    bands = {
        name: tuple(like(end, scores) for end in getattr(curve, name))
        for name in ("precision_band", "recall_band")
    }
    names = ("thresholds", "precision", "recall", "false_positive_rate")
    arrays = {name: like(getattr(curve, name), scores) for name in names}
    return replace(curve, **arrays, **bands)


def _curve(thresholds: Array, negative: Array, positive: Array, level: float) -> Curve:
    """Return the curve from negatives and positives in ascending cells of tied scores."""
    hits, wrong = (np.cumsum(each[::-1]) for each in (positive, negative))
    # Not `sum`, whose rounding differs: no count may exceed the whole.
    positives, negatives = hits[-1] if len(hits) else 0.0, wrong[-1] if len(wrong) else 0.0
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
