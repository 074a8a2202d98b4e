"""Label pairs of a row: Σ y_p (1 − y_n) softplus(u_n − u_p) over p ≠ n, and its gradient.

One loop serves log-odds of any loss, and BCE and SPA together with their pairs. It stores the
log-odds u of a row, exp(u) and exp(−u) in tables. Each positive then takes one pass over the
labels, without exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    rows_and_labels,
    run_loop,
    tensors_at,
)
from credibly.types import LogOdds, Scores
from credibly.vectormath import (
    EXACT,
    INNER,
    JIT,
    exp_nonpositive,
    log1p_unit,
    same_bits,
)

if TYPE_CHECKING:
    from credibly.losses.families import BinaryLoss


@dataclass(eq=False)
class PairsForm(FusedForm):
    """``weight`` × the mean over rows with a known label; "scores" here are log-odds.

    Example:
        >>> log_odds = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
        >>> PairsForm(1.0)(log_odds, torch.tensor([[1, 0, 0], [0, 0, 0]]).float())
        tensor(0.0734)
    """

    weight: float

    def on_cpu(self, scores: LogOdds, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        return _run(_pairs, scores, targets, needs_grad, (0.0,), self.weight)

    def plain(self, scores: LogOdds, targets: Tensor) -> Tensor:
        rows = (targets >= 0).any(-1).sum().clamp(min=1)
        return self.weight * row_pairs(scores, targets).sum() / rows


@dataclass(eq=False)
class LinkedPairs(FusedForm):
    """Mean of BCE or SPA over known entries + ``weight`` × mean of the pairs over rows."""

    loss: BinaryLoss
    numbers: tuple[float, ...]
    """See ``BinaryLoss.softplus_numbers``."""
    weight: float

    def on_cpu(self, scores: Scores, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        slope_pos, _, weight_pos, slope_neg, _, weight_neg = self.numbers
        ratio = slope_neg * weight_neg / (-slope_pos * weight_pos)
        smallest = torch.finfo(scores.dtype).tiny
        numbers = *self.numbers, math.log(ratio), ratio, smallest
        return _run(_linked_pairs, scores, targets, needs_grad, numbers, self.weight)

    def plain(self, scores: Scores, targets: Tensor) -> Tensor:
        # Unknown labels are excluded, even with a NaN score.
        log_odds = self.loss.log_odds(torch.where(targets >= 0, scores, 0.0))
        pairs = PairsForm(self.weight).plain(log_odds, targets)
        return self.loss.plain_mean(scores, targets) + pairs


def _run(
    loop: Callable[..., float], scores: Tensor, targets: Tensor, needs_grad: bool, *numbers: object
) -> ValueAndGradient:
    rows, labels = rows_and_labels(scores)
    space = labels + 1 + 5 * labels + _TABLES + 2 * CHUNK
    return run_loop(loop, (rows, labels), scores, targets, needs_grad, *numbers, space=space)


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


@njit(**INNER)
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
    blocks, whole = y.size // 64 * 64 if y.size > CHUNK else 0, y.size // 8 * 8
    for s in range(0, blocks, 64):
        present = 0
        for t in range(s, s + 64):
            present += 1 if y[t] > 0 else 0
        if present > 0:  # most blocks of a long row have none
            for t in range(s, s + 64):
                index[count] = t
                count += 1 if y[t] > 0 else 0
    for s in range(blocks, whole, 8):
        bits = same_bits(y[s])
        for t in range(s, s + 8):
            bits |= same_bits(y[t])
        if bits:  # most groups of eight are 0
            for t in range(s, s + 8):
                index[count] = t
                count += 1 if y[t] > 0 else 0
    for t in range(whole, y.size):
        index[count] = t
        count += 1 if y[t] > 0 else 0
    return count


# The tables of a chunk of labels. All are slices of one array: for separate arrays, the loops would
# check at run time that they do not overlap, and would not be vectorised.
_U, _RISE, _FALL, _CHAIN, _SLOPE = (k * CHUNK for k in range(1, 6))
_TABLES = 6 * CHUNK
_NOWHERE = -1e30
_ORDINARY = 24.0
"""Rows whose first positive has larger log-odds count exp(u) from these."""
_FARTHEST = 69.0
_REACH = math.exp(40.0)
"""exp(u) of every label must stay below this and that of positives above its inverse. Then no
product of the two overflows float32, and what underflows is negligible."""


@njit(**INNER)
def _fill_log_odds(v, y, tables, n, scale):
    """Fill the tables for scores that are log-odds, without a loss."""
    zero, one = as_type(0.0, scale), as_type(1.0, scale)
    for t in range(v.size):
        tables[t] = zero
        tables[_U + t] = v[t] if y[t] >= zero else zero
        tables[_CHAIN + t] = one
        tables[_SLOPE + t] = zero
    return zero, same_bits(zero)


@njit(**EXACT)
def _logs(x, e, zero):
    """Return softplus(x) and log σ(x) from ``e`` = exp(−|x|)."""
    rest = log1p_unit(e)
    above = x if x > zero else zero
    return above + rest, (x - above) - rest


@njit(**INNER)
def _fill_softplus(v, y, tables, n, scale):
    """Fill the tables; return the sum of the loss and the largest exp(u), as bits.

    By the link, exp(u) is a quotient of two sigmoids of the loss. ``n`` are slope, offset and
    weight of both partial losses, the log of the ratio of their slopes and weights, that ratio,
    and the smallest normal number.
    """
    zero, one = as_type(0.0, scale), as_type(1.0, scale)
    push_pos, push_neg = scale * n[0] * n[2], scale * n[3] * n[5]
    # Below this limit, the gradient would be subnormal, which is slow: it counts as 0.
    least = n[8] / min(-push_pos, push_neg)
    total, highest = zero, same_bits(zero)
    for t in range(v.size):
        known = y[t] >= zero
        score, present = v[t] if known else zero, y[t] if known else zero
        absent = one - y[t] if known else zero
        x_pos, x_neg = n[0] * score + n[1], n[3] * score + n[4]
        e_pos, e_neg = exp_nonpositive(-abs(x_pos)), exp_nonpositive(-abs(x_neg))
        value_pos, log_pos = _logs(x_pos, e_pos, zero)
        value_neg, log_neg = _logs(x_neg, e_neg, zero)
        near_pos, near_neg = one / (one + e_pos), one / (one + e_neg)
        far_pos, far_neg = e_pos * near_pos, e_neg * near_neg
        sigmoid_pos = far_pos if x_pos < zero else near_pos
        sigmoid_neg = far_neg if x_neg < zero else near_neg
        rest_pos = near_pos if x_pos < zero else far_pos
        rest_neg = near_neg if x_neg < zero else far_neg
        total += n[2] * present * value_pos + n[5] * absent * value_neg
        rise = n[7] * sigmoid_neg / sigmoid_pos
        highest = max(highest, same_bits(rise))
        calm_pos = zero if sigmoid_pos < least else sigmoid_pos
        calm_neg = zero if sigmoid_neg < least else sigmoid_neg
        tables[t] = push_pos * present * calm_pos + push_neg * absent * calm_neg
        tables[_U + t] = n[6] + (log_neg - log_pos)
        tables[_RISE + t] = rise
        tables[_FALL + t] = sigmoid_pos / (n[7] * sigmoid_neg)
        tables[_CHAIN + t] = n[3] * rest_neg - n[0] * rest_pos
        tables[_SLOPE + t] = zero
    return total, highest


@njit(**INNER)
def _recentre(tables, size, origin):
    """Compute exp(u) and exp(−u) relative to ``origin``; return the largest exp(u), as bits.

    Pairs depend only on differences of log-odds, so the origin cancels. Without it, exp(u)
    underflows in rows whose scores are all far below 0.
    """
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


@njit(**INNER)
def _one_against(tables, size, level, up, down):
    """Return the sum of the pairs of one positive with the chunk, and its slope."""
    zero, one, small = tables.dtype.type(0), tables.dtype.type(1), tables.dtype.type(1e-37)
    values, slopes = zero, zero
    for t in range(size):
        gap = tables[_U + t] - level
        # exp(gap) and exp(−gap). The small constant keeps the first above subnormal numbers.
        ahead, behind = tables[_RISE + t] * down + small, tables[_FALL + t] * up
        values += (gap if gap > zero else zero) + log1p_unit(ahead if ahead < behind else behind)
        slope = one / (one + behind)
        slopes += slope
        tables[_SLOPE + t] += slope
    return values, slopes


@njit(**INNER)
def _write_gradient(out, tables, factor):
    for t in range(out.size):
        out[t] = tables[t] + (factor * tables[_CHAIN + t]) * tables[_SLOPE + t]


@njit(**INNER)
def _any_against(y, tables, level, share):
    """Return the same for any targets and any range of log-odds; the positive has weight share."""
    zero, one = tables.dtype.type(0), tables.dtype.type(1)
    values, slopes = zero, zero
    for t in range(y.size):
        value, slope = softplus_and_sigmoid(tables[_U + t] - level)
        absent = one - y[t] if y[t] >= zero else zero
        slope = absent * slope
        values += absent * value
        slopes += slope
        tables[_SLOPE + t] += share * slope
    return share * values, share * slopes


@njit(**INNER)
def _pick(values, index, picked):
    """Return the values at these indices, with zeros up to whole vector instructions."""
    whole = (index.size + 7) // 8 * 8
    for k in range(index.size, whole):
        picked[k] = 0
    for k in range(index.size):
        picked[k] = values[index[k]]
    return picked[:whole]


def pairs_loop(fill: Callable[..., Any], ordinary: float) -> Callable[..., float]:
    """Return a compiled loop of a loss and its label pairs.

    Args:
        fill: writes the tables of a chunk: the gradient of the loss, the log-odds u and du/dv,
            and exp(±u) if |u| of the first positive is below ``ordinary``.
        ordinary: see ``fill``.
    """

    @compiled(**JIT)
    def run(pointers, shape, zero, needs_grad, numbers, weight):
        """Return the loss and fill its gradient; ``weight`` is that of the pairs."""
        scores, targets, gradient = tensors_at(pointers, shape, zero)
        rows, size = shape
        index = array_at(pointers[3], size + 1, 0)
        levels = array_at(pointers[3] + 8 * (size + 1), 5 * size, zero)
        tables = array_at(pointers[3] + 8 * (6 * size + 1), _TABLES + 2 * CHUNK, zero)
        picked, shares = tables[_TABLES : _TABLES + CHUNK], tables[_TABLES + CHUNK :]
        hard = all_hard(array_at(pointers[1], rows * size, zero))
        entries, known_rows = rows * size, rows
        if not hard:
            entries = known_rows = 0
            for b in range(rows):
                known = known_labels(targets[b])
                entries += known
                known_rows += 1 if known > 0 else 0
        n, scale = as_type(numbers, zero), as_type(1.0 / max(entries, 1), zero)
        reach, lowest = as_type(_REACH, zero), as_type(1 / _REACH, zero)
        factor = pair_factor(size, rows, weight)
        total, pairs = 0.0, 0.0
        for b in range(rows):
            row, truth, out = scores[b], targets[b], gradient[b]
            count = positives(truth, index)
            if not hard:
                factor = pair_factor(known_labels(truth), known_rows, weight)
            # Whether chunks may hold exp(u) of their labels, without the positives.
            exact, far, origin = count > 0 and (hard or all_hard(truth)), False, zero
            if not exact:  # a soft label is paired with itself, but that has no gradient
                for k in range(count):
                    share = float(truth[index[k]])
                    pairs -= factor * share * (1.0 - share) * math.log(2.0)
            # Every chunk needs all positives. Those of a long row are looked up first, in blocks of
            # their own, which start below 0.
            short, found, taken = size <= CHUNK, 0, 0
            blocks = 0 if short else (count + CHUNK - 1) // CHUNK
            for start in range(-CHUNK * blocks, size, CHUNK):
                stop, last = min(size, start + CHUNK), min(count, found + CHUNK)
                if start < 0:
                    some = index[found:last]
                    v, y = _pick(row, some, picked), _pick(truth, some, shares)
                else:
                    v, y = row[start:stop], truth[start:stop]
                value, highest = fill(v, y, tables, n, scale)
                if exact and found == 0:
                    origin = tables[_U + (index[0] if short else 0)]
                    far = not abs(origin) < ordinary
                if far:
                    highest = _recentre(tables, v.size, origin)
                for k in range(found, last):
                    t, own = index[k] if short else k - found, 5 * k
                    level, up = tables[_U + t], tables[_RISE + t]
                    # exp(u) below −87 counts as 0, which is right only for positives well above.
                    exact = exact and lowest < up < reach and (far or level > -_FARTHEST)
                    levels[own], levels[own + 1], levels[own + 2] = level, up, tables[_FALL + t]
                    levels[own + 3], levels[own + 4] = tables[_CHAIN + t], zero
                found = last
                if start < 0:
                    continue
                total += value
                inside = exact and highest < same_bits(reach)
                while taken < count and index[taken] < stop:
                    t = index[taken] - start
                    if inside:  # with u = −∞, a positive adds 0 to the sums and has slope 0
                        tables[_U + t], tables[_RISE + t] = _NOWHERE, zero
                        tables[_FALL + t] = np.inf
                    taken += 1
                for k in range(count):
                    level, up, down = levels[5 * k], levels[5 * k + 1], levels[5 * k + 2]
                    if inside:
                        values, slopes = _one_against(tables, v.size, level, up, down)
                    else:
                        share = truth[index[k]]
                        values, slopes = _any_against(y, tables, level, share)
                    pairs += factor * values
                    levels[5 * k + 4] += slopes
                if needs_grad:
                    _write_gradient(out[start:stop], tables, as_type(factor, zero))
            if needs_grad:
                for k in range(count):
                    push = as_type(factor, zero) * levels[5 * k + 4]
                    out[index[k]] -= push * levels[5 * k + 3]
        return total / max(entries, 1) + pairs

    return run


_pairs = pairs_loop(_fill_log_odds, -1.0)
_linked_pairs = pairs_loop(_fill_softplus, _ORDINARY)
