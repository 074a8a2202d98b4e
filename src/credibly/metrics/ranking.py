"""How well scores rank: average precision over labels and over rows, and the ranking errors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.metrics import kernels
from credibly.metrics.inputs import hard, is_soft, mean_known, score_pair
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike

_BLOCK = 16  # labels gathered at once: a cache line of float32, and little memory
_MOST_COUNTED = 200  # positives of a row; with more, sorting it is faster than counting for each


def average_precision(
    scores: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None
) -> Any:
    r"""Return the average precision of each label; NaN for a label without a known positive.

    $$\mathrm{AP} = \frac{1}{\sum_i y_i} \sum_i
      y_i \frac{\sum_{j : s_j \ge s_i} y_j}{\#\{j : s_j \ge s_i\}}$$

    over known entries. With targets 0 and 1 this is scikit-learn's value, ties included. A soft
    target $y_i$ counts as positive with weight $y_i$ and as negative with weight $1 - y_i$: the
    value that scikit-learn gives with each row twice, as a positive and as a negative, weighted
    so. Rank on scores rather than on probabilities where a link saturates. One-dimensional
    arguments are one label and give one number, so that a file can be read one column at a time.

    Args:
        scores: (rows, labels) or (rows,); only their order counts.
        targets: of the same shape, 1, 0, soft or unknown; or class indices.
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``.

    Returns:
        One value per label.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
        >>> average_precision(scores, np.array([[1, 0], [0, -1], [1, 0]]))
        array([0.83333333,        nan])
        >>> float(average_precision(scores[:, 0], np.array([1, 0, 1])))
        0.8333333333333333
        >>> float(average_precision(scores[:, 0], np.array([0.5, 0.0, 1.0])))
        0.5
    """
    result = precisions(label_totals(*score_pair(scores, targets, coding)))
    return like(result[0] if to_numpy(scores).ndim == 1 else result, scores, targets)


def sample_average_precision(
    scores: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None
) -> Any:
    """Return the average precision of each row over its known labels; NaN without a positive.

    Soft targets count as in ``average_precision``.

    Example:
        >>> sample_average_precision(np.array([[0.9, 0.8, 0.1]]), np.array([[0, 1, 1]]))
        array([0.58333333])
    """
    values, truth = score_pair(scores, targets, coding)
    values, truth = np.ascontiguousarray(values), np.ascontiguousarray(truth)
    out = np.empty(len(values))
    if is_soft(truth):
        kernels.row_soft_precision(values, truth, out)
    else:
        kernels.row_average_precision(values, truth, _MOST_COUNTED, out)
        for row in np.flatnonzero(out < 0):
            ranked, hits = values[row, truth[row] >= 0], values[row, truth[row] > 0]
            ranked.sort()
            hits.sort()
            out[row] = kernels.ranked_total(ranked, hits, 0.0, 0.0) / len(hits)
    return like(out, scores, targets)


def mean_average_precision(
    scores: ArrayLike,
    targets: TargetsLike,
    over: Literal["labels", "samples"] = "labels",
    *,
    coding: Coding | None = None,
) -> Any:
    """mAP@y (``over="labels"``) or mAP@x (``over="samples"``): the mean over those with a positive.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
        >>> targets = np.array([[1, 0], [0, 1], [1, 0]])
        >>> float(mean_average_precision(scores, targets))
        0.9166666666666666
        >>> float(mean_average_precision(scores, targets, over="samples"))
        0.8333333333333334
    """
    checks.choice("over", over, ("labels", "samples"))
    each = average_precision if over == "labels" else sample_average_precision
    values, truth = score_pair(scores, targets, coding)
    return like(mean_known(each(values, Targets(truth))), scores, targets)


def ranking_loss(scores: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None) -> Any:
    """Share of (present, absent) label pairs in the wrong order, a tie being wrong.

    The mean over rows that have both; scikit-learn counts the others as 0.

    Example:
        >>> float(ranking_loss(np.array([[0.9, 0.8, 0.1]]), np.array([[0, 1, 0]])))
        0.5
    """
    errors = _errors(scores, targets, coding, "ranking_loss")
    return like(mean_known(errors[:, 0]), scores, targets)


def one_error(scores: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None) -> Any:
    """Share of rows whose highest label is absent, over rows with a positive.

    Where several labels share the highest score, the row counts by the share of them absent.

    Example:
        >>> float(one_error(np.array([[0.9, 0.8], [0.1, 0.7]]), np.array([[0, 1], [0, 1]])))
        0.5
    """
    errors = _errors(scores, targets, coding, "one_error")
    return like(mean_known(errors[:, 1]), scores, targets)


def coverage_error(scores: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None) -> Any:
    """How many labels to return, from the top, to have all present ones: mean over rows with any.

    Example:
        >>> float(coverage_error(np.array([[0.9, 0.8, 0.1]]), np.array([[0, 1, 0]])))
        2.0
    """
    errors = _errors(scores, targets, coding, "coverage_error")
    return like(mean_known(errors[:, 2]), scores, targets)


def _errors(scores: ArrayLike, targets: TargetsLike, coding: Coding | None, metric: str) -> Array:
    values, truth = score_pair(scores, targets, coding)
    hard(truth, metric)
    out = np.empty((len(values), 3))
    kernels.row_errors(np.ascontiguousarray(values), np.ascontiguousarray(truth), out)
    return out


def label_totals(values: Array, truth: Array, above: float = 0.0, hits_above: float = 0.0) -> Array:
    """Return Σ target × precision and Σ target of each label, (labels, 2), over known entries.

    Their ratio is the average precision. Both can be added up over ranges of values.

    Args:
        values: (rows, labels) without NaN.
        truth: decoded targets of the same shape.
        above: how many values of the label are higher than these, in ranges above them.
        hits_above: the sum of their targets.
    """
    totals: Array = np.empty((values.shape[1], 2))
    if is_soft(truth):
        for t in range(values.shape[1]):
            known = truth[:, t] >= 0
            scores, weights = values[known, t], truth[known, t].astype(np.float64)
            order = np.argsort(-scores)
            ranked = scores[order], weights[order]
            totals[t] = kernels.ranked_soft_total(*ranked, above, hits_above), weights.sum()
        return totals
    rows, num_labels = values.shape
    width = min(_BLOCK, num_labels)
    columns: Array = np.empty((width, rows), values.dtype)
    positives = np.empty_like(columns)
    known: Array = np.zeros(width, np.int64)
    present: Array = np.zeros(width, np.int64)
    for first in range(0, num_labels, _BLOCK):
        size = min(_BLOCK, num_labels - first)
        block = _block(values, truth, first, size)
        kernels.gather_columns(*block, size, columns, positives, known, present)
        for t in range(size):
            # Sorts values, not indices: positives are looked up among all.
            ranked, hits = columns[t, : known[t]], positives[t, : present[t]]
            ranked.sort()
            hits.sort()
            total = kernels.ranked_total(ranked, hits, above, hits_above)
            totals[first + t] = total, len(hits)
    return totals


def precisions(totals: Array) -> Array:
    """Return the average precision of each label from ``label_totals``; NaN without a positive."""
    with np.errstate(invalid="ignore"):
        return totals[:, 0] / totals[:, 1]


def _block(values: Array, truth: Array, first: int, size: int) -> tuple[Array, Array, int]:
    """The arrays as they are where rows are contiguous, else a copy of these labels only."""
    if values.flags.c_contiguous and truth.flags.c_contiguous:
        return values, truth, first
    labels = slice(first, first + size)
    return np.ascontiguousarray(values[:, labels]), np.ascontiguousarray(truth[:, labels]), 0
