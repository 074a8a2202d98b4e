"""The two-way loss: a compiled loop in two passes over float32 scores of ordinary range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numba import njit
from torch import Tensor

from credibly.compiled import compiled
from credibly.losses.fused.form import (
    FusedForm,
    ValueAndGradient,
    array_at,
    by_autograd,
    rows_and_labels,
    run_loop,
    tensors_at,
)
from credibly.losses.fused.pairs import positives
from credibly.types import Scores
from credibly.vectormath import INNER, JIT, THIN, exp_nonpositive, same_bits

if TYPE_CHECKING:
    from credibly.losses.two_way import TwoWay

_SAFE = 40.0
"""Largest score over temperature whose exp, sums of it and their inverses stay well in range."""
_ZERO, _ONE = np.float32(0), np.float32(1)
_NO_SIGN = np.int32(0x7FFFFFFF)
_STRIPE = 512  # float32 sums of this many terms, then float64
_ROWS = 32  # the same for columns


@dataclass(frozen=True)
class TwoWayForm(FusedForm):
    """Sums of exponentials per row and per column. Other ranges and float64 use the formula."""

    loss: TwoWay

    def on_cpu(self, scores: Scores, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        loss = self.loss
        if scores.dtype == torch.float32 and scores.numel():
            numbers = loss.temperature_pos, loss.temperature_neg, loss.margin, _SAFE
            ways = loss.ways != "labels", loss.ways != "samples"
            rows, labels = rows_and_labels(scores)
            # Without a gradient, its exponentials need a place of their own.
            space = 2 * rows + 4 * labels + 1 + (0 if needs_grad else rows * labels)
            shape, given = (rows, labels), (scores, targets, needs_grad)
            value, gradient = run_loop(two_way_at, shape, *given, numbers, ways, space=space)
            if not math.isnan(value.item()):
                return value, gradient
        # A NaN, or a range in which each sum needs its own shift.
        return by_autograd(self.plain, scores, targets, needs_grad)

    def plain(self, scores: Scores, targets: Tensor) -> Tensor:
        return self.loss.plain_mean(scores, torch.where(targets >= 0, targets, -1.0))


@compiled(**JIT)
def two_way_at(pointers, shape, zero, needs_grad, numbers, ways):
    """Return the value, and fill the gradient; NaN if a score over temperature is beyond ``safe``.

    The exponentials are not shifted, which preserves all digits but limits the range.

    Args:
        pointers, shape, zero: see ``tensors_at``; float32. A NaN among the scores gives NaN. Then
            the address of 2 rows + 4 labels + 1 float64 numbers, and of as many as there are
            scores if no gradient is needed.
        needs_grad: whether to compute the gradient.
        numbers: temperature of positives, temperature of negatives, margin, and the largest
            absolute score over temperature.
        ways: whether rows count, and whether labels count.
    """
    scores, targets, gradient = tensors_at(pointers, shape, zero)
    (rows, labels), work = shape, pointers[3]
    if not needs_grad:
        gradient = array_at(work + 8 * (2 * rows + 4 * labels + 1), rows * labels, zero)
        gradient = gradient.reshape(shape)
    temperature_pos, temperature_neg, margin, safe = numbers
    hard, weak = array_at(work, rows + labels, 0.0), _after(work, rows + labels, rows + labels, 0.0)
    by_label = _after(work, 2 * (rows + labels), 2 * labels, zero)
    down = by_label[:labels]
    for sums in (hard, weak):
        for k in range(rows + labels):
            sums[k] = 0.0
    for j in range(labels):
        down[j] = zero
    index = _after(work, 2 * rows + 3 * labels, labels + 1, np.int64(0))
    scale, scale_pos = np.float32(1 / temperature_neg), -1 / temperature_pos
    highest, soft = np.int32(0), 0
    for i in range(rows):
        total = 0.0
        for start in range(0, labels, _STRIPE):
            c = slice(start, min(labels, start + _STRIPE))
            part, largest = _exponentials(
                scores[i, c], targets[i, c], gradient[i, c], down[c], scale
            )
            total += part
            highest = max(highest, largest)
        hard[i] = total
        if i % _ROWS == _ROWS - 1 or i == rows - 1:
            _add_up(hard[rows:], down)
        for k in range(positives(targets[i], index)):
            j = index[k]
            term = targets[i, j] * math.exp(scale_pos * scores[i, j])
            weak[i] += term
            weak[rows + j] += term
            if targets[i, j] == _ONE:  # the weight of this exponential is 0
                gradient[i, j] = -term
            else:
                soft += 1
    if not highest <= same_bits(np.float32(safe * min(temperature_neg, temperature_pos))):
        return np.nan
    value = 0.0
    for way in range(2):
        c = slice(0, rows) if way == 0 else slice(rows, rows + labels)
        value += _slopes(hard[c], weak[c], temperature_pos, temperature_neg, margin, ways[way])
    if needs_grad:
        for j in range(labels):
            by_label[j], by_label[labels + j] = hard[rows + j], weak[rows + j]
        for i in range(rows):
            _scale(gradient[i], hard[i], weak[i], by_label)
            if soft > 0:
                for k in range(positives(targets[i], index)):
                    j = index[k]
                    if targets[i, j] != _ONE:
                        term = targets[i, j] * math.exp(scale_pos * scores[i, j])
                        gradient[i, j] -= np.float32(term * (weak[i] + weak[rows + j]))
    return value


@njit(**THIN)
def _after(work, numbers, size, zero):
    """Return an array that starts the given number of float64 numbers after ``work``."""
    return array_at(work + 8 * numbers, size, zero)


@njit(**INNER)
def _exponentials(x, y, e, down, scale):
    """Store exp(scale · x) × (1 − y); return its sum and the largest |x|, as bits."""
    # Sizes are compared as bit patterns, in which NaN is the largest. A float maximum that
    # propagates NaN would not be vectorised.
    total, largest = _ZERO, np.int32(0)
    for j in range(x.size):
        largest = max(largest, np.int32(same_bits(x[j]) & _NO_SIGN))
        weight = _ONE - y[j] if y[j] >= _ZERO else _ZERO
        # The polynomial is also valid above 0, as long as 2ⁿ is: up to 88, beyond the safe range.
        term = exp_nonpositive(x[j] * scale) * weight
        e[j] = term
        down[j] += term
        total += term
    return total, largest


@njit(**INNER)
def _add_up(sums, down):
    for j in range(down.size):
        sums[j] += down[j]
        down[j] = _ZERO


@njit(**INNER)
def _slopes(hard, weak, t_pos, t_neg, margin, counts):
    """Return the mean over sets; replace ``hard`` and ``weak`` by the slopes in them."""
    count = 0
    for k in range(hard.size):
        count += 1 if hard[k] > 0 and weak[k] > 0 and counts else 0
    value = 0.0
    for k in range(hard.size):
        if hard[k] > 0 and weak[k] > 0 and counts:
            inner = t_neg * math.log(hard[k]) + t_pos * math.log(weak[k]) + margin
            small = math.exp(-abs(inner))
            value += max(inner, 0.0) + math.log1p(small)
            push = (1.0 if inner >= 0 else small) / (1.0 + small) / count
            hard[k], weak[k] = push / hard[k], push / weak[k]
        else:
            hard[k] = weak[k] = 0.0
    return value / max(count, 1)


@njit(**INNER)
def _scale(out, hard, weak, by_label):
    """Multiply the entries of rows by the slopes of their sets. Entries below 0 are positives."""
    hard_row, weak_row = np.float32(hard), np.float32(weak)
    for j in range(out.size):
        by_hard, by_weak = hard_row + by_label[j], weak_row + by_label[out.size + j]
        out[j] *= by_weak if out[j] < _ZERO else by_hard
