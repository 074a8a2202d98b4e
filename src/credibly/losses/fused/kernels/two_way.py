"""The two-way loss and its gradient in two passes over the scores, float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from credibly.types import Array
from credibly.vectormath import JIT, exp_nonpositive

_ZERO, _ONE = np.float32(0), np.float32(1)
_NO_SIGN = np.int32(0x7FFFFFFF)
_STRIPE = 512  # float32 sums of this many terms, then float64
_ROWS = 32  # likewise down the columns
_BLOCK = 64  # targets looked at together, as most blocks hold nothing but zeros


@njit(**JIT)
def value_and_gradient(
    scores: Array,
    targets: Array,
    gradient: Array,
    temperature_pos: float,
    temperature_neg: float,
    margin: float,
    rows_count: bool,
    labels_count: bool,
    needs_grad: bool,
    safe: float,
) -> float:
    """Value; ``gradient`` is filled. NaN if a score over temperature is NaN or beyond ``safe``.

    Without shifts inside the exponentials nothing is lost to their rounding, which is why the
    range has a bound. ``gradient`` holds the exponentials in between.
    """
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


@njit(**JIT)
def _exponentials(
    scores: Array,
    targets: Array,
    out: Array,
    scale: Any,
    bound: Any,
    hard_row: Array,
    hard_label: Array,
) -> bool:
    """exp(score / T_N), weighted by how absent the label is, with its sums; False if unsafe."""
    rows, labels = scores.shape
    # Sizes are compared as bit patterns, in which NaN is the largest: a float maximum that
    # respects NaN does not become vector code.
    bits = scores.view(np.int32)
    highest = np.int32(0)
    down = np.zeros(labels, np.float32)
    for i in range(rows):
        total = 0.0
        for start in range(0, labels, _STRIPE):
            stop = min(labels, start + _STRIPE)
            x, y, e = scores[i, start:stop], targets[i, start:stop], out[i, start:stop]
            column, size = down[start:stop], bits[i, start:stop]
            part, largest = _ZERO, np.int32(0)
            for j in range(x.size):
                largest = max(largest, np.int32(size[j] & _NO_SIGN))
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
    return highest <= np.array([bound], np.float32).view(np.int32)[0]


@njit(**JIT)
def _positives(
    scores: Array, targets: Array, temperature_pos: float, weak_row: Array, weak_label: Array
) -> tuple[Any, Any]:
    """Return flat places of positives and their exp(−score / T_P), with the sums of those."""
    x, y = scores.ravel(), targets.ravel()
    labels = scores.shape[1]
    blocks, count = _blocks_with_some(y)
    listed, present = np.empty(count, np.int64), np.empty(count)
    found = 0
    for start in blocks:
        for place in range(start, min(y.size, start + _BLOCK)):
            if y[place] > _ZERO:
                term = y[place] * math.exp(-x[place] / temperature_pos)
                i = place // labels
                weak_row[i] += term
                weak_label[place - i * labels] += term
                listed[found], present[found] = place, term
                found += 1
    return listed, present


@njit(**JIT)
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
        for place in range(start, min(y.size, start + _BLOCK)):
            count += 1 if y[place] > _ZERO else 0
    return starts[:blocks], count


@njit(**JIT)
def _slopes(hard: Any, weak: Any, t_pos: float, t_neg: float, margin: float) -> float:
    """Mean over sets; ``hard`` and ``weak`` become its slopes by them."""
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


@njit(**JIT)
def _scale(gradient: Array, row: Any, label: Any) -> None:
    down = label.astype(np.float32)
    for i in range(gradient.shape[0]):
        side, out = np.float32(row[i]), gradient[i]
        for j in range(out.size):
            out[j] *= side + down[j]
