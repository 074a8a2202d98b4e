"""Proper scores, which only honest probabilities minimise, and distance to a known truth."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.metrics import kernels
from credibly.metrics.inputs import floating, in_unit_interval, mean_known, probability_pair
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike

Average = Literal["pooled", "macro"] | None
COUNT, LOG_LOSS, SQUARED_ERROR = range(3)


def log_loss(
    probabilities: ArrayLike,
    targets: TargetsLike,
    average: Average = "pooled",
    floor: float | None = None,
    *,
    coding: Coding | None = None,
) -> Any:
    """Mean of −y log p − (1−y) log(1−p) over known entries.

    ``average="pooled"`` is the mean over all entries, ``None`` one value per label, ``"macro"``
    their mean. Probabilities below ``floor`` count as ``floor``, so that a 0 that is only rounding
    does not make the mean infinite; by default it is the resolution of the dtype as in
    scikit-learn (1.2e-7 for float32 and half precision, 2.2e-16 for float64); 0 turns it off.

    Example:
        >>> probabilities, targets = np.array([[0.8, 0.1]]), np.array([[1, 0]])
        >>> round(float(log_loss(probabilities, targets)), 6)
        0.164252
        >>> float(log_loss(np.array([[0.0]]), np.array([[1]]), floor=0))
        inf
    """
    values, truth = probability_pair(probabilities, targets, coding)
    total = sums(values, truth, smallest(values.dtype, floor))
    return like(averaged(total, LOG_LOSS, average), probabilities, targets)


def brier(
    probabilities: ArrayLike,
    targets: TargetsLike,
    average: Average = "pooled",
    *,
    coding: Coding | None = None,
) -> Any:
    """Mean squared distance of probability and target over known entries.

    Example:
        >>> round(float(brier(np.array([[0.8, 0.1]]), np.array([[1, 0]]))), 6)
        0.025
    """
    values, truth = probability_pair(probabilities, targets, coding)
    total = sums(values, truth, smallest(values.dtype, None))
    return like(averaged(total, SQUARED_ERROR, average), probabilities, targets)


def kl_to_truth(
    probabilities: ArrayLike,
    truth: ArrayLike,
    average: Average = "pooled",
    exclusive: bool = False,
    floor: float | None = None,
    *,
    coding: Coding | None = None,
) -> Any:
    r"""Mean Kullback–Leibler divergence from known probabilities η to the estimates.

    $$\mathrm{KL} = \eta \log\frac{\eta}{p} + (1-\eta) \log\frac{1-\eta}{1-p}$$

    an entry: what log loss would cost beyond the unavoidable. With ``exclusive=True`` rows are
    distributions over labels that exclude each other (shares of human votes), and the result is
    the mean over rows of Σ η log(η/p). −1 in ``truth`` is unknown. ``floor`` as in ``log_loss``.

    Example:
        >>> round(float(kl_to_truth(np.array([[0.5]]), np.array([[0.9]]))), 6)
        0.368064
        >>> shares = np.array([[0.5, 0.5, 0.0]])
        >>> round(float(kl_to_truth(np.array([[0.25, 0.5, 0.25]]), shares, exclusive=True)), 6)
        0.346574
    """
    values, rates = probability_pair(probabilities, truth, coding)
    checks.choice("average", average, ("pooled", "macro", None))
    lowest = smallest(values.dtype, floor)
    p, rates = values.astype(np.float64), rates.astype(np.float64)
    known = rates >= 0
    rates = np.where(known, rates, 0.0)
    gain = _relative(rates, p, lowest)
    if exclusive:
        whole = known.all(1)
        return like(mean_known(np.where(whole, gain.sum(1), np.nan)), probabilities, truth)
    each = np.where(known, gain + _relative(1 - rates, 1 - p, lowest), np.nan)
    if average == "pooled":
        return like(mean_known(each), probabilities, truth)
    labels = mean_known(each, axis=0)
    return like(mean_known(labels) if average == "macro" else labels, probabilities, truth)


def expected_size(probabilities: ArrayLike) -> Any:
    """Mean over rows of the sum of probabilities: the number of labels expected in a row.

    Example:
        >>> float(expected_size(np.array([[0.5, 0.25], [1.0, 0.75]])))
        1.25
    """
    values = in_unit_interval(checks.matrix("probabilities", floating(to_numpy(probabilities))))
    return like(values.sum(1, dtype=np.float64).mean(), probabilities)


def smallest(dtype: np.dtype, floor: float | None) -> float:
    """The probability that stands in for anything smaller."""
    if floor is None:
        return float(np.finfo(dtype).eps)
    return checks.fraction("floor", floor, high_open=True)


def sums(probabilities: Array, targets: Array, floor: float) -> Array:
    """(labels, 3): known entries, sum of log losses, sum of squared errors."""
    total: Array = np.zeros((probabilities.shape[1], 3))
    add(total, probabilities, targets, floor)
    return total


def add(total: Array, probabilities: Array, targets: Array, floor: float) -> None:
    """Add checked entries to ``total`` (labels, 3), in place."""
    kernels.add_proper_scores(
        np.ascontiguousarray(probabilities), np.ascontiguousarray(targets), floor, total
    )


def averaged(total: Array, which: int, average: Average) -> Any:
    """Mean score ``which`` from the sums of ``add``."""
    checks.choice("average", average, ("pooled", "macro", None))
    if average == "pooled":
        total = total.sum(0)
    with np.errstate(invalid="ignore"):
        each = total[..., which] / total[..., COUNT]
    return mean_known(each) if average == "macro" else each


def _relative(rates: Array, p: Array, lowest: float) -> Array:
    """η log(η/p), which is 0 at η = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rates > 0, rates * np.log(rates / np.maximum(p, lowest)), 0.0)
