"""Proper scores, which only honest probabilities minimise, and distance to a known truth."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.metrics import kernels
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.inputs import floating, in_unit_interval, mean_known, probability_pair
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike

Average = Literal["pooled", "macro"] | None
COUNT, LOG_LOSS, SQUARED_ERROR = range(3)


class ProperScores(Accumulator):
    """Log loss and Brier score of each label.

    Args:
        num_labels: number of labels.
        floor: as in ``log_loss``.
    """

    def __init__(self, num_labels: int, floor: float | None = None) -> None:
        self.floor = floor
        self.sums = {"proper": np.zeros((num_labels, 3))}

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add checked entries, (rows, labels)."""
        values, truth = np.ascontiguousarray(probabilities), np.ascontiguousarray(targets)
        floor = smallest(values.dtype, self.floor)
        kernels.add_proper_scores(values, truth, floor, self.sums["proper"])

    @property
    def known(self) -> int:
        """Return how many entries had a known target."""
        return int(self.sums["proper"][:, COUNT].sum())

    def log_loss(self, average: Average = "pooled") -> Any:
        """Return ``metrics.log_loss`` of all rows."""
        return self._mean(LOG_LOSS, average)

    def brier(self, average: Average = "pooled") -> Any:
        """Return ``metrics.brier`` of all rows."""
        return self._mean(SQUARED_ERROR, average)

    def _mean(self, which: int, average: Average) -> Any:
        checks.choice("average", average, ("pooled", "macro", None))
        total = self.sums["proper"].sum(0) if average == "pooled" else self.sums["proper"]
        with np.errstate(invalid="ignore"):
            each = total[..., which] / total[..., COUNT]
        return mean_known(each) if average == "macro" else each


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
    scores = proper_scores(*probability_pair(probabilities, targets, coding), floor)
    return like(scores.log_loss(average), probabilities, targets)


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
    scores = proper_scores(*probability_pair(probabilities, targets, coding))
    return like(scores.brier(average), probabilities, targets)


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


def proper_scores(probabilities: Array, targets: Array, floor: float | None = None) -> ProperScores:
    """Return the proper scores of checked entries."""
    scores = ProperScores(probabilities.shape[1], floor)
    scores.update(probabilities, targets)
    return scores


def row_scores(probabilities: Array, targets: Array, floor: float | None = None) -> Array:
    """Return known entries, sum of log losses and sum of squared errors of each row, (rows, 3)."""
    return proper_scores(probabilities.T, targets.T, floor).sums["proper"]


def entry_log_loss(probabilities: Array, targets: Array) -> Array:
    """Return the log loss of each checked entry, (rows, labels); 0 where the target is unknown.

    Example:
        >>> entry_log_loss(np.array([[0.5, 0.9]]), np.array([[1, -1]])).round(4)
        array([[0.6931, 0.    ]])
    """
    each = proper_scores(probabilities.reshape(1, -1), targets.reshape(1, -1))
    return each.sums["proper"][:, LOG_LOSS].reshape(probabilities.shape)


def _relative(rates: Array, p: Array, lowest: float) -> Array:
    """η log(η/p), which is 0 at η = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rates > 0, rates * np.log(rates / np.maximum(p, lowest)), 0.0)
