"""Value and gradient of SPA in one pass. BCE is SPA with scales and slopes 1 and shifts 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.kernels.chunks import CHUNK, all_hard, known_weights, rescale, tensors_at
from credibly.types import Array
from credibly.vectormath import EXACT, INNER, JIT, THIN, exp_nonpositive, log1p_unit


@njit(**EXACT)
def softplus_and_sigmoid(x: float, zero: float, one: float) -> Any:
    """Return softplus(x) and its derivative."""
    e = exp_nonpositive(-abs(x))
    r = one / (one + e)
    return (x if x > zero else zero) + log1p_unit(e), e * r if x < zero else r


@njit(**INNER)
def _hard(v: Array, y: Array, g: Array, pos: Any, neg: Any, zero: float, one: float) -> float:
    """Return the sum for targets 0 or 1, where each entry needs only one partial loss."""
    total = zero
    for i in range(v.size):
        present = y[i] > zero
        slope = pos[0] if present else neg[0]
        offset = pos[1] if present else neg[1]
        weight = pos[2] if present else neg[2]
        factor = pos[3] if present else neg[3]
        value, sigmoid = softplus_and_sigmoid(slope * v[i] + offset, zero, one)
        total += weight * value
        g[i] = factor * sigmoid
    return total


@njit(**INNER)
def _soft(v: Any, y: Any, g: Any, pos: Any, neg: Any, zero: Any, one: Any) -> Any:
    """Return the sum and the number of known entries for any targets; fill ``g``."""
    total, known = zero, zero
    for i in range(v.size):
        present, absent, counts = known_weights(y[i], one)
        score = v[i] if counts > zero else zero
        value_pos, sigmoid_pos = softplus_and_sigmoid(pos[0] * score + pos[1], zero, one)
        value_neg, sigmoid_neg = softplus_and_sigmoid(neg[0] * score + neg[1], zero, one)
        total += present * pos[2] * value_pos + absent * neg[2] * value_neg
        known += counts
        g[i] = present * pos[3] * sigmoid_pos + absent * neg[3] * sigmoid_neg
    return total, known


@njit(**THIN)
def sides(kind: Any, pos: Any, neg: Any, count: float) -> Any:
    """Return (slope, offset, weight, gradient factor) of each partial loss, as ``kind``.

    ``pos`` and ``neg`` are (scale, slope, shift); a loss is softplus(slope · v + offset) · weight.
    """
    present = (-pos[1], pos[1] * pos[2], 1 / pos[0], -pos[1] / pos[0] / count)
    absent = (neg[1], -neg[1] * neg[2], 1 / neg[0], neg[1] / neg[0] / count)
    return (
        (kind(present[0]), kind(present[1]), kind(present[2]), kind(present[3])),
        (kind(absent[0]), kind(absent[1]), kind(absent[2]), kind(absent[3])),
    )


@njit(**THIN)
def spa(
    scores: Array, targets: Array, gradient: Array, needs_grad: bool, pos: Any, neg: Any
) -> float:
    """Return the mean over known entries; fill ``gradient`` if ``needs_grad``. Arrays are flat."""
    kind = scores.dtype.type
    size = scores.size
    present, absent = sides(kind, pos, neg, max(size, 1))
    scratch = np.empty(0 if needs_grad else CHUNK, scores.dtype)
    total, known = 0.0, 0.0
    for start in range(0, size, CHUNK):
        stop = min(size, start + CHUNK)
        v, y = scores[start:stop], targets[start:stop]
        g = gradient[start:stop] if needs_grad else scratch[: stop - start]
        if all_hard(y):
            total += _hard(v, y, g, present, absent, kind(0), kind(1))
            known += stop - start
        else:
            value, count = _soft(v, y, g, present, absent, kind(0), kind(1))
            total += value
            known += count
    if needs_grad and 0 < known < size:
        rescale(gradient, size / known)
    return total / max(known, 1.0)


@compiled(**JIT)
def spa_at(pointers: Any, shape: Any, zero: float, needs_grad: bool, pos: Any, neg: Any) -> float:
    """Run ``spa`` on tensors; see ``tensors_at``."""
    scores, targets, gradient = tensors_at(pointers, shape, zero)
    return spa(scores, targets, gradient, needs_grad, pos, neg)
