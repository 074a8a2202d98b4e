"""Label pairs of a row: Σ y_p (1 − y_n) softplus(u_n − u_p) over p ≠ n, and its gradient in u.

Two loops. Direct: a pass over the row for each positive, O(P·T). Chebyshev: O(T) whatever the
number of positives; it takes over where positives are many.

Log-odds fall into intervals of half-width 1. On a pair of intervals softplus(u_n − u_p) is a
polynomial in both positions up to rounding, so the sum over pairs needs only the Chebyshev
moments of the positives and of the negatives in each interval. The logistic function is analytic
up to distance π from the real line, so the error falls by about 6.4 with every term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.compiled import compiled
from credibly.losses.fused.entries import softplus_and_sigmoid
from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_rows
from credibly.losses.fused.memory import CHUNK, tensors_at
from credibly.types import LogOdds
from credibly.vectormath import (
    INNER,
    JIT,
    THIN,
    bits_float,
    exp_nonpositive,
    float_bits,
    log1p_unit,
)


@dataclass(frozen=True)
class PairsForm(FusedForm):
    """``weight`` × the mean over rows with a known label; "scores" here are log-odds.

    Example:
        >>> log_odds = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
        >>> PairsForm(1.0)(log_odds, torch.tensor([[1, 0, 0], [0, 0, 0]]).float())
        tensor(0.0734)
    """

    weight: float

    def on_cpu(self, scores: LogOdds, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        double = scores.dtype == torch.float64
        return run_rows(pairs_at, scores, targets, needs_grad, self.weight, tables(double))

    def plain(self, scores: LogOdds, targets: Tensor) -> Tensor:
        rows = (targets >= 0).any(-1).sum().clamp(min=1)
        return self.weight * row_pairs(scores, targets).sum() / rows


def row_pairs(log_odds: LogOdds, targets: Tensor) -> Tensor:
    """Return the regularizer of each row by the formula."""
    known = targets >= 0
    present = torch.where(known, targets, 0.0)
    absent = torch.where(known, 1 - targets, 0.0)
    u = torch.where(known, log_odds, 0.0)
    total = -math.log(2) * (present * absent).sum(-1)  # a soft label meets itself
    if not checks.can_read_values(log_odds):  # how many positives a row has cannot be read: a cube
        gaps = u[..., None, :] - u[..., :, None]
        pairs = present[..., :, None] * absent[..., None, :] * logsigmoid(-gaps)
        return _pair_share(known, u.dtype) * (total - pairs.sum((-1, -2)))
    most = int((present > 0).sum(-1).max()) if present.numel() else 0
    share, index = present.topk(most, dim=-1)
    for k in range(most):  # one positive of every row at a time
        gaps = u - u.gather(-1, index[..., k : k + 1])
        total = total - share[..., k] * (absent * logsigmoid(-gaps)).sum(-1)
    return _pair_share(known, u.dtype) * total


def _pair_share(known: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 2/(T(T − 1)) for each row, T its number of known labels; 0 without a pair."""
    labels = known.sum(-1).to(dtype)
    return torch.where(labels > 1, 2 / (labels * (labels - 1)).clamp(min=1), 0.0)


@njit(**THIN)
def pair_factor(labels, rows, weight):
    """Return the factor of a row's sum, weight · 2/(T(T − 1)) over the number of rows.

    ``labels`` is T, the number of known labels of the row.
    """
    return weight * 2 / (labels * (labels - 1.0)) / rows if labels > 1 and rows > 0 else 0.0


@njit(**INNER)
def known_labels(y):
    """Return how many labels of a row are known."""
    known = 0
    for t in range(y.size):
        known += 1 if y[t] >= 0 else 0
    return known


@njit(**INNER)
def positives(y, index):
    """Write the indices of labels with a target above 0 into ``index``; return their number."""
    count = 0
    whole = y.size // 8 * 8
    for s in range(0, whole, 8):
        low = (y[s] > 0) | (y[s + 1] > 0) | (y[s + 2] > 0) | (y[s + 3] > 0)
        high = (y[s + 4] > 0) | (y[s + 5] > 0) | (y[s + 6] > 0) | (y[s + 7] > 0)
        if low | high:  # most eights have none
            for t in range(s, s + 8):
                index[count] = t
                count += 1 if y[t] > 0 else 0
    for t in range(whole, y.size):
        index[count] = t
        count += 1 if y[t] > 0 else 0
    return count


@njit(**INNER)
def _near(u, absent, rise, fall, g, positive, share):
    """Return sum and slope of one positive with a chunk; ``rise`` is exp(u), ``fall`` exp(−u)."""
    level, up, down = positive
    zero, one = u.dtype.type(0), u.dtype.type(1)
    values, slopes = zero, zero
    for t in range(u.size):
        gap = u[t] - level
        ahead, behind = rise[t] * down, fall[t] * up  # exp(gap) and exp(−gap)
        value = (gap if gap > zero else zero) + log1p_unit(ahead if ahead < behind else behind)
        slope = absent[t] / (one + behind)
        values += absent[t] * value
        slopes += slope
        g[t] += share * slope
    return values, slopes


