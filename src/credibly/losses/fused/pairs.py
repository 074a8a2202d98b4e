"""Label pairs of a row: Σ y_p (1 − y_n) softplus(u_n − u_p) over p ≠ n, and its gradient in u.

Each positive of a row takes one pass over the labels. Together with BCE or SPA, exp(u) and exp(−u)
are stored, so a pair needs no exponential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.compiled import compiled
from credibly.losses.fused.entries import softplus_and_sigmoid
from credibly.losses.fused.form import (
    CHUNK,
    FusedForm,
    ValueAndGradient,
    all_hard,
    array_at,
    as_type,
    by_autograd,
    rows_and_labels,
    run_loop,
    tensors_at,
)
from credibly.types import LogOdds, Scores
from credibly.vectormath import (
    EXACT,
    INNER,
    JIT,
    THIN,
    exp_nonpositive,
    log1p_unit,
    same_bits,
)

if TYPE_CHECKING:
    from credibly.losses.families import BinaryLoss


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
        shape = rows_and_labels(scores)
        return run_loop(pairs_at, shape, scores, targets, needs_grad, self.weight)

    def plain(self, scores: LogOdds, targets: Tensor) -> Tensor:
        rows = (targets >= 0).any(-1).sum().clamp(min=1)
        return self.weight * row_pairs(scores, targets).sum() / rows


def row_pairs(log_odds: LogOdds, targets: Tensor) -> Tensor:
    """Return the regularizer of each row by the formula."""
    known = targets >= 0
    present = torch.where(known, targets, 0.0)
    absent = torch.where(known, 1 - targets, 0.0)
    u = torch.where(known, log_odds, 0.0)
    total = -math.log(2) * (present * absent).sum(-1)  # a soft label is paired with itself
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
    """Return the number of known labels of a row."""
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
        if low | high:  # most groups of eight have none
            for t in range(s, s + 8):
                index[count] = t
                count += 1 if y[t] > 0 else 0
    for t in range(whole, y.size):
        index[count] = t
        count += 1 if y[t] > 0 else 0
    return count


@njit(**INNER)
def _against(u, absent, g, level, share):
    """Return sum and slope of the pairs of one positive with a chunk of the row."""
    values, slopes = u.dtype.type(0), u.dtype.type(0)
    for t in range(u.size):
        value, slope = softplus_and_sigmoid(u[t] - level)
        slope *= absent[t]
        values += absent[t] * value
        slopes += slope
        g[t] += share * slope
    return values, slopes


@njit(**THIN)
def _direct(y, u, work, count):
    """Return the sum over pairs of the row, with one pass for each positive."""
    absent, g, index, own = work
    for k in range(count):
        own[k] = 0.0
    total = 0.0
    for start in range(0, u.size, CHUNK):
        c = slice(start, min(u.size, start + CHUNK))
        for k in range(count):
            p = index[k]
            values, slopes = _against(u[c], absent[c], g[c], u[p], y[p])
            total += y[p] * values
            own[k] += y[p] * slopes
    for k in range(count):
        g[index[k]] -= u.dtype.type(own[k])
    return total


@njit(**INNER)
def _workspace(labels, like):
    """Return arrays for one row, targets first, padded to whole vector instructions."""
    size = (labels + 31) // 32 * 32
    y = np.full(size, -1, like.dtype)
    u, absent, g = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    return y, u, (absent, g, np.empty(size + 1, np.int64), np.empty(size))


@njit(**THIN)
def _row_pairs(y, u, work):
    """Return the sum of the row for targets ``y`` and log-odds ``u``; write its slope.

    ``u`` is shifted in place. ``work`` starts with space for 1 − y and for the slope, which is
    written. All arrays are padded, targets with −1.
    """
    absent, g, index, _ = work
    count = positives(y, index)
    for t in range(g.size):
        g[t] = 0
    if count == 0:
        return 0.0
    negatives, alone = _centre(u, y, absent, u[index[0]])
    if not negatives > 0:
        return 0.0
    total = _direct(y, u, work, count)
    # A soft label is paired with itself. This adds nothing to the gradient, and y(1 − y) log 2
    # to the value.
    return total - alone * math.log(2.0)


@njit(**INNER)
def _centre(u, y, absent, origin):
    """Fill ``absent`` with 1 − y and subtract ``origin`` from ``u``; unknown labels become 0.

    Return Σ (1 − y) and Σ y (1 − y).
    """
    zero, one = u.dtype.type(0), u.dtype.type(1)
    negatives, alone = zero, zero
    for t in range(u.size):
        known = y[t] >= zero
        weight = one - y[t] if known else zero
        gap = u[t] - origin if known else zero
        absent[t] = weight
        negatives += weight
        alone += weight * y[t] if known else zero  # y may be NaN
        u[t] = gap
    return negatives, alone


@compiled(**JIT)
def pairs_at(pointers, shape, zero, needs_grad, weight):
    """Return weight × the mean over rows with a known label, with the gradient by the log-odds."""
    log_odds, targets, gradient = tensors_at(pointers, shape, zero)
    rows, labels = shape
    known_rows = 0
    for b in range(rows):
        known_rows += 1 if known_labels(targets[b]) > 0 else 0
    y, u, work = _workspace(labels, log_odds)
    g = work[1]
    total = 0.0
    for b in range(rows):
        for t in range(labels):
            u[t], y[t] = log_odds[b, t], targets[b, t]
        factor = pair_factor(known_labels(targets[b]), known_rows, weight)
        total += factor * _row_pairs(y, u, work)
        if needs_grad:
            share = u.dtype.type(factor)
            for t in range(labels):
                gradient[b, t] = share * g[t]
    return total


# Together with BCE or SPA ------------------------------------------------------------------------

# All tables are slices of one array. For separate arrays, the loops would check at run time that
# they do not overlap, and would not be vectorised.
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
    """Mean of the loss over known entries + ``weight`` × mean of the pairs over rows.

    BCE or SPA, its link and the label pairs, in one pass over rows whose targets are 0 or 1. The
    log-odds u of a chunk, exp(u) and exp(−u) are stored once in tables, so a pair needs no
    exponential. exp(u) needs none either: by the link, it is a quotient of two sigmoids of the
    loss. The tables contain u = −∞ for a present label, so the loop over positives needs no
    weights: such a label adds 0 to the sum and has slope 0.

    A batch with other targets, with over 512 positives in a row or with log-odds very far apart
    uses the loss and the pairs one after the other.
    """

    loss: BinaryLoss
    numbers: tuple[float, ...]
    """See ``softplus.side_numbers``."""
    weight: float

    def on_cpu(self, scores: Scores, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        if not scores.numel():
            return by_autograd(self.plain, scores, targets, needs_grad)
        numbers = self.numbers, self.weight
        shape = rows_and_labels(scores)
        value, gradient = run_loop(_linked, shape, scores, targets, needs_grad, *numbers)
        if math.isnan(value.item()):  # a NaN, or a row that this form does not support
            return by_autograd(self._one_after_the_other, scores, targets, needs_grad)
        return value, gradient

    def plain(self, scores: Scores, targets: Tensor) -> Tensor:
        pairs = PairsForm(self.weight).plain(self._log_odds(scores, targets), targets)
        return self.loss.plain_mean(scores, targets) + pairs

    def _one_after_the_other(self, scores: Scores, targets: Tensor) -> Tensor:
        pairs = PairsForm(self.weight)(self._log_odds(scores, targets), targets)
        return self.loss(scores, targets) + pairs

    def _log_odds(self, scores: Scores, targets: Tensor) -> Tensor:
        # Unknown labels are excluded, even with a NaN score.
        return self.loss.log_odds(torch.where(targets >= 0, scores, 0.0))


def _linked(
    pointers: tuple[int, int, int],
    shape: tuple[int, int],
    zero: np.float32 | np.float64,
    needs_grad: bool,
    numbers: tuple[float, ...],
    weight: float,
) -> float:
    """Run ``linked_at`` with work space: indices of positives, and tables."""
    labels = shape[1]
    work = torch.empty(labels + 1 + _TABLES, dtype=torch.float64)
    return linked_at((*pointers, work.data_ptr()), shape, zero, needs_grad, numbers, weight)


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
    # Below this limit, the gradient would be subnormal, which is slow: it counts as 0.
    least = np.finfo(v.dtype).tiny / min(-push_pos, push_neg)
    total, highest = zero, same_bits(zero)
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
        highest = max(highest, same_bits(rise))
        push = push_pos if y[t] > zero else push_neg
        sigmoid = sigmoid_pos if y[t] > zero else sigmoid_neg
        tables[t] = push * (sigmoid if sigmoid > least else zero)
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
    """Fill the tables of the positives of a long row, which all its chunks need."""
    whole = (index.size + 7) // 8 * 8  # rounded up to whole vector steps
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
def _origin(n, score):
    """Return whether exp(u) needs a new origin at the log-odds of ``score``, and these log-odds.

    Pairs depend only on differences of log-odds, so the origin cancels. Without it, exp(u)
    underflows in rows whose scores are all far below 0.
    """
    x_pos, x_neg = float(n[0] * score + n[1]), float(n[3] * score + n[4])
    if max(abs(x_pos), abs(x_neg)) < _ORDINARY:
        return False, 0.0
    log_pos = min(x_pos, 0.0) - math.log1p(math.exp(-abs(x_pos)))
    log_neg = min(x_neg, 0.0) - math.log1p(math.exp(-abs(x_neg)))
    return True, float(n[6]) + log_neg - log_pos


@njit(**INNER)
def _recentre(tables, size, origin):
    """Compute exp(u) and exp(−u) relative to ``origin``; return the largest exp(u), as bits."""
    zero, one = tables.dtype.type(0), tables.dtype.type(1)
    highest = same_bits(zero)
    for t in range(size):
        gap = tables[_U + t] - origin
        small = exp_nonpositive(-abs(gap))
        large = one / small
        rise = small if gap < zero else large
        highest = max(highest, same_bits(rise))
        tables[_RISE + t] = rise
        tables[_FALL + t] = large if gap < zero else small
    return highest


@compiled(**JIT)
def linked_at(pointers, shape, zero, needs_grad, numbers, weight):
    """Return the loss and fill its gradient; NaN if this form does not support a row.

    Args:
        pointers, shape, zero: see ``tensors_at``; then the address of labels + 1 + ``_TABLES``
            float64 numbers.
        needs_grad: whether to fill the gradient.
        numbers: slope, offset and weight of both partial losses.
        weight: of the pairs.
    """
    scores, targets, gradient = tensors_at(pointers[:3], shape, zero)
    (rows, size), work = shape, pointers[3]
    ratio = numbers[3] * numbers[5] / (-numbers[0] * numbers[2])
    n = as_type((*numbers, math.log(ratio), ratio), zero)
    scale, factor = as_type(1.0 / (rows * size), zero), pair_factor(size, rows, weight)
    push = as_type(factor, zero)
    places, space = array_at(work, size + 1, 0), array_at(work + 8 * (size + 1), _TABLES, zero)
    tables, few, picked = space[: 6 * CHUNK], space[6 * CHUNK : 12 * CHUNK], space[12 * CHUNK :]
    reach = same_bits(as_type(_REACH, zero))
    total, pairs = 0.0, 0.0
    for b in range(rows):
        row, truth, out = scores[b], targets[b], gradient[b]
        if not all_hard(truth):
            return np.nan
        count = positives(truth, places)
        if count > CHUNK:
            return np.nan
        index = places[:count]
        far, origin = False, 0.0
        if count > 0:
            far, origin = _origin(n, row[index[0]])
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
                # exp(u) below −87 is rounded to 0, which is right only for positives well above.
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
