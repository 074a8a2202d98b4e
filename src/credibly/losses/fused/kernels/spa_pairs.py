"""SPA, its link and the label pairs in one pass over the scores, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.kernels.chebyshev import INTERVALS
from credibly.losses.fused.kernels.chunks import CHUNK, known_weights, tensors_at
from credibly.losses.fused.kernels.pairs import (
    copy_into,
    known_labels,
    pair_factor,
    row_pairs,
    workspace,
)
from credibly.losses.fused.kernels.spa_pairs_hard import (
    hard_rows_at,
    rows_left_at,
    spa_pairs_numbers,
    workspace_bytes,
)
from credibly.types import Array
from credibly.vectormath import EXACT, INNER, JIT, THIN, exp_nonpositive, log1p_unit


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


@njit(**INNER)
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


@njit(**INNER)
def _add_chained(out: Array, g: Array, slopes: Array, rise: Array, factor: float) -> None:
    for t in range(out.size):
        out[t] = g[t] + factor * slopes[t] * rise[t]


@njit(**THIN)
def _any_row(
    scores: Array,
    targets: Array,
    out: Array,
    needs_grad: bool,
    numbers: Any,
    factor: float,
    arrays: Any,
    more: Any,
    tables: Any,
    spaces: Any,
) -> Any:
    """Return sums of SPA and of the pairs for a row of any targets and any score range."""
    present, absent, offset, _ = numbers
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
def left_rows_at(
    pointers: Any,
    work: int,
    shape: Any,
    zero: float,
    needs_grad: bool,
    pos: Any,
    neg: Any,
    weight: float,
    tables: Any,
    counts: Any,
) -> float:
    """Return the share of the rows that ``hard_rows_at`` left out.

    ``counts`` are the numbers of known entries and of rows that have one; ``tables`` are those of
    ``chebyshev``, the others see ``hard_rows_at``.
    """
    scores, targets, gradient = tensors_at(pointers, shape, zero)
    rows, labels = shape
    entries, known_rows = counts
    left = rows_left_at(work, rows, labels)
    kind = scores.dtype.type
    numbers = spa_pairs_numbers(kind, pos, neg, entries)
    arrays = workspace(labels, scores)
    v = np.zeros_like(arrays[0])
    more = (v, np.zeros_like(v), np.zeros_like(v))
    spaces = np.empty((4, INTERVALS, tables[0].shape[1]))
    total, total_pairs = 0.0, 0.0
    for b in range(rows):
        if left[b]:
            # These rows may have unknown labels, and with them a factor of their own.
            factor = pair_factor(known_labels(targets[b]), known_rows, weight)
            value, pairs = _any_row(
                scores[b],
                targets[b],
                gradient[b],
                needs_grad,
                numbers,
                kind(factor),
                arrays,
                more,
                tables,
                spaces,
            )
            total += value
            total_pairs += pairs * factor
    return total / max(entries, 1) + total_pairs


def spa_pairs(
    pointers: tuple[int, int, int],
    shape: Any,
    zero: Any,
    needs_grad: bool,
    pos: Any,
    neg: Any,
    weight: float,
    tables: Any,
) -> float:
    """Return the mean of SPA over known entries + weight × mean of the pairs over known rows.

    Rows of ordinary targets and scores have a kernel of their own, so that the other, which takes
    longer to compile, is compiled only where it is needed. See ``tensors_at``.
    """
    rows, labels = shape
    work = torch.empty(workspace_bytes(rows, labels), dtype=torch.uint8)
    address = work.data_ptr()
    most = tables[2] + tables[3] / labels if labels else 0.0
    value, left, *counts = hard_rows_at(
        pointers, address, shape, zero, needs_grad, pos, neg, weight, most
    )
    if left:
        value += left_rows_at(
            pointers, address, shape, zero, needs_grad, pos, neg, weight, tables, tuple(counts)
        )
    return value
