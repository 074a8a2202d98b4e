"""Equal-width confidence bins: the sums that every calibration measure is a function of."""

from __future__ import annotations

import numpy as np

from credibly import checks
from credibly.metrics import kernels
from credibly.types import Array

COUNT, CONFIDENCE, TARGET = range(3)


def edges(bins: int, dtype: type | np.dtype = np.float64) -> Array:
    """``bins + 1`` edges k/bins, each correctly rounded in the precision of the probabilities."""
    return (np.arange(bins + 1) / bins).astype(dtype)


def number_of_bins(bins: int) -> int:
    """``bins`` must be a whole number of at least 1."""
    if int(checks.at_least("bins", bins, 1)) != bins:
        raise checks.InputError(f"`bins` must be a whole number; got {bins!r}.")
    return int(bins)


def sums(probabilities: Array, targets: Array, bins: int) -> Array:
    """(labels, bins, 3): count, sum of probabilities, sum of targets, over known entries."""
    total: Array = np.zeros((probabilities.shape[1], bins, 3))
    add(total, probabilities, targets)
    return total


def add(total: Array, probabilities: Array, targets: Array) -> None:
    """Add checked entries to ``total`` (labels, bins, 3), in place."""
    bins, dtype = total.shape[1], probabilities.dtype
    kernels.add_to_bins(
        np.ascontiguousarray(probabilities),
        np.ascontiguousarray(targets),
        edges(bins, dtype),
        dtype.type(bins),
        total,
    )


def least_count(kind: str, min_count: float) -> float:
    """Return how many entries a bin needs to count for an error of this kind."""
    return 1 if kind == "ece" else max(min_count, 1)


def calibration_error(total: Array, kind: str, min_count: float) -> Array:
    """Return ECE, ACE or MCE along the bins of ``total`` (…, bins, 3); NaN where no bin qualifies.

    ACE and MCE count bins with at least ``min_count`` entries. ECE counts all non-empty bins: it
    weighs them by count, so that small ones hardly matter.
    """
    count = total[..., COUNT]
    kept = count >= least_count(kind, min_count)
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.abs(total[..., CONFIDENCE] - total[..., TARGET]) / count
        gap = np.where(kept, gap, 0.0)
        if kind == "mce":
            return np.where(kept.any(-1), gap.max(-1), np.nan)
        weight = kept * count if kind == "ece" else kept
        return (gap * weight).sum(-1) / weight.sum(-1)
