"""Label pairs of a row: Σ y_p (1 − y_n) softplus(u_n − u_p) over p ≠ n, and its gradient in u.

Two forms. Direct: a pass over the row for each positive, O(P·T). Chebyshev: O(T) whatever the
number of positives, see ``chebyshev.py``; it takes over where positives are many.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.chebyshev import INTERVALS, moments_row
from credibly.losses.fused.memory import CHUNK, tensors_at
from credibly.losses.fused.softplus import softplus_and_sigmoid
from credibly.types import Array
from credibly.vectormath import (
    INNER,
    JIT,
    THIN,
    bits_float,
    exp_nonpositive,
    float_bits,
    log1p_unit,
)


@njit(**THIN)
def pair_factor(labels: int, rows: int, weight: float) -> float:
    """Return the factor of a row's sum, weight · 2/(T(T − 1)) over the number of rows.

    ``labels`` is T, the number of known labels of the row.
    """
    return weight * 2 / (labels * (labels - 1.0)) / rows if labels > 1 and rows > 0 else 0.0


@njit(**INNER)
def known_labels(y: Array) -> int:
    """Return how many labels of a row are known."""
    known = 0
    for t in range(y.size):
        known += 1 if y[t] >= 0 else 0
    return known


@njit(**INNER)
def positives(y: Array, index: Array) -> Any:
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
def _near(
    u: Array, absent: Array, rise: Array, fall: Array, g: Array, positive: Any, share: float
) -> Any:
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
def _far(u: Array, absent: Array, g: Array, level: float, share: float) -> Any:
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
def _block(
    u: Array,
    absent: Array,
    g: Array,
    rise: Array,
    fall: Array,
    levels: Array,
    count: int,
    near: bool,
) -> float:
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
def _direct(
    y: Array,
    u: Array,
    absent: Array,
    g: Array,
    rise: Array,
    fall: Array,
    index: Array,
    levels: Array,
    count: int,
    near: bool,
) -> float:
    """Return the sum over pairs of the row by a pass over it for each positive.

    ``levels`` is filled with the log-odds, exponentials, weight and slope of each positive.
    """
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
def _exponentials(u: Array, rise: Array, fall: Array) -> None:
    zero, one = u.dtype.type(0), u.dtype.type(1)
    for t in range(u.size):
        small = exp_nonpositive(-abs(u[t]))
        large = one / small
        rise[t] = small if u[t] < zero else large
        fall[t] = large if u[t] < zero else small


@njit(**INNER)
def _workspace(labels: int, like: Array) -> Any:
    """Return arrays for one row, targets first, padded to whole vector instructions."""
    size = (labels + 31) // 32 * 32
    y = np.full(size, -1, like.dtype)
    u, absent, g = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    rise, fall = np.zeros_like(y), np.zeros_like(y)
    index, levels = np.empty(size + 1, np.int64), np.empty((5, size))
    return y, u, absent, g, rise, fall, index, levels


@njit(**THIN)
def _row_pairs(
    y: Array,
    u: Array,
    absent: Array,
    g: Array,
    rise: Array,
    fall: Array,
    index: Array,
    levels: Array,
    labels: int,
    tables: Any,
    spaces: Any,
) -> float:
    """Return the sum of the row for targets ``y`` and log-odds ``u``; write its slope into ``g``.

    ``u`` is shifted in place. The other arrays are work space. All are padded, targets with −1.
    """
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
        total = _direct(y, u, absent, g, rise, fall, index, levels, count, reach < 30.0)
    # A soft label met itself: its gradient cancelled, its value y(1 − y) log 2 did not.
    return total - alone * math.log(2.0)


@njit(**INNER)
def _centre(u: Array, y: Array, absent: Array, origin: Any) -> Any:
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
def pairs_at(
    pointers: Any, shape: Any, zero: float, needs_grad: bool, weight: float, tables: Any
) -> float:
    """Return weight × the mean over rows with a known label; the gradient is by the log-odds."""
    log_odds, targets, gradient = tensors_at(pointers, shape, zero)
    rows, labels = shape
    known_rows = 0
    for b in range(rows):
        known_rows += 1 if known_labels(targets[b]) > 0 else 0
    y, u, absent, g, rise, fall, index, levels = _workspace(labels, log_odds)
    spaces = np.empty((4, INTERVALS, tables[0].shape[1]))
    total = 0.0
    for b in range(rows):
        for t in range(labels):
            u[t], y[t] = log_odds[b, t], targets[b, t]
        factor = pair_factor(known_labels(targets[b]), known_rows, weight)
        total += factor * _row_pairs(
            y, u, absent, g, rise, fall, index, levels, labels, tables, spaces
        )
        if needs_grad:
            share = u.dtype.type(factor)
            for t in range(labels):
                gradient[b, t] = share * g[t]
    return total
