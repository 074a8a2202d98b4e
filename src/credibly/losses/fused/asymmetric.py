"""The scalar functions of asymmetric and focal loss.

Both partial losses are −t^γ log(1 − t) of one quantity: with x = −v for a present label and x = v
for an absent one, t = σ(x), less the margin if absent. So 1 − t = σ(−x) + margin, and

    value     t^γ L,   L = −log(1 − t)
    d/dx      (γ t^(γ−1) L + t^γ / (1 − t)) σ(x) σ(−x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import njit

from credibly.losses.fused.entries import entry_loop
from credibly.losses.fused.memory import as_type
from credibly.vectormath import EXACT, exp_nonpositive, log_positive

_HIGHEST_WHOLE = 4


def asymmetric_loop(
    gamma_pos: float, gamma_neg: float, margin: float, follow: bool
) -> tuple[Callable[..., float], tuple[float, ...]]:
    """Return the loop for these exponents, and its numbers.

    Whole exponents up to 4 are a polynomial with one coefficient 1. ``follow`` says whether the
    weights t^γ are followed by the gradient; they are constants otherwise.
    """
    gammas = (gamma_pos, gamma_neg)
    if all(gamma <= _HIGHEST_WHOLE and gamma == math.floor(gamma) for gamma in gammas):
        return _whole_loop, (
            *_polynomial(gamma_pos, follow),
            *_polynomial(gamma_neg, follow),
            margin,
        )
    return _general_loop, (gamma_pos, gamma_neg, margin, float(follow))


def _polynomial(gamma: float, follow: bool) -> tuple[float, ...]:
    """Return the coefficients of t^(γ−1), 1 if γ is 0, and γ, or 0 if weights are constants."""
    powers = (float(gamma == power) for power in (1, 2, 3, 4, 0))
    return *powers, gamma if follow else 0.0


@njit(**EXACT)
def _parts(v: Any, present: bool, margin: Any) -> Any:
    """Return σ(x), σ(−x), t, L and σ(−x)/(1 − t)."""
    zero, half, one = as_type(0.0, v), as_type(0.5, v), as_type(1.0, v)
    tiny = as_type(1e-37, v)
    x = -v if present else v
    cut = zero if present else margin
    e = exp_nonpositive(-abs(x))
    r = one / (one + e)
    s = e * r if x < zero else r
    c = r if x < zero else e * r
    t = s - cut
    t = zero if t < zero else t
    rest = c + cut
    rest = tiny if rest < tiny else rest
    inverse = one / rest
    # 1 − t was rounded; where it is near 1 the lost part is most of log(1 − t).
    lost = (t - (one - rest)) * inverse if rest > half else zero
    loss = lost - log_positive(rest)
    # Without a margin L is x itself beyond 80, where the smallest number stood in for 1 − t.
    far = as_type(80.0, v) if cut == zero else as_type(math.inf, v)
    loss = x if x > far else loss
    return s, c, t, loss, c * inverse if cut > zero else one


@njit(**EXACT)
def _whole_entry(v: Any, present: bool, n: Any) -> Any:
    s, c, t, loss, ratio = _parts(v, present, n[12])
    zero = as_type(0.0, v)
    d0, d1 = n[0] if present else n[6], n[1] if present else n[7]
    d2, d3 = n[2] if present else n[8], n[3] if present else n[9]
    constant, gamma = n[4] if present else n[10], n[5] if present else n[11]
    lower = d0 + t * (d1 + t * (d2 + t * d3))
    weight = (constant if t > zero else zero) + t * lower
    slope = s * (lower * gamma * c * loss + weight * ratio)
    return weight * loss, -slope if present else slope


@njit(**EXACT)
def _general_entry(v: Any, present: bool, n: Any) -> Any:
    s, c, t, loss, ratio = _parts(v, present, n[2])
    zero, one = as_type(0.0, v), as_type(1.0, v)
    gamma = n[0] if present else n[1]
    above = one if t > zero else zero
    inside = t if t > zero else one
    power = above * exp_nonpositive(gamma * log_positive(inside))
    weight = power + (t - t)  # NaN stays NaN
    slope = s * (n[3] * gamma * power / inside * c * loss + weight * ratio)
    return weight * loss, -slope if present else slope


_whole_loop, _general_loop = entry_loop(_whole_entry), entry_loop(_general_entry)
