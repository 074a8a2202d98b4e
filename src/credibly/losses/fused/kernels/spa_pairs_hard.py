"""SPA, its link and the label pairs of a row whose targets are 0 or 1, chunk by chunk in cache.

The log-odds u of a chunk, exp(u) and exp(−u) are stored once in tables; a pair then needs no
exponential. exp(u) needs none either: by the link it is a quotient of two sigmoids that the loss
has computed. The tables hold u = −∞ for a present label, so the loop over positives needs no
weights: such a label adds 0 to the sum and gets a slope of 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.kernels.chunks import CHUNK, all_hard, array_at, tensors_at
from credibly.losses.fused.kernels.pairs import known_labels, pair_factor, positives
from credibly.losses.fused.kernels.spa import sides
from credibly.types import Array
from credibly.vectormath import EXACT, INNER, JIT, THIN, exp_nonpositive, float_bits, log1p_unit

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


@njit(**EXACT)
def _logs(x: Any, e: Any, zero: Any) -> Any:
    """Return softplus(x) and log σ(x) from ``e`` = exp(−|x|)."""
    rest = log1p_unit(e)
    above = x if x > zero else zero
    return above + rest, (x - above) - rest


@njit(**INNER)
def _fill(v: Any, y: Any, tables: Any, numbers: Any) -> Any:
    """Fill the tables; return the sum of SPA and the largest exp(u), as bits."""
    pos, neg, offset, ratio = numbers
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


@njit(**INNER)
def _one_against(tables: Any, size: int, level: Any, up: Any, down: Any) -> Any:
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
def _write_gradient(out: Any, tables: Any, factor: Any) -> None:
    for t in range(out.size):
        out[t] = tables[t] + factor * tables[_SLOPE + t] * tables[_CHAIN + t]


@njit(**THIN)
def _look_up(scores: Any, index: Any, picked: Any, few: Any, numbers: Any) -> None:
    """Fill the tables of the positives of a long row, which all of its chunks need."""
    whole = (index.size + 7) // 8 * 8  # rounded up, so that no step is a single one
    v = picked[:whole]
    for k in range(whole):
        v[k] = 0
    for k in range(index.size):
        v[k] = scores[index[k]]
    _fill(v, v, few, numbers)


@njit(**THIN)
def _take_out(tables: Any, few: Any, k: int, t: int, known: bool) -> None:
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
def _centre(numbers: Any, score: Any) -> Any:
    """Return whether exp(u) must be counted from the log-odds at ``score``, and these log-odds.

    Pairs only see differences of log-odds, so the origin cancels. Without it rows whose scores are
    all far below 0 would not fit, as exp(u) underflows.
    """
    pos, neg, offset, _ = numbers
    x_pos, x_neg = float(pos[0] * score + pos[1]), float(neg[0] * score + neg[1])
    if max(abs(x_pos), abs(x_neg)) < _ORDINARY:
        return False, 0.0
    log_pos = min(x_pos, 0.0) - math.log1p(math.exp(-abs(x_pos)))
    log_neg = min(x_neg, 0.0) - math.log1p(math.exp(-abs(x_neg)))
    return True, float(offset) + log_neg - log_pos


@njit(**INNER)
def _recentre(tables: Any, size: int, origin: Any) -> Any:
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


@njit(**THIN)
def _row(
    scores: Array,
    targets: Array,
    out: Array,
    needs_grad: bool,
    index: Array,
    numbers: Any,
    factor: float,
    buffers: Any,
) -> Any:
    """Return whether the row fits, and its sums of SPA and of the pairs.

    ``index`` lists the positives of the row.
    """
    tables, few, picked = buffers
    kind = scores.dtype.type
    far, origin = False, 0.0
    if index.size > 0:
        far, origin = _centre(numbers, scores[index[0]])
    limit = float_bits(kind(_REACH))
    size, count = scores.size, index.size
    if size > CHUNK:
        _look_up(scores, index, picked, few, numbers)
        if far:
            _recentre(few, count, kind(origin))
    total, pairs, first = 0.0, 0.0, 0
    for start in range(0, size, CHUNK):
        stop = min(size, start + CHUNK)
        value, highest = _fill(scores[start:stop], targets[start:stop], tables, numbers)
        if far:
            highest = _recentre(tables, stop - start, kind(origin))
        fits = highest < limit
        total += value
        while first < count and index[first] < stop:
            _take_out(tables, few, first, index[first] - start, size > CHUNK)
            first += 1
        for k in range(count):
            level, up, down = few[_U + k], few[_RISE + k], few[_FALL + k]
            # exp(u) below −87 was rounded to 0, which is right only for positives well above.
            fits = fits and 1 / _REACH < up < _REACH and (far or level > -_FARTHEST)
            if not fits:
                return False, 0.0, 0.0
            values, slopes = _one_against(tables, stop - start, level, up, down)
            pairs += values
            few[_SLOPE + k] += slopes
        if not fits:
            return False, 0.0, 0.0
        if needs_grad:
            _write_gradient(out[start:stop], tables, factor)
    if needs_grad:
        for k in range(count):
            out[index[k]] -= factor * few[_SLOPE + k] * few[_CHAIN + k]
    return True, total, pairs


def workspace_bytes(rows: int, labels: int) -> int:
    """Return how much memory ``hard_rows_at`` works in: indices, tables, and a mark per row."""
    return 8 * (labels + 1) + 8 * _TABLES + rows


@njit(**THIN)
def _workspace(address: int, rows: int, labels: int, zero: float) -> Any:
    tables = address + 8 * (labels + 1)
    return (
        array_at(address, labels + 1, np.int64(0)),
        array_at(tables, _TABLES, zero),
        rows_left_at(address, rows, labels),
    )


@njit(**THIN)
def rows_left_at(address: int, rows: int, labels: int) -> Any:
    """Return the marks of the rows that ``hard_rows_at`` left out, in its work space."""
    return array_at(address + 8 * (labels + 1) + 8 * _TABLES, rows, np.int8(0))


@njit(**THIN)
def _known(targets: Array, left: Array) -> Any:
    """Return how many entries are known and how many rows have one.

    Rows with a target that is neither 0 nor 1 are marked in ``left``.
    """
    entries, rows = 0, 0
    for b in range(targets.shape[0]):
        y = targets[b]
        hard = all_hard(y)
        known = y.size if hard else known_labels(y)
        left[b] = 0 if hard else 1
        entries += known
        rows += 1 if known > 0 else 0
    return entries, rows


@compiled(**JIT)
def hard_rows_at(
    pointers: Any,
    work: int,
    shape: Any,
    zero: float,
    needs_grad: bool,
    pos: Any,
    neg: Any,
    weight: float,
    most: float,
) -> Any:
    """Compute the rows of this form; mark the others in the work space.

    Other rows have a target that is neither 0 nor 1, at least ``most`` positives, or log-odds too
    far apart.

    Args:
        pointers, shape, zero: see ``tensors_at``.
        work: address of as many bytes as ``workspace_bytes`` says.
        needs_grad: whether to fill the gradient.
        pos, neg: (scale, slope, shift) of the partial losses.
        weight: of the pairs.
        most: number of positives from which on another form is faster.

    Returns:
        The share of these rows in the loss, how many rows are left, and the numbers of known
        entries and of rows that have one, which all rows need.
    """
    scores, targets, gradient = tensors_at(pointers, shape, zero)
    rows, labels = shape
    kind = scores.dtype.type
    index, buffers, left = _workspace(work, rows, labels, zero)
    parts = buffers[: 6 * CHUNK], buffers[6 * CHUNK : 12 * CHUNK], buffers[12 * CHUNK :]
    entries, known_rows = _known(targets, left)
    numbers = spa_pairs_numbers(kind, pos, neg, entries)
    factor = pair_factor(labels, known_rows, weight)
    total, total_pairs, num_left = 0.0, 0.0, 0
    for b in range(rows):
        fits = left[b] == 0
        if fits:
            count = positives(targets[b], index)
            fits = count < most
            if fits:
                fits, value, pairs = _row(
                    scores[b],
                    targets[b],
                    gradient[b],
                    needs_grad,
                    index[:count],
                    numbers,
                    kind(factor),
                    parts,
                )
                total += value
                total_pairs += pairs
        if not fits:
            left[b] = 1
            num_left += 1
    value = total / max(entries, 1) + total_pairs * factor
    return value, num_left, entries, known_rows


@njit(**THIN)
def spa_pairs_numbers(kind: Any, pos: Any, neg: Any, entries: int) -> Any:
    """Return the numbers of the two partial losses, and the offset of the log-odds and its exp."""
    present, absent = sides(kind, pos, neg, max(entries, 1))
    ratio = neg[1] / neg[0] * pos[0] / pos[1]
    return present, absent, kind(math.log(ratio)), kind(ratio)
