"""SPA, its link and the label pairs in one pass over the scores, row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.kernels.chebyshev import INTERVALS
from credibly.losses.fused.kernels.chunks import CHUNK, known_weights, tensors_at
from credibly.losses.fused.kernels.pairs import (
    copy_into,
    known_counts,
    known_labels,
    pair_factor,
    row_pairs,
    workspace,
)
from credibly.losses.fused.kernels.spa import sides
from credibly.losses.fused.kernels.spa_pairs_hard import hard_rows, hard_workspace
from credibly.types import Array
from credibly.vectormath import EXACT, JIT, exp_nonpositive, log1p_unit


@njit(**EXACT)
def _both_ways(x: float, zero: float, one: float) -> Any:
    """Return softplus(x), σ(x), log σ(x) and σ(−x)."""
    e = exp_nonpositive(-abs(x))
    r = one / (one + e)
    rest = log1p_unit(e)
    far = e * r
    if x < zero:
        return rest, far, x - rest, r
    return x + rest, r, -rest, far


@compiled(**JIT)
def _entries(
    v: Array,
    y: Array,
    g: Array,
    u: Array,
    rise: Array,
    pos: Any,
    neg: Any,
    offset: float,
    zero: float,
    one: float,
) -> Any:
    """Return the sum of SPA; write its slope to ``g``, log-odds to ``u`` and theirs to ``rise``."""
    total = zero
    for t in range(v.size):
        present, absent, counts = known_weights(y[t], one)
        score = v[t] if counts > zero else zero
        value_pos, sigmoid_pos, log_pos, rest_pos = _both_ways(pos[0] * score + pos[1], zero, one)
        value_neg, sigmoid_neg, log_neg, rest_neg = _both_ways(neg[0] * score + neg[1], zero, one)
        total += present * pos[2] * value_pos + absent * neg[2] * value_neg
        g[t] = present * pos[3] * sigmoid_pos + absent * neg[3] * sigmoid_neg
        u[t] = offset + (log_neg - log_pos)
        rise[t] = neg[0] * rest_neg - pos[0] * rest_pos
    return total


@compiled(**JIT)
def _add_chained(out: Array, g: Array, slopes: Array, rise: Array, factor: float) -> None:
    for t in range(out.size):
        out[t] = g[t] + factor * slopes[t] * rise[t]


@compiled(**JIT)
def spa_pairs(
    scores: Array,
    targets: Array,
    gradient: Array,
    needs_grad: bool,
    pos: Any,
    neg: Any,
    weight: float,
    tables: Any,
) -> float:
    """Return the mean of SPA over known entries + weight × mean of the pairs over known rows."""
    rows, labels = scores.shape
    kind = scores.dtype.type
    entries, known_rows = known_counts(targets)
    present, absent = sides(kind, pos, neg, max(entries, 1))
    ratio = neg[1] / neg[0] * pos[0] / pos[1]
    factor = pair_factor(labels, known_rows, weight)
    numbers = (present, absent, kind(math.log(ratio)), kind(ratio), kind(factor))
    most = tables[2] + tables[3] / labels if labels > 0 else 0.0
    left = np.zeros(rows, np.bool_)
    buffers, index = hard_workspace(scores)
    total, total_pairs = hard_rows(
        scores, targets, gradient, needs_grad, numbers, most, left, buffers, index
    )
    left_pairs = 0.0
    if left.any():
        arrays = workspace(labels, scores)
        v = np.zeros_like(arrays[0])
        more = (v, np.zeros_like(v), np.zeros_like(v))
        spaces = np.empty((4, INTERVALS, tables[0].shape[1]))
        for b in range(rows):
            if left[b]:
                # Rows that are left may have unknown labels, and with them a factor of their own.
                own = pair_factor(known_labels(targets[b]), known_rows, weight)
                row_numbers = (present, absent, numbers[2], numbers[3], kind(own))
                value, pairs = _any_row(
                    scores[b],
                    targets[b],
                    gradient[b],
                    needs_grad,
                    row_numbers,
                    arrays,
                    more,
                    tables,
                    spaces,
                )
                total += value
                left_pairs += pairs * own
    return total / max(entries, 1) + total_pairs * factor + left_pairs


@compiled(**JIT)
def _any_row(
    scores: Array,
    targets: Array,
    out: Array,
    needs_grad: bool,
    numbers: Any,
    arrays: Any,
    more: Any,
    tables: Any,
    spaces: Any,
) -> Any:
    """Return sums of SPA and of the pairs for a row of any targets and any score range."""
    present, absent, offset, _, factor = numbers
    y, u, absences, slopes, up, down, index, levels = arrays
    zero, one = y.dtype.type(0), y.dtype.type(1)
    v, g, rise = more
    copy_into(v, scores)
    copy_into(y, targets)
    total = 0.0
    for start in range(0, u.size, CHUNK):
        c = slice(start, min(u.size, start + CHUNK))
        total += _entries(v[c], y[c], g[c], u[c], rise[c], present, absent, offset, zero, one)
    pairs = row_pairs(y, u, absences, slopes, up, down, index, levels, scores.size, tables, spaces)
    if needs_grad:
        _add_chained(out, g, slopes, rise, factor)
    return total, pairs


@compiled(**JIT)
def spa_pairs_at(
    pointers: Any,
    shape: Any,
    zero: float,
    needs_grad: bool,
    pos: Any,
    neg: Any,
    weight: float,
    tables: Any,
) -> float:
    """Run ``spa_pairs`` on tensors; see ``tensors_at``."""
    scores, targets, gradient = tensors_at(pointers, shape, zero)
    return spa_pairs(scores, targets, gradient, needs_grad, pos, neg, weight, tables)
