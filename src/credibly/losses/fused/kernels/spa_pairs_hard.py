"""SPA, its link and the label pairs of a row whose targets are 0 or 1, in cache.

Chunk by chunk the row's log-odds u, exp(u) and exp(−u) are put down once; a pair then costs no
exponential. exp(u) needs none either: by the link it is a quotient of two sigmoids that the loss
itself has computed. In the tables a present label stands as u = −∞, so that in the loop over
positives it neither adds nor gets anything, and no weights are needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from credibly.losses.fused.kernels.chunks import CHUNK, all_hard, borrowed
from credibly.losses.fused.kernels.pairs import positives
from credibly.types import Array
from credibly.vectormath import EXACT, JIT, exp_nonpositive, float_bits, log1p_unit

# Tables stand one behind the other in one array: told apart as arrays of their own, the loops
# would have to prove at run time that none overlap, and would not become vector instructions.
_U, _RISE, _FALL, _CHAIN, _SLOPE = (k * CHUNK for k in range(1, 6))
_NOWHERE = -1e30
_ORDINARY, _FARTHEST = 24.0, 69.0
_REACH = math.exp(40.0)
"""exp(u) of every label stays below this and that of positives above its inverse; then no product
of the two overflows float32, and what underflows is 0 as it should be."""


@njit(**EXACT)
def _logs(x: float, e: float, zero: float) -> Any:
    """softplus(x) and log σ(x) from ``e`` = exp(−|x|)."""
    rest = log1p_unit(e)
    above = x if x > zero else zero
    return above + rest, (x - above) - rest


@njit(**JIT)
def _fill(v: Array, y: Array, tables: Any, numbers: Any) -> Any:
    """SPA's value, its slope and the tables; with it the largest exp(u), as bits."""
    pos, neg, offset, ratio, _ = numbers
    zero, one = v.dtype.type(0), v.dtype.type(1)
    total, highest = zero, float_bits(zero)
    for t in range(v.size):
        x_pos, x_neg = pos[0] * v[t] + pos[1], neg[0] * v[t] + neg[1]
        e_pos, e_neg = exp_nonpositive(-abs(x_pos)), exp_nonpositive(-abs(x_neg))
        value_pos, log_pos = _logs(x_pos, e_pos, zero)
        value_neg, log_neg = _logs(x_neg, e_neg, zero)
        near_pos, near_neg = one / (one + e_pos), one / (one + e_neg)
        far_pos, far_neg = e_pos * near_pos, e_neg * near_neg
        sigmoid_pos = far_pos if x_pos < zero else near_pos
        sigmoid_neg = far_neg if x_neg < zero else near_neg
        rest_pos = near_pos if x_pos < zero else far_pos
        rest_neg = near_neg if x_neg < zero else far_neg
        total += pos[2] * value_pos if y[t] > zero else neg[2] * value_neg
        rise = ratio * sigmoid_neg / sigmoid_pos
        highest = max(highest, float_bits(rise))
        tables[t] = pos[3] * sigmoid_pos if y[t] > zero else neg[3] * sigmoid_neg
        tables[_U + t] = offset + (log_neg - log_pos)
        tables[_RISE + t] = rise
        tables[_FALL + t] = sigmoid_pos / (ratio * sigmoid_neg)
        tables[_CHAIN + t] = neg[0] * rest_neg - pos[0] * rest_pos
        tables[_SLOPE + t] = zero
    return total, highest


@njit(**JIT)
def _one_against(tables: Any, size: int, level: float, up: float, down: float) -> Any:
    """One positive against the chunk: its sum, and its slope."""
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


@njit(**JIT)
def _hand_over(out: Array, tables: Any, factor: float) -> None:
    for t in range(out.size):
        out[t] = tables[t] + factor * tables[_SLOPE + t] * tables[_CHAIN + t]


@njit(**JIT)
def _look_up(scores: Array, index: Array, picked: Array, few: Array, numbers: Any) -> None:
    """Tables of the positives of a long row, before its chunks have any."""
    whole = (index.size + 7) // 8 * 8  # rounded up, so that no step is a single one
    v = picked[:whole]
    v[:] = 0
    for k in range(index.size):
        v[k] = scores[index[k]]
    _fill(v, v, few, numbers)


