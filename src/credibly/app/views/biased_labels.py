"""Which labels are present too rarely or too often for their probabilities to be right."""

from __future__ import annotations

import numpy as np

from credibly.types import Array

RATE = 0.05
"""Of the labels named, at most this share are expected to be named wrongly."""

_LABELS_AT_ONCE = 64
_STEPS = 20


def biased_labels(
    probabilities: Array, targets: Array, *, rate: float = RATE
) -> tuple[Array, Array]:
    """Return labels whose probabilities are too high, and too low, the surest first.

    Each label is tested on the number of rows that carry it against the sum of its probabilities,
    by Chernoff's bound for independent rows, which holds for any number of rows and however rare
    the label is. Labels are named by Benjamini and Hochberg's procedure at ``rate``.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: decoded targets of the same shape; −1 is unknown.
        rate: false-discovery rate.

    Returns:
        Indices of the labels that are too high, and of those that are too low.

    Example:
        >>> p = np.full((400, 3), 0.5)
        >>> y = np.zeros((400, 3)); y[:200, 0] = 1; y[:, 1] = 1
        >>> biased_labels(p, y)
        (array([2]), array([1]))
    """
    p_values, excess = _p_values(probabilities, targets, rate)
    named = discoveries(p_values, rate)
    return named[excess[named] < 0], named[excess[named] > 0]


def discoveries(p_values: Array, rate: float) -> Array:
    """Return which hypotheses to reject by Benjamini and Hochberg's procedure, the surest first.

    Example:
        >>> discoveries(np.array([0.9, 0.001, 0.03, 0.2]), 0.05)
        array([1])
    """
    order = np.argsort(p_values, kind="stable")
    ranked = p_values[order]
    passed = np.flatnonzero(ranked <= rate * np.arange(1, len(ranked) + 1) / len(ranked))
    return order[: passed[-1] + 1] if passed.size else order[:0]


def _p_values(probabilities: Array, targets: Array, rate: float = 2.0) -> tuple[Array, Array]:
    """Return two-sided p-values of each label, 1 where they exceed ``rate``; present − expected.

    The exponent of Chernoff's bound is at most z², where z is the excess in standard deviations
    and the excess is below the variance V: it is the least Kullback–Leibler divergence of tilted
    rates, those of p + p(1 − p)·excess/V are such, and the χ² divergence is not below it. So most
    labels need no search for the bound.
    """
    count = probabilities.shape[1]
    p_values, excess = np.ones(count), np.zeros(count)
    for first in range(0, count, _LABELS_AT_ONCE):
        labels = slice(first, first + _LABELS_AT_ONCE)
        known = targets[:, labels] >= 0
        p = np.where(known, probabilities[:, labels], 0.0).astype(np.float64)
        p = np.where(known, np.clip(p, 1e-7, 1 - 1e-7), 0.0)
        present = np.where(known, targets[:, labels], 0.0).sum(0, dtype=np.float64)
        apart, variance = present - p.sum(0), (p * (1 - p)).sum(0)
        sure = (apart**2 < np.log(2 / rate) * variance) & (np.abs(apart) <= variance)
        bound = np.zeros(len(present))
        bound[~sure] = _log_bound(p[:, ~sure], present[~sure])
        p_values[labels] = np.minimum(1.0, 2.0 * np.exp(bound))
        excess[labels] = apart
    return p_values, excess


def _log_bound(p: Array, present: Array) -> Array:
    """Return min over t of log E exp(t S) − t s, a bound on the tail of S = Σ Bernoulli(p) at s."""
    low, high = np.full(len(present), -30.0), np.full(len(present), 30.0)
    for _ in range(_STEPS):  # the mean of the tilted sum rises with t
        t = (low + high) / 2
        grown = p * np.exp(t)
        mean = (grown / (1 - p + grown)).sum(0)
        low, high = np.where(mean < present, t, low), np.where(mean < present, high, t)
    t = (low + high) / 2
    return np.minimum(0.0, np.log1p(p * np.expm1(t)).sum(0) - t * present)
