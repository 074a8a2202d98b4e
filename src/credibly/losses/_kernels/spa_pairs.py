"""SPA, its link and the label pairs, row by row in one pass over the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from credibly._vectormath import EXACT, JIT, exp_nonpositive, log1p_unit
from credibly.losses._kernels.chebyshev import INTERVALS
from credibly.losses._kernels.chunks import CHUNK, known_weights
from credibly.losses._kernels.pairs import (
    copy_into,
    known_counts,
    pair_factor,
    row_pairs,
    workspace,
)
from credibly.losses._kernels.spa import sides


@njit(**EXACT)
def _both_ways(x: Any, zero: Any, one: Any) -> Any:
    """softplus(x), σ(x), log σ(x) and σ(−x)."""
    e = exp_nonpositive(-abs(x))
    r = one / (one + e)
    rest = log1p_unit(e)
    far = e * r
    if x < zero:
        return rest, far, x - rest, r
    return x + rest, r, -rest, far


@njit(**JIT)
def _entries(
    v: Any, y: Any, g: Any, u: Any, rise: Any, pos: Any, neg: Any, offset: Any, zero: Any, one: Any
) -> Any:
    """SPA's value; its slope into ``g``, log-odds into ``u`` and their slope into ``rise``."""
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


@njit(**JIT)
def _add_chained(out: Any, g: Any, slopes: Any, rise: Any, factor: Any) -> None:
    for t in range(out.size):
        out[t] = g[t] + factor * slopes[t] * rise[t]


@njit(**JIT)
def spa_pairs(
    scores: Any,
    targets: Any,
    gradient: Any,
    wanted: bool,
    pos: Any,
    neg: Any,
    weight: float,
    tables: Any,
) -> float:
    """Mean of SPA over known entries + weight × mean of the pairs over rows with a known label."""
    rows, labels = scores.shape
    kind = scores.dtype.type
    zero, one = kind(0), kind(1)
    entries, known_rows = known_counts(targets)
    present, absent = sides(kind, pos, neg, max(entries, 1))
    offset = kind(math.log(neg[1] / neg[0]) - math.log(pos[1] / pos[0]))
    factor = pair_factor(labels, known_rows, weight)
    y, u, absences, slopes, up, down, index, levels = workspace(labels, scores)
    spaces = np.empty((4, INTERVALS, tables[0].shape[1]))
    v, g, rise = np.zeros_like(u), np.zeros_like(u), np.zeros_like(u)
    total, total_pairs = 0.0, 0.0
    for b in range(rows):
        copy_into(v, scores[b])
        copy_into(y, targets[b])
        if u.size <= CHUNK:
            total += _entries(v, y, g, u, rise, present, absent, offset, zero, one)
        else:
            for start in range(0, u.size, CHUNK):
                c = slice(start, min(u.size, start + CHUNK))
                total += _entries(
                    v[c], y[c], g[c], u[c], rise[c], present, absent, offset, zero, one
                )
        total_pairs += row_pairs(
            y, u, absences, slopes, up, down, index, levels, labels, tables, spaces
        )
        if wanted:
            _add_chained(gradient[b], g, slopes, rise, kind(factor))
    return total / max(entries, 1) + total_pairs * factor