@njit(**JIT)
def _take_out(tables: Any, few: Array, k: int, t: int, known: bool) -> None:
    """Take positive ``k`` at place ``t`` out of the tables, into its own unless it is known."""
    if not known:
        few[_U + k], few[_RISE + k], few[_FALL + k] = (
            tables[_U + t],
            tables[_RISE + t],
            tables[_FALL + t],
        )
        few[_CHAIN + k], few[_SLOPE + k] = tables[_CHAIN + t], 0
    tables[_U + t], tables[_RISE + t], tables[_FALL + t] = _NOWHERE, 0, np.inf


@njit(**JIT)
def _centred(numbers: Any, score: Any, tables_kind: Any) -> Any:
    """Return the numbers with exp(u) counted from the log-odds at ``score``, where that is far out.

    Pairs only see differences of log-odds, so the factor cancels; without it a row whose scores
    are all far below 0 would not fit.
    """
    pos, neg, offset, ratio, factor = numbers
    x_pos, x_neg = float(pos[0] * score + pos[1]), float(neg[0] * score + neg[1])
    if max(abs(x_pos), abs(x_neg)) < _ORDINARY:
        return numbers
    log_pos = min(x_pos, 0.0) - math.log1p(math.exp(-abs(x_pos)))
    log_neg = min(x_neg, 0.0) - math.log1p(math.exp(-abs(x_neg)))
    level = min(max(float(offset) + log_neg - log_pos, -_FARTHEST), _FARTHEST)
    shift = tables_kind(float(ratio) * math.exp(-level))
    return pos, neg, offset, shift, factor


@njit(**JIT)
def _row(
    scores: Array,
    targets: Array,
    out: Array,
    needs_grad: bool,
    index: Array,
    numbers: Any,
    buffers: Any,
) -> Any:
    """Whether the row fits, then its sums of SPA and of the pairs; ``index`` lists positives."""
    tables, few, picked = buffers
    if index.size > 0:
        numbers = _centred(numbers, scores[index[0]], scores.dtype.type)
    factor, limit = numbers[4], float_bits(scores.dtype.type(_REACH))
    size, count = scores.size, index.size
    if size > CHUNK:
        _look_up(scores, index, picked, few, numbers)
    total, pairs, first = 0.0, 0.0, 0
    for start in range(0, size, CHUNK):
        stop = min(size, start + CHUNK)
        value, highest = _fill(scores[start:stop], targets[start:stop], tables, numbers)
        fits = highest < limit
        total += value
        while first < count and index[first] < stop:
            _take_out(tables, few, first, index[first] - start, size > CHUNK)
            first += 1
        for k in range(count):
            level, up, down = few[_U + k], few[_RISE + k], few[_FALL + k]
            # Log-odds near −87 were rounded to −∞; only to positives well above is that nothing.
            fits = fits and 1 / _REACH < up < _REACH and level > -_FARTHEST
            values, slopes = _one_against(tables, stop - start, level, up, down)
            pairs += values
            few[_SLOPE + k] += slopes
        if not fits:
            return False, 0.0, 0.0
        if needs_grad:
            _hand_over(out[start:stop], tables, factor)
    if needs_grad:
        for k in range(count):
            out[index[k]] -= factor * few[_SLOPE + k] * few[_CHAIN + k]
    return True, total, pairs


@njit(**JIT)
def hard_workspace(scores: Array) -> Any:
    """What ``hard_rows`` works in: tables of a chunk and of positives, scores of positives."""
    return np.empty(13 * CHUNK, scores.dtype), np.empty(scores.shape[1] + 1, np.int64)


@njit(**JIT)
def hard_rows(
    scores: Array,
    targets: Array,
    gradient: Array,
    needs_grad: bool,
    numbers: Any,
    most: float,
    left: Any,
    buffers: Any,
    index: Array,
) -> Any:
    """Sums of SPA and of the pairs over the rows that have this form; ``left`` marks the others.

    Those have a target that is neither 0 nor 1, ``most`` positives or more, or wild scores.
    """
    buffers, index = borrowed(buffers), borrowed(index)
    parts = buffers[: 6 * CHUNK], buffers[6 * CHUNK : 12 * CHUNK], buffers[12 * CHUNK :]
    total, total_pairs = 0.0, 0.0
    for b in range(scores.shape[0]):
        v, y = scores[b], targets[b]
        fits = all_hard(y)
        if fits:
            count = positives(y, index)
            fits = count < most
            if fits:
                fits, value, pairs = _row(
                    v, y, gradient[b], needs_grad, index[:count], numbers, parts
                )
                total += value
                total_pairs += pairs
        left[b] = not fits
    return total, total_pairs