@njit(**INNER)
def _far(u, absent, g, level, share):
    """Return the same for rows so spread out that those exponentials would not fit."""
    values, slopes = u.dtype.type(0), u.dtype.type(0)
    for t in range(u.size):
        value, slope = softplus_and_sigmoid(u[t] - level)
        slope *= absent[t]
        values += absent[t] * value
        slopes += slope
        g[t] += share * slope
    return values, slopes


@njit(**THIN)
def _block(u, absent, g, rise, fall, levels, count, near):
    """Return the sum of every positive with a chunk of the row."""
    kind = u.dtype.type
    total = 0.0
    for k in range(count):
        share = kind(levels[3, k])
        if near:
            positive = (kind(levels[0, k]), kind(levels[1, k]), kind(levels[2, k]))
            values, slopes = _near(u, absent, rise, fall, g, positive, share)
        else:
            values, slopes = _far(u, absent, g, kind(levels[0, k]), share)
        total += share * values
        levels[4, k] += share * slopes
    return total


@njit(**THIN)
def _direct(y, u, work, count, near):
    """Return the sum over pairs of the row by a pass over it for each positive.

    ``levels`` is filled with the log-odds, exponentials, weight and slope of each positive.
    """
    absent, g, rise, fall, index, levels = work
    if near:
        _exponentials(u, rise, fall)
    for k in range(count):
        p = index[k]
        levels[0, k], levels[1, k], levels[2, k], levels[3, k] = u[p], rise[p], fall[p], y[p]
        levels[4, k] = 0.0
    total = 0.0
    if u.size <= CHUNK:  # slicing costs as much as a positive of a short row
        total = _block(u, absent, g, rise, fall, levels, count, near)
    else:
        for start in range(0, u.size, CHUNK):
            c = slice(start, min(u.size, start + CHUNK))
            total += _block(u[c], absent[c], g[c], rise[c], fall[c], levels, count, near)
    for k in range(count):
        g[index[k]] -= u.dtype.type(levels[4, k])
    return total


@njit(**INNER)
def _exponentials(u, rise, fall):
    zero, one = u.dtype.type(0), u.dtype.type(1)
    for t in range(u.size):
        small = exp_nonpositive(-abs(u[t]))
        large = one / small
        rise[t] = small if u[t] < zero else large
        fall[t] = large if u[t] < zero else small


@njit(**INNER)
def _workspace(labels, like):
    """Return arrays for one row, targets first, padded to whole vector instructions."""
    size = (labels + 31) // 32 * 32
    y = np.full(size, -1, like.dtype)
    u, absent, g = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    rise, fall = np.zeros_like(y), np.zeros_like(y)
    index, levels = np.empty(size + 1, np.int64), np.empty((5, size))
    return y, u, (absent, g, rise, fall, index, levels)


@njit(**THIN)
def _row_pairs(y, u, work, labels, tables, spaces):
    """Return the sum of the row for targets ``y`` and log-odds ``u``; write its slope.

    ``u`` is shifted in place. ``work`` begins with space for 1 − y and for the slope, which is
    written. All arrays are padded, targets with −1.
    """
    absent, g, index = work[0], work[1], work[4]
    count = positives(y, index)
    for t in range(g.size):
        g[t] = 0
    if count == 0:
        return 0.0
    negatives, alone, reach = _centre(u, y, absent, u[index[0]])
    if not negatives > 0:
        return 0.0
    if count >= tables[2] + tables[3] / labels and reach < INTERVALS - 2:
        total = moments_row(u, y, absent, g, tables, spaces, reach)
    else:
        total = _direct(y, u, work, count, reach < 30.0)
    # A soft label met itself: its gradient cancelled, its value y(1 − y) log 2 did not.
    return total - alone * math.log(2.0)


@njit(**INNER)
def _centre(u, y, absent, origin):
    """Fill ``absent`` with 1 − y and subtract ``origin`` from ``u``; unknown labels become 0.

    Return Σ (1 − y), Σ y (1 − y) and the largest |u|, which is infinite if one is not finite.
    """
    zero, one = u.dtype.type(0), u.dtype.type(1)
    negatives, alone, largest = zero, zero, float_bits(zero)
    for t in range(u.size):
        known = y[t] >= zero
        weight = one - y[t] if known else zero
        gap = u[t] - origin if known else zero
        absent[t] = weight
        negatives += weight
        alone += weight * y[t] if known else zero  # y may be NaN
        largest = max(largest, float_bits(abs(gap)))
        u[t] = gap
    reach = float(bits_float(largest))
    return negatives, alone, reach if reach < np.inf else np.inf


