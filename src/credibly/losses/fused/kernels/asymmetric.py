"""Asymmetric and focal loss, value and gradient in one pass.

Both partial losses are −t^γ log(1 − t) of one quantity: with x = −v for a present label and x = v
for an absent one, t = σ(x), less the margin if absent. So 1 − t = σ(−x) + margin, and

    value     t^γ L,   L = −log(1 − t)
    d/dx      (γ t^(γ−1) L + t^γ / (1 − t)) σ(x) σ(−x)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from credibly.compiled import compiled
from credibly.losses.fused.kernels.chunks import CHUNK, all_hard, known_weights, rescale, tensors_at
from credibly.types import Array
from credibly.vectormath import EXACT, INNER, JIT, THIN, exp_nonpositive, log_positive

HIGHEST_WHOLE = 4
"""Powers with whole exponents up to this are a polynomial with one coefficient 1."""


@njit(**EXACT)
def _parts(
    x: float, margin: float, zero: float, half: float, one: float, tiny: float, far: float
) -> Any:
    """Return σ(x), σ(−x), t, L and σ(−x)/(1 − t)."""
    e = exp_nonpositive(-abs(x))
    r = one / (one + e)
    s = e * r if x < zero else r
    c = r if x < zero else e * r
    t = s - margin
    t = zero if t < zero else t
    rest = c + margin
    rest = tiny if rest < tiny else rest
    inverse = one / rest
    # 1 − t was rounded; where it is near 1 the lost part is most of log(1 − t).
    lost = (t - (one - rest)) * inverse if rest > half else zero
    loss = lost - log_positive(rest)
    loss = x if x > far else loss
    return s, c, t, loss, c * inverse if margin > zero else one


@njit(**EXACT)
def _lower(t: float, d: tuple[float, ...]) -> Any:
    """Return t^(γ−1) from the coefficients of the polynomial."""
    return d[0] + t * (d[1] + t * (d[2] + t * d[3]))


@njit(**EXACT)
def _general_powers(t: float, gamma: float, follow: Any, zero: float, one: float) -> Any:
    """Return t^γ and γ t^(γ−1) for any γ ≥ 0; the second is 0 where weights are constants."""
    above = one if t > zero else zero
    inside = t if t > zero else one
    weight = above * exp_nonpositive(gamma * log_positive(inside))
    return weight + (t - t), follow * gamma * weight / inside


@njit(**INNER)
def _hard(v: Array, y: Array, g: Array, pos: Any, neg: Any, numbers: Any) -> float:
    """Return the sum for targets 0 or 1 and whole exponents; fill ``g``."""
    zero, half, one, tiny, far, far_neg, margin, scale = numbers
    total = zero
    for i in range(v.size):
        absent = not y[i] > zero
        x = v[i] if absent else -v[i]
        cut = margin if absent else zero
        limit = far_neg if absent else far
        s, c, t, loss, ratio = _parts(x, cut, zero, half, one, tiny, limit)
        lower = _lower(t, neg) if absent else _lower(t, pos)
        constant = neg[4] if absent else pos[4]
        weight = (constant if t > zero else zero) + t * lower
        slope = lower * (neg[5] if absent else pos[5])
        total += weight * loss
        g[i] = (scale if absent else -scale) * s * (slope * c * loss + weight * ratio)
    return total


@njit(**INNER)
def _soft(v: Array, y: Array, g: Array, gammas: Any, follow: Any, numbers: Any) -> Any:
    """Return the sum and the number of known entries for any targets and exponents; fill ``g``."""
    zero, half, one, tiny, far, far_neg, margin, scale = numbers
    gamma_pos, gamma_neg = gammas
    total, known = zero, zero
    for i in range(v.size):
        present, absent, counts = known_weights(y[i], one)
        x = v[i] if counts > zero else zero
        s, c, t, loss, ratio = _parts(x, margin, zero, half, one, tiny, far_neg)
        weight, slope = _general_powers(t, gamma_neg, follow, zero, one)
        total += absent * weight * loss
        gradient = absent * s * (slope * c * loss + weight * ratio)
        s, c, t, loss, ratio = _parts(-x, zero, zero, half, one, tiny, far)
        weight, slope = _general_powers(t, gamma_pos, follow, zero, one)
        total += present * weight * loss
        gradient -= present * s * (slope * c * loss + weight * ratio)
        known += counts
        g[i] = scale * gradient
    return total, known


@njit(**THIN)
def _polynomial(kind: Any, gamma: float, follow: bool) -> Any:
    """Return the coefficients of t^(γ−1), 1 if γ is 0, and γ, or 0 if weights are constants."""
    return (
        kind(gamma == 1),
        kind(gamma == 2),
        kind(gamma == 3),
        kind(gamma == 4),
        kind(gamma == 0),
        kind(gamma if follow else 0.0),
    )


@njit(**THIN)
def _whole(gamma: float) -> bool:
    return gamma <= HIGHEST_WHOLE and gamma == np.floor(gamma)


@njit(**THIN)
def asymmetric(
    scores: Array,
    targets: Array,
    gradient: Array,
    needs_grad: bool,
    gamma_pos: float,
    gamma_neg: float,
    margin: float,
    follow: bool,
) -> float:
    """Return the mean over known entries; fill ``gradient`` if ``needs_grad``. Arrays are flat."""
    kind = scores.dtype.type
    size = scores.size
    tiny, far = kind(1e-37), kind(80)
    scale = kind(1 / max(size, 1))
    far_neg = kind(np.inf) if margin > 0 else far
    numbers = (kind(0), kind(0.5), kind(1), tiny, far, far_neg, kind(margin), scale)
    exponents = (kind(gamma_pos), kind(gamma_neg))
    pos, neg = _polynomial(kind, gamma_pos, follow), _polynomial(kind, gamma_neg, follow)
    whole = _whole(gamma_pos) and _whole(gamma_neg)
    scratch = np.empty(0 if needs_grad else CHUNK, scores.dtype)
    total, known = 0.0, 0.0
    for start in range(0, size, CHUNK):
        stop = min(size, start + CHUNK)
        v, y = scores[start:stop], targets[start:stop]
        g = gradient[start:stop] if needs_grad else scratch[: stop - start]
        if whole and all_hard(y):
            total += _hard(v, y, g, pos, neg, numbers)
            known += stop - start
        else:
            value, count = _soft(v, y, g, exponents, kind(1 if follow else 0), numbers)
            total += value
            known += count
    if needs_grad and 0 < known < size:
        rescale(gradient, size / known)
    return total / max(known, 1.0)


@compiled(**JIT)
def asymmetric_at(
    pointers: Any,
    shape: Any,
    zero: float,
    needs_grad: bool,
    gamma_pos: float,
    gamma_neg: float,
    margin: float,
    follow: bool,
) -> float:
    """Run ``asymmetric`` on tensors; see ``tensors_at``."""
    scores, targets, gradient = tensors_at(pointers, shape, zero)
    return asymmetric(scores, targets, gradient, needs_grad, gamma_pos, gamma_neg, margin, follow)
