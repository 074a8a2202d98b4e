"""Two-way loss and its gradient in two passes over float32 scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.kernels.chunks import tensors_at
from credibly.types import Array
from credibly.vectormath import INNER, JIT, THIN, exp_nonpositive, float_bits

_ZERO, _ONE = np.float32(0), np.float32(1)
_NO_SIGN = np.int32(0x7FFFFFFF)
_STRIPE = 512  # float32 sums of this many terms, then float64
_ROWS = 32  # likewise down the columns
_BLOCK = 64  # targets checked together, as most blocks hold only zeros


@compiled(**JIT)
def two_way_at(
    pointers: Any, shape: Any, zero: Any, needs_grad: bool, numbers: Any, ways: Any, safe: float
) -> float:
    """Run ``two_way`` on tensors; see ``tensors_at``."""
    scores, targets, gradient = tensors_at(pointers, shape, zero)
    if not needs_grad:  # the loops store exponentials in it
        gradient = np.empty(shape, np.float32)
    return two_way(scores, targets, gradient, needs_grad, numbers, ways, safe)


@njit(**THIN)
def two_way(
    scores: Any,
    targets: Any,
    gradient: Any,
    needs_grad: bool,
    numbers: Any,
    ways: Any,
    safe: float,
) -> float:
    """Return the value, and fill ``gradient``; NaN if a score over temperature is beyond ``safe``.

    The exponentials are not shifted, so that no digits are lost; this is why the range has a bound.

    Args:
        scores: float32 matrix; a NaN in it gives NaN.
        targets: matrix of the same shape; unknown where negative or NaN.
        gradient: matrix that holds the exponentials in between, and the gradient at the end.
        needs_grad: whether to compute the gradient.
        numbers: temperature of positives, temperature of negatives, margin.
        ways: whether rows count, and whether labels count.
        safe: largest absolute score over temperature.
    """
    temperature_pos, temperature_neg, margin = numbers
    rows_count, labels_count = ways
    rows, labels = scores.shape
    hard_row = np.zeros(rows)
    weak_row = np.zeros(rows)
    hard_label = np.zeros(labels)
    weak_label = np.zeros(labels)
    bound = np.float32(safe * min(temperature_neg, temperature_pos))
    if not _exponentials(
        scores, targets, gradient, np.float32(1 / temperature_neg), bound, hard_row, hard_label
    ):
        return np.nan
    listed, present = _positives(scores, targets, temperature_pos, weak_row, weak_label)
    value = 0.0
    if rows_count:
        value += _slopes(hard_row, weak_row, temperature_pos, temperature_neg, margin)
    else:
        hard_row[:] = 0
        weak_row[:] = 0
    if labels_count:
        value += _slopes(hard_label, weak_label, temperature_pos, temperature_neg, margin)
    else:
        hard_label[:] = 0
        weak_label[:] = 0
    if needs_grad:
        _scale(gradient, hard_row, hard_label)
        for k in range(listed.size):
            i = listed[k] // labels
            j = listed[k] - i * labels
            gradient[i, j] -= np.float32(present[k] * (weak_row[i] + weak_label[j]))
    return value


@njit(**INNER)
def _exponentials(
    scores: Array,
    targets: Array,
    out: Array,
    scale: Any,
    bound: Any,
    hard_row: Array,
    hard_label: Array,
) -> bool:
    """Store exp(score / T_N) × (1 − target) and its sums; return False if a score is unsafe."""
    rows, labels = scores.shape
    # Sizes are compared as bit patterns, in which NaN is the largest: a float maximum that
    # respects NaN does not become vector code.
    highest = np.int32(0)
    down = np.zeros(labels, np.float32)
    for i in range(rows):
        total = 0.0
        for start in range(0, labels, _STRIPE):
            stop = min(labels, start + _STRIPE)
            x, y, e = scores[i, start:stop], targets[i, start:stop], out[i, start:stop]
            column = down[start:stop]
            part, largest = _ZERO, np.int32(0)
            for j in range(x.size):
                largest = max(largest, np.int32(float_bits(x[j]) & _NO_SIGN))
                weight = _ONE - y[j] if y[j] >= _ZERO else _ZERO
                # The polynomial holds above 0, too, as far as 2ⁿ does: to 88, beyond what is safe.
                term = exp_nonpositive(x[j] * scale) * weight
                e[j] = term
                column[j] += term
                part += term
            total += part
            highest = max(highest, largest)
        hard_row[i] = total
        if i % _ROWS == _ROWS - 1 or i == rows - 1:
            for j in range(labels):
                hard_label[j] += down[j]
                down[j] = _ZERO
    return highest <= float_bits(bound)


@njit(**INNER)
def _positives(
    scores: Array, targets: Array, temperature_pos: float, weak_row: Array, weak_label: Array
) -> tuple[Any, Any]:
    """Return flat indices of positives and their exp(−score / T_P); add these to the sums."""
    x, y = scores.ravel(), targets.ravel()
    labels = scores.shape[1]
    blocks, count = _blocks_with_some(y)
    listed, present = np.empty(count, np.int64), np.empty(count)
    size = 0
    for start in blocks:
        for k in range(start, min(y.size, start + _BLOCK)):
            if y[k] > _ZERO:
                term = y[k] * math.exp(-x[k] / temperature_pos)
                i = k // labels
                weak_row[i] += term
                weak_label[k - i * labels] += term
                listed[size], present[size] = k, term
                size += 1
    return listed, present


@njit(**INNER)
def _blocks_with_some(y: Array) -> tuple[Any, int]:
    """Return starts of the blocks with a positive, and how many positives they hold."""
    starts = np.empty((y.size + _BLOCK - 1) // _BLOCK, np.int64)
    blocks = 0
    for start in range(0, y.size, _BLOCK):
        block = y[start : min(y.size, start + _BLOCK)]
        some = _ZERO
        for k in range(block.size):
            some += block[k] if block[k] > _ZERO else _ZERO  # NaN and negative are unknown
        if some > _ZERO:
            starts[blocks] = start
            blocks += 1
    count = 0
    for start in starts[:blocks]:
        for k in range(start, min(y.size, start + _BLOCK)):
            count += 1 if y[k] > _ZERO else 0
    return starts[:blocks], count


@njit(**INNER)
def _slopes(hard: Any, weak: Any, t_pos: float, t_neg: float, margin: float) -> float:
    """Return the mean over sets; replace ``hard`` and ``weak`` by the slopes in them."""
    count = 0
    for k in range(hard.size):
        count += 1 if hard[k] > 0 and weak[k] > 0 else 0
    value = 0.0
    for k in range(hard.size):
        if hard[k] > 0 and weak[k] > 0:
            inner = t_neg * math.log(hard[k]) + t_pos * math.log(weak[k]) + margin
            small = math.exp(-abs(inner))
            value += max(inner, 0.0) + math.log1p(small)
            push = (1.0 if inner >= 0 else small) / (1.0 + small) / count
            hard[k], weak[k] = push / hard[k], push / weak[k]
        else:
            hard[k] = weak[k] = 0.0
    return value / max(count, 1)


@njit(**INNER)
def _scale(gradient: Array, row: Any, label: Any) -> None:
    down = label.astype(np.float32)
    for i in range(gradient.shape[0]):
        side, out = np.float32(row[i]), gradient[i]
        for j in range(out.size):
            out[j] *= side + down[j]
