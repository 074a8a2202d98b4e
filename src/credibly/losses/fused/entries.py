"""One compiled loop for all losses of single entries: value and gradient in one pass.

A loss provides a scalar function ``entry(score, present, numbers) → (value, slope)`` and its
numbers.

For BCE and SPA each partial loss is a softplus of a shifted score. For asymmetric and focal loss
both partial losses are −t^γ log(1 − t) of one quantity: with x = −v for a present label and x = v
for an absent one, t = σ(x), less the margin if absent. So 1 − t = σ(−x) + margin, and

    value     t^γ L,   L = −log(1 − t)
    d/dx      (γ t^(γ−1) L + t^γ / (1 − t)) σ(x) σ(−x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from torch import Tensor

from credibly.compiled import compiled
from credibly.losses.fused.form import (
    CHUNK,
    FusedForm,
    ValueAndGradient,
    all_hard,
    array_at,
    as_type,
    run_loop,
    tensors_at,
)
from credibly.types import Scores
from credibly.vectormath import EXACT, INNER, JIT, exp_nonpositive, log1p_unit, log_positive

if TYPE_CHECKING:
    from credibly.losses.families import BinaryLoss


@dataclass(eq=False)
class EntryLoop(FusedForm):
    """The mean over known entries by a loop of ``entry_loop``."""

    loss: BinaryLoss
    loop: Callable[..., float]
    numbers: tuple[float, ...]

    def on_cpu(self, scores: Scores, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        shape, numbers = scores.numel(), self.numbers
        return run_loop(self.loop, shape, scores, targets, needs_grad, numbers, space=CHUNK)

    def plain(self, scores: Scores, targets: Tensor) -> Tensor:
        return self.loss.plain_mean(scores, targets)


def entry_loop(entry: Callable[..., Any]) -> Callable[..., float]:
    """Return a compiled loop for a scalar function of one score.

    Args:
        entry: ``entry(score, present, numbers)``, compiled with ``EXACT``. ``present`` selects
            the partial loss, and ``numbers`` are a tuple in the type of the score.
    """

    @njit(**INNER)
    def hard(v, y, g, numbers, scale, least):
        """Return the sum for targets 0 or 1, where each entry needs only one partial loss."""
        total = as_type(0.0, scale)
        zero = total
        for i in range(v.size):
            value, slope = entry(v[i], y[i] > zero, numbers)
            total += value
            g[i] = scale * (zero if abs(slope) < least else slope)
        return total

    @njit(**INNER)
    def soft(v, y, g, numbers, scale):
        """Return the sum and the number of known entries for any targets."""
        zero, one = as_type(0.0, scale), as_type(1.0, scale)
        total, known = zero, zero
        for i in range(v.size):
            counts = y[i] >= zero
            present, absent = (y[i], one - y[i]) if counts else (zero, zero)
            score = v[i] if counts else zero
            # Comparisons, because each literal would compile a version of its own.
            value_pos, slope_pos = entry(score, one > zero, numbers)
            value_neg, slope_neg = entry(score, one < zero, numbers)
            total += present * value_pos + absent * value_neg
            known += one if counts else zero
            g[i] = scale * (present * slope_pos + absent * slope_neg)
        return total, known

    @compiled(**JIT)
    def run(pointers, size, zero, needs_grad, numbers):
        """Return the mean over known entries; fill the gradient. See ``tensors_at``."""
        scores, targets, gradient = tensors_at(pointers, size, zero)
        typed, scale = as_type(numbers, zero), as_type(1.0 / max(size, 1), zero)
        # Below this limit, the gradient would be subnormal, which is slow: it counts as 0.
        least = as_type(np.finfo(scores.dtype).tiny * max(size, 1), zero)
        scratch = array_at(pointers[3], CHUNK, zero)
        total, known = 0.0, 0.0
        for start in range(0, size, CHUNK):
            stop = min(size, start + CHUNK)
            v, y = scores[start:stop], targets[start:stop]
            g = gradient[start:stop] if needs_grad else scratch[: stop - start]
            if all_hard(y):
                total += hard(v, y, g, typed, scale, least)
                known += stop - start
            else:
                value, count = soft(v, y, g, typed, scale)
                total += value
                known += count
        if needs_grad and 0 < known < size:
            factor = as_type(size / known, zero)
            for i in range(size):
                gradient[i] *= factor
        return total / max(known, 1.0)

    return run


@njit(**EXACT)
def softplus_and_sigmoid(x):
    """Return softplus(x) and its derivative."""
    zero, one = as_type(0.0, x), as_type(1.0, x)
    e = exp_nonpositive(-abs(x))
    r = one / (one + e)
    return (x if x > zero else zero) + log1p_unit(e), e * r if x < zero else r


@njit(**EXACT)
def _entry(v, present, n):
    """Return weight · softplus(slope · v + offset) and its slope; ``n`` has both sides' numbers."""
    slope = n[0] if present else n[3]
    offset = n[1] if present else n[4]
    weight = n[2] if present else n[5]
    value, sigmoid = softplus_and_sigmoid(slope * v + offset)
    return weight * value, weight * slope * sigmoid


softplus_loop = entry_loop(_entry)


_HIGHEST_WHOLE = 4


def asymmetric_loop(
    gamma_pos: float, gamma_neg: float, margin: float, follow: bool
) -> tuple[Callable[..., float], tuple[float, ...]]:
    """Return the loop for these exponents, and its numbers.

    Integer exponents up to 4 become a polynomial with one coefficient 1. If ``follow`` is False,
    the weights t^γ are constants for the gradient.
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
def _parts(v, present, margin):
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
    # 1 − t is rounded; if it is near 1, the lost part is most of log(1 − t).
    lost = (t - (one - rest)) * inverse if rest > half else zero
    loss = lost - log_positive(rest)
    # Without a margin, L is x itself beyond 80, where the smallest number replaces 1 − t.
    far = as_type(80.0, v) if cut == zero else as_type(math.inf, v)
    loss = x if x > far else loss
    return s, c, t, loss, c * inverse if cut > zero else one


@njit(**EXACT)
def _whole_entry(v, present, n):
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
def _general_entry(v, present, n):
    s, c, t, loss, ratio = _parts(v, present, n[2])
    zero, one = as_type(0.0, v), as_type(1.0, v)
    gamma = n[0] if present else n[1]
    above = one if t > zero else zero
    inside = t if t > zero else one
    power = above * exp_nonpositive(gamma * log_positive(inside))
    weight = power + (t - t)  # NaN remains NaN
    slope = s * (n[3] * gamma * power / inside * c * loss + weight * ratio)
    return weight * loss, -slope if present else slope


_whole_loop, _general_loop = entry_loop(_whole_entry), entry_loop(_general_entry)
