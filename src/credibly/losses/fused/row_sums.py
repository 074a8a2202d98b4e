"""Sums of exponentials over the labels of each row, chunk by chunk, and their gradient.

For losses that need a sum over all labels before any gradient. All entries are known.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.memory import CHUNK, array_at, tensors_at
from credibly.losses.fused.pairs import positives
from credibly.vectormath import INNER, JIT, THIN, exp_nonpositive


@njit(**INNER)
def _exponentials(x, y, top, scale, spared):
    """Return Σ (1 − spared · y) exp(scale · (x − top))."""
    zero, one = y.dtype.type(0), y.dtype.type(1)
    total = zero
    for t in range(x.size):
        weight = one - spared * y[t]
        gap = scale * (x[t] - top) if weight > zero else zero  # what is left out may be far above
        total += weight * exp_nonpositive(gap)
    return total


@njit(**INNER)
def _scaled(x, y, shift, scale, spared, factor):
    """Replace x by factor · (1 − spared · y) exp(scale · x − shift), which is in two parts."""
    high, low = shift
    zero, one = y.dtype.type(0), y.dtype.type(1)
    for t in range(x.size):
        weight = one - spared * y[t]
        gap = (scale * x[t] - high) - low if weight > zero else zero
        x[t] = factor * weight * exp_nonpositive(gap)


@njit(**THIN)
def _log_of_sum(before, more):
    """Return log(exp(before) + exp(more)) for a finite ``more``."""
    top, rest = max(before, more), min(before, more)
    return top + math.log1p(math.exp(rest - top))


@compiled(**JIT)
def add_row_sums_at(pointers, shape, zero, scales, spared, sums):
    """Add a chunk of labels to the sums of each row.

    Args:
        pointers: addresses of the scores, the targets and the largest score of each row among the
            labels of the first sum.
        shape: rows and labels of the chunk.
        zero: a number of the dtype of all three.
        scales: of scores in the sum over all labels, and in that over positives.
        spared: 1 where the first sum leaves positives out (soft ones in part), else 0.
        sums: address of four float64 columns: log Σ (1 − spared · y) exp(scale · x),
            log Σ y exp(scale · x), Σ y x and Σ y.
    """
    rows, labels = shape
    scores, targets, _ = tensors_at((pointers[0], pointers[1], pointers[0]), shape, zero)
    tops, out = array_at(pointers[2], rows, zero), array_at(sums, 4 * rows, 0.0)
    kind = scores.dtype.type
    index = np.empty(labels + 1, np.int64)
    for i in range(rows):
        x, y = scores[i], targets[i]
        total = 0.0
        for start in range(0, labels, CHUNK):
            c = slice(start, min(labels, start + CHUNK))
            total += _exponentials(x[c], y[c], tops[i], kind(scales[0]), kind(spared))
        if not total <= 0:
            out[4 * i] = _log_of_sum(out[4 * i], scales[0] * tops[i] + math.log(total))
        for k in range(positives(y, index)):
            value, share = float(x[index[k]]), float(y[index[k]])
            term = scales[1] * value + math.log(share)
            out[4 * i + 1] = _log_of_sum(out[4 * i + 1], term)
            out[4 * i + 2] += share * value
            out[4 * i + 3] += share


@compiled(**JIT)
def row_gradient_at(pointers, shape, zero, scales, spared, linear):
    """Replace the scores of a chunk by their gradient.

    Args:
        pointers: addresses of the scores, the targets and four float64 columns: the log of the
            first sum and the slope by it, the log of the second sum and the slope of positives.
        shape: rows and labels of the chunk.
        zero: a number of their dtype.
        scales, spared: see ``add_row_sums_at``.
        linear: whether the gradient of positives is their slope times y; times
            y exp(scale · x − log of the second sum) otherwise.
    """
    rows, labels = shape
    scores, targets, _ = tensors_at((pointers[0], pointers[1], pointers[0]), shape, zero)
    given = array_at(pointers[2], 4 * rows, 0.0)
    kind = scores.dtype.type
    index, before = np.empty(labels + 1, np.int64), np.empty(labels)
    for i in range(rows):
        x, y = scores[i], targets[i]
        shift, slope = given[4 * i], given[4 * i + 1]
        count = positives(y, index)
        for k in range(count):
            before[k] = x[index[k]]
        if slope == 0:
            for t in range(labels):
                x[t] = 0
        else:
            high = kind(shift)
            low = kind(shift - float(high))
            _scaled(x, y, (high, low), kind(scales[0]), kind(spared), kind(slope))
        for k in range(count):
            change = given[4 * i + 3] * float(y[index[k]])
            if not linear and change != 0:
                change *= math.exp(scales[1] * before[k] - given[4 * i + 2])
            x[index[k]] += kind(change)
