"""BCE or SPA, its link and the label pairs, in one pass over rows whose targets are 0 or 1.

The log-odds u of a chunk, exp(u) and exp(−u) are stored once in tables; a pair then needs no
exponential. exp(u) needs none either: by the link it is a quotient of two sigmoids that the loss
has computed. The tables hold u = −∞ for a present label, so the loop over positives needs no
weights: such a label adds 0 to the sum and gets a slope of 0.

A batch with other targets, with many positives in a row or with log-odds very far apart takes the
loss and the pairs one after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from credibly.compiled import compiled
from credibly.losses.fused.form import FusedForm, ValueAndGradient, by_autograd, run_rows
from credibly.losses.fused.memory import CHUNK, all_hard, array_at, as_type, tensors_at
from credibly.losses.fused.pairs import PairsForm, pair_factor, positives
from credibly.losses.fused.pairs import tables as chebyshev_tables
from credibly.types import Scores
from credibly.vectormath import EXACT, INNER, JIT, THIN, exp_nonpositive, float_bits, log1p_unit

if TYPE_CHECKING:
    from credibly.losses.families import BinaryLoss

# All tables are parts of one array. As separate arrays, the loops would have to check at run time
# that none overlap, and would not become vector instructions.
_U, _RISE, _FALL, _CHAIN, _SLOPE = (k * CHUNK for k in range(1, 6))
_TABLES = 13 * CHUNK
_NOWHERE = -1e30
_ORDINARY = 24.0
"""Rows whose first positive has a larger slope · score + offset count exp(u) from its log-odds."""
_FARTHEST = 69.0
_REACH = math.exp(40.0)
"""exp(u) of every label must stay below this and that of positives above its inverse. Then no
product of the two overflows float32, and what underflows is negligible."""


@dataclass(frozen=True)
class LinkedPairs(FusedForm):
    """Mean of the loss over known entries + ``weight`` × mean of the pairs over rows."""

    loss: BinaryLoss
    numbers: tuple[float, ...]
    """See ``softplus.side_numbers``."""
    weight: float

    def on_cpu(self, scores: Scores, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        if not scores.numel():
            return by_autograd(self.plain, scores, targets, needs_grad)
        value, gradient = run_rows(_linked, scores, targets, needs_grad, self.numbers, self.weight)
        if math.isnan(value.item()):  # a NaN, or a row that is not for this form
            return by_autograd(self._one_after_the_other, scores, targets, needs_grad)
        return value, gradient

    def plain(self, scores: Scores, targets: Tensor) -> Tensor:
        pairs = PairsForm(self.weight).plain(self._log_odds(scores, targets), targets)
        return self.loss.plain_mean(scores, targets) + pairs

    def _one_after_the_other(self, scores: Scores, targets: Tensor) -> Tensor:
        pairs = PairsForm(self.weight)(self._log_odds(scores, targets), targets)
        return self.loss(scores, targets) + pairs

    def _log_odds(self, scores: Scores, targets: Tensor) -> Tensor:
        # Unknown labels take no part, not even with a score of NaN.
        return self.loss.log_odds(torch.where(targets >= 0, scores, 0.0))


def _linked(
    pointers: tuple[int, int, int],
    shape: tuple[int, int],
    zero: Any,
    needs_grad: bool,
    numbers: tuple[float, ...],
    weight: float,
) -> float:
    """Run ``linked_at`` with work space: indices of positives, and tables."""
    labels = shape[1]
    work = torch.empty(labels + 1 + _TABLES, dtype=torch.float64)
    _, _, many, more = chebyshev_tables(isinstance(zero, np.float64))
    pair = weight, many + more / labels
    return linked_at((*pointers, work.data_ptr()), shape, zero, needs_grad, numbers, pair)


@njit(**EXACT)
def _logs(x, e, zero):
    """Return softplus(x) and log σ(x) from ``e`` = exp(−|x|)."""
    rest = log1p_unit(e)
    above = x if x > zero else zero
    return above + rest, (x - above) - rest


@njit(**INNER)
def _fill(v, y, tables, n, scale):
    """Fill the tables; return the sum of the loss and the largest exp(u), as bits.

    ``n`` are slope, offset and weight of both partial losses, the log of the ratio of their slopes
    and weights, and that ratio.
    """
    zero, one = as_type(0.0, scale), as_type(1.0, scale)
    push_pos, push_neg = scale * n[0] * n[2], scale * n[3] * n[5]
    total, highest = zero, float_bits(zero)
    for t in range(v.size):
        x_pos, x_neg = n[0] * v[t] + n[1], n[3] * v[t] + n[4]
        e_pos, e_neg = exp_nonpositive(-abs(x_pos)), exp_nonpositive(-abs(x_neg))
        value_pos, log_pos = _logs(x_pos, e_pos, zero)
        value_neg, log_neg = _logs(x_neg, e_neg, zero)
        near_pos, near_neg = one / (one + e_pos), one / (one + e_neg)
        far_pos, far_neg = e_pos * near_pos, e_neg * near_neg
        sigmoid_pos = far_pos if x_pos < zero else near_pos
        sigmoid_neg = far_neg if x_neg < zero else near_neg
        rest_pos = near_pos if x_pos < zero else far_pos
        rest_neg = near_neg if x_neg < zero else far_neg
        total += n[2] * value_pos if y[t] > zero else n[5] * value_neg
        rise = n[7] * sigmoid_neg / sigmoid_pos
        highest = max(highest, float_bits(rise))
        tables[t] = push_pos * sigmoid_pos if y[t] > zero else push_neg * sigmoid_neg
        tables[_U + t] = n[6] + (log_neg - log_pos)
        tables[_RISE + t] = rise
        tables[_FALL + t] = sigmoid_pos / (n[7] * sigmoid_neg)
        tables[_CHAIN + t] = n[3] * rest_neg - n[0] * rest_pos
        tables[_SLOPE + t] = zero
    return total, highest


@njit(**INNER)
def _one_against(tables, size, level, up, down):
    """Return the sum of the pairs of one positive with the chunk, and its slope."""
    zero, one = tables.dtype.type(0), tables.dtype.type(1)
    values, slopes = zero, zero
    for t in range(size):
        gap = tables[_U + t] - level
        ahead, behind = tables[_RISE + t] * down, tables[_FALL + t] * up  # exp(gap), exp(−gap)
        values += (gap if gap > zero else zero) + log1p_unit(ahead if ahead < behind else behind)
        slope = one / (one + behind)
        slopes += slope
        tables[_SLOPE + t] += slope
    return values, slopes


@njit(**INNER)
def _write_gradient(out, tables, factor):
    for t in range(out.size):
        out[t] = tables[t] + factor * tables[_SLOPE + t] * tables[_CHAIN + t]


@njit(**THIN)
def _look_up(scores, index, picked, few, numbers, scale):
    """Fill the tables of the positives of a long row, which all of its chunks need."""
    whole = (index.size + 7) // 8 * 8  # rounded up, so that no step is a single one
    v = picked[:whole]
    for k in range(whole):
        v[k] = 0
    for k in range(index.size):
        v[k] = scores[index[k]]
    _fill(v, v, few, numbers, scale)


@njit(**THIN)
def _take_out(tables, few, k, t, known):
    """Remove positive ``k``, at index ``t``, from the tables; copy it to ``few`` unless known."""
    if not known:
        few[_U + k], few[_RISE + k], few[_FALL + k] = (
            tables[_U + t],
            tables[_RISE + t],
            tables[_FALL + t],
        )
        few[_CHAIN + k], few[_SLOPE + k] = tables[_CHAIN + t], 0
    tables[_U + t], tables[_RISE + t], tables[_FALL + t] = _NOWHERE, 0, np.inf


@njit(**THIN)
def _centre(n, score):
    """Return whether exp(u) must be counted from the log-odds at ``score``, and these log-odds.

    Pairs only see differences of log-odds, so the origin cancels. Without it rows whose scores are
    all far below 0 would not fit, as exp(u) underflows.
    """
    x_pos, x_neg = float(n[0] * score + n[1]), float(n[3] * score + n[4])
    if max(abs(x_pos), abs(x_neg)) < _ORDINARY:
        return False, 0.0
    log_pos = min(x_pos, 0.0) - math.log1p(math.exp(-abs(x_pos)))
    log_neg = min(x_neg, 0.0) - math.log1p(math.exp(-abs(x_neg)))
    return True, float(n[6]) + log_neg - log_pos


@njit(**INNER)
def _recentre(tables, size, origin):
    """Count exp(u) and exp(−u) from ``origin``; return the largest exp(u), as bits."""
    zero, one = tables.dtype.type(0), tables.dtype.type(1)
    highest = float_bits(zero)
    for t in range(size):
        gap = tables[_U + t] - origin
        small = exp_nonpositive(-abs(gap))
        large = one / small
        rise = small if gap < zero else large
        highest = max(highest, float_bits(rise))
        tables[_RISE + t] = rise
        tables[_FALL + t] = large if gap < zero else small
    return highest


@compiled(**JIT)
def linked_at(pointers, shape, zero, needs_grad, numbers, pair):
    """Return the loss and fill its gradient; NaN if a row is not for this form.

    Args:
        pointers, shape, zero: see ``tensors_at``; then the address of labels + 1 + ``_TABLES``
            float64 numbers.
        needs_grad: whether to fill the gradient.
        numbers: slope, offset and weight of both partial losses.
        pair: weight of the pairs, and the number of positives from which on another form is
            faster.
    """
    scores, targets, gradient = tensors_at(pointers[:3], shape, zero)
    (rows, size), (weight, limit), work = shape, pair, pointers[3]
    ratio = numbers[3] * numbers[5] / (-numbers[0] * numbers[2])
    n = as_type((*numbers, math.log(ratio), ratio), zero)
    scale, factor = as_type(1.0 / (rows * size), zero), pair_factor(size, rows, weight)
    push = as_type(factor, zero)
    places, space = array_at(work, size + 1, 0), array_at(work + 8 * (size + 1), _TABLES, zero)
    tables, few, picked = space[: 6 * CHUNK], space[6 * CHUNK : 12 * CHUNK], space[12 * CHUNK :]
    reach = float_bits(as_type(_REACH, zero))
    total, pairs = 0.0, 0.0
    for b in range(rows):
        row, truth, out = scores[b], targets[b], gradient[b]
        if not all_hard(truth):
            return np.nan
        count = positives(truth, places)
        if count >= limit or count > CHUNK:
            return np.nan
        index = places[:count]
        far, origin = False, 0.0
        if count > 0:
            far, origin = _centre(n, row[index[0]])
        if size > CHUNK:
            _look_up(row, index, picked, few, n, scale)
            if far:
                _recentre(few, count, as_type(origin, zero))
        first = 0
        for start in range(0, size, CHUNK):
            stop = min(size, start + CHUNK)
            value, highest = _fill(row[start:stop], truth[start:stop], tables, n, scale)
            if far:
                highest = _recentre(tables, stop - start, as_type(origin, zero))
            if not highest < reach:
                return np.nan
            total += value
            while first < count and index[first] < stop:
                _take_out(tables, few, first, index[first] - start, size > CHUNK)
                first += 1
            for k in range(count):
                level, up, down = few[_U + k], few[_RISE + k], few[_FALL + k]
                # exp(u) below −87 was rounded to 0, which is right only for positives well above.
                if not (1 / _REACH < up < _REACH and (far or level > -_FARTHEST)):
                    return np.nan
                values, slopes = _one_against(tables, stop - start, level, up, down)
                pairs += values
                few[_SLOPE + k] += slopes
            if needs_grad:
                _write_gradient(out[start:stop], tables, push)
        if needs_grad:
            for k in range(count):
                out[index[k]] -= push * few[_SLOPE + k] * few[_CHAIN + k]
    return total / (rows * size) + pairs * factor
