"""The scalar function of BCE and SPA: each partial loss is a softplus of a shifted score."""

from __future__ import annotations

from typing import Any, TypeAlias

from numba import njit

from credibly.losses.fused.entries import entry_loop
from credibly.losses.fused.memory import as_type
from credibly.vectormath import EXACT, exp_nonpositive, log1p_unit

Side: TypeAlias = tuple[float, float, float]
"""Scale, slope and shift of one partial loss."""


def side_numbers(positive: Side, negative: Side) -> tuple[float, ...]:
    """Return slope, offset and weight of each side: weight · softplus(slope · v + offset)."""
    (scale_pos, slope_pos, shift_pos), (scale_neg, slope_neg, shift_neg) = positive, negative
    present = -slope_pos, slope_pos * shift_pos, 1 / scale_pos
    absent = slope_neg, -slope_neg * shift_neg, 1 / scale_neg
    return *present, *absent


@njit(**EXACT)
def softplus_and_sigmoid(x: Any) -> Any:
    """Return softplus(x) and its derivative."""
    zero, one = as_type(0.0, x), as_type(1.0, x)
    e = exp_nonpositive(-abs(x))
    r = one / (one + e)
    return (x if x > zero else zero) + log1p_unit(e), e * r if x < zero else r


@njit(**EXACT)
def _entry(v: Any, present: bool, n: Any) -> Any:
    slope = n[0] if present else n[3]
    offset = n[1] if present else n[4]
    weight = n[2] if present else n[5]
    value, sigmoid = softplus_and_sigmoid(slope * v + offset)
    return weight * value, weight * slope * sigmoid


softplus_loop = entry_loop(_entry)