@compiled(**JIT)
def pairs_at(pointers, shape, zero, needs_grad, weight, tables):
    """Return weight × the mean over rows with a known label; the gradient is by the log-odds."""
    log_odds, targets, gradient = tensors_at(pointers, shape, zero)
    rows, labels = shape
    known_rows = 0
    for b in range(rows):
        known_rows += 1 if known_labels(targets[b]) > 0 else 0
    y, u, work = _workspace(labels, log_odds)
    g = work[1]
    spaces = np.empty((4, INTERVALS, tables[0].shape[1]))
    total = 0.0
    for b in range(rows):
        for t in range(labels):
            u[t], y[t] = log_odds[b, t], targets[b, t]
        factor = pair_factor(known_labels(targets[b]), known_rows, weight)
        total += factor * _row_pairs(y, u, work, labels, tables, spaces)
        if needs_grad:
            share = u.dtype.type(factor)
            for t in range(labels):
                gradient[b, t] = share * g[t]
    return total


INTERVALS = 64
"""Rows whose log-odds lie in more intervals than this take the direct form."""


@lru_cache
def tables(double: bool) -> tuple[Any, Any, float, float]:
    """Return the Chebyshev coefficients, and from how many positives on this form is faster.

    Coefficients of softplus and of sigmoid are given per distance of two intervals. The form is
    faster from ``a + b / labels`` positives on. 9 terms reach float32 precision, 18 float64.

    Example:
        >>> values, slopes, a, b = tables(False)
        >>> values.shape
        (127, 9, 9)
    """
    terms = 18 if double else 9
    angles = np.pi * (np.arange(terms) + 0.5) / terms
    to_coefficients = 2 / terms * np.cos(np.outer(np.arange(terms), angles))
    to_coefficients[0] /= 2
    nodes = np.cos(angles)
    distance = 2.0 * np.arange(-INTERVALS + 1, INTERVALS)[:, None, None]
    gaps = distance + nodes[:, None] - nodes
    values = to_coefficients @ np.logaddexp(0, gaps) @ to_coefficients.T
    slopes = to_coefficients @ np.exp(-np.logaddexp(0, -gaps)) @ to_coefficients.T
    pays = (4.0, 1100.0) if double else (46.0, 12000.0)  # where the two forms cross when timed
    return np.ascontiguousarray(values), np.ascontiguousarray(slopes), *pays


@njit(**INNER)
def _add_moments(moments, x, weight):
    """Add weight · T_k(x) for every k."""
    before, now = weight, weight * x
    moments[0] += before
    moments[1] += now
    for k in range(2, moments.size):
        before, now = now, 2 * x * now - before
        moments[k] += now


@njit(**INNER)
def _series(coefficients, x):
    """Return Σ c_k T_k(x) by Clenshaw's recurrence."""
    now, before = 0.0, 0.0
    for k in range(coefficients.size - 1, 0, -1):
        now, before = 2 * x * now - before + coefficients[k], now
    return x * now - before + coefficients[0]


@njit(**INNER)
def _interval_pairs(values, slopes, spaces, used):
    """Return the sum over pairs of intervals; fill the series of slopes of both sides."""
    moments_neg, moments_pos, series_neg, series_pos = spaces
    middle = values.shape[0] // 2
    terms = values.shape[1]
    total = 0.0
    for i in range(used):
        if moments_neg[i, 0] == 0:
            continue
        for j in range(used):
            if moments_pos[j, 0] == 0:
                continue
            value, slope = values[i - j + middle], slopes[i - j + middle]
            for a in range(terms):
                moment = moments_neg[i, a]
                sum_values, sum_slopes = 0.0, 0.0
                for b in range(terms):
                    sum_values += value[a, b] * moments_pos[j, b]
                    sum_slopes += slope[a, b] * moments_pos[j, b]
                    series_pos[j, b] += moment * slope[a, b]
                total += moment * sum_values
                series_neg[i, a] += sum_slopes
    return total


@njit(**INNER)
def moments_row(u, y, absent, g, tables, spaces, reach):
    """Return the sum of the row and write its slope into ``g``, for log-odds within ± ``reach``."""
    values, slopes, _, _ = tables
    low, used = -reach, min(int(reach) + 1, INTERVALS)
    spaces[:, :used] = 0.0
    for t in range(u.size):
        i, x = _interval_of(float(u[t]), low, used)
        if absent[t] > 0:
            _add_moments(spaces[0, i], x, float(absent[t]))
        if y[t] > 0:
            _add_moments(spaces[1, i], x, float(y[t]))
    total = _interval_pairs(values, slopes, spaces, used)
    for t in range(u.size):
        i, x = _interval_of(float(u[t]), low, used)
        slope = 0.0
        if absent[t] > 0:
            slope += absent[t] * _series(spaces[2, i], x)
        if y[t] > 0:
            slope -= y[t] * _series(spaces[3, i], x)
        g[t] = slope
    return total


@njit(**THIN)
def _interval_of(u, low, used):
    """Return the interval of ``u``, and its position there in [−1, 1]."""
    position = 0.5 * (u - low)
    i = max(min(int(position), used - 1), 0)
    return i, 2 * (position - i) - 1
