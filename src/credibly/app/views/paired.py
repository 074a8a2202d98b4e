"""Differences between two predictions of the same rows, with intervals that pair the rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from credibly import metrics
from credibly.app.views.biased_labels import RATE, discoveries
from credibly.app.views.comparisons import Column
from credibly.types import Array

_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Difference:
    """A number of one method minus that of another.

    Attributes:
        estimate, low, high: the difference and its 95 % interval; NaN where it is not defined.
        better: 1 where the first method is clearly better, −1 where the second is, 0 otherwise.
    """

    estimate: float
    low: float
    high: float
    better: int

    @property
    def clear(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.better != 0


def paired_difference(one: metrics.Draws, other: metrics.Draws, column: Column) -> Difference:
    """Return one number of a method minus that of another, whose draws share their weights.

    Args:
        one, other: what ``metrics.summary_draws`` returns for the same rows in the same order, with
            the same seed.
        column: which number, and whether higher is better.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((500, 2))
        >>> y = (rng.random(p.shape) < p).astype(int)
        >>> right, wrong = metrics.summary_draws(p, y), metrics.summary_draws(1 - p, y)
        >>> nll = Column("NLL", "log loss per entry", "lower", "nats")
        >>> paired_difference(right, wrong, nll).better
        1
    """
    nothing = Difference(float("nan"), float("nan"), float("nan"), 0)
    if column.name not in one.draws or column.name not in other.draws:
        return nothing
    draws = one.draws[column.name] - other.draws[column.name]
    if np.isnan(draws).any():
        return nothing
    low, high = (float(value) for value in np.quantile(draws, [0.025, 0.975]))
    ahead = int(low > 0) - int(high < 0)
    return Difference(
        float(one.estimates[column.name] - other.estimates[column.name]),
        low,
        high,
        ahead if column.better == "higher" else -ahead,
    )


@dataclass(frozen=True)
class LabelDifferences:
    """Log loss of each label in one method minus that in another, (labels,) each.

    Attributes:
        estimate, low, high: mean difference over known rows, in nats, and its 95 % interval.
        better: 1 where the first method is clearly better, −1 where the second is; under a
            false-discovery rate of 5 % over all labels.
    """

    estimate: Array
    low: Array
    high: Array
    better: Array


def label_differences(one: Array, other: Array, targets: Array) -> LabelDifferences:
    """Return the differences in log loss of every label, row by row.

    Args:
        one, other: probabilities of the same rows, (rows, labels).
        targets: decoded, same shape; −1 is unknown.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = np.full((400, 2), 0.3)
        >>> y = (rng.random(p.shape) < p).astype(int)
        >>> label_differences(p, np.stack([p[:, 0], 1 - p[:, 1]], 1), y).better
        array([0, 1])
    """
    known = targets >= 0
    count = known.sum(0)
    apart = np.where(known, _log_loss(one, targets) - _log_loss(other, targets), 0.0)
    mean = apart.sum(0) / np.maximum(count, 1)
    spread = np.where(known, (apart - mean) ** 2, 0.0).sum(0)
    error = np.sqrt(spread / np.maximum(count - 1, 1) / np.maximum(count, 1))
    enough = count >= metrics.MIN_COUNT  # the interval is that of a normal mean
    ratio = np.divide(np.abs(mean), error, out=np.zeros_like(mean), where=error > 0)
    named = discoveries(np.where(enough, _two_sided(ratio), 1.0), RATE)
    better = np.zeros(len(mean), dtype=np.int64)
    better[named] = -np.sign(mean[named]).astype(np.int64)
    shown = np.where(count > 0, mean, np.nan)
    half = np.where(enough, _Z * error, np.nan)
    return LabelDifferences(shown, shown - half, shown + half, better)


def _log_loss(probabilities: Array, targets: Array) -> Array:
    p = np.clip(probabilities.astype(np.float64), 1e-15, 1 - 1e-15)
    y = np.where(targets >= 0, targets, 0).astype(np.float64)
    return -(y * np.log(p) + (1 - y) * np.log1p(-p))


def _two_sided(ratio: Array) -> Array:
    """Return the probability that a normal variable is as far from 0 as this many deviations."""
    from math import erfc

    return np.array([erfc(value / sqrt(2)) for value in ratio.tolist()])
