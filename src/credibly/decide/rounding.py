"""Compare probabilities up to rounding, so that float32 and float64 select the same labels.

Equal probabilities are common: an isotonic map has steps, the link of ASL is level below its
margin, scores are rounded. A threshold at such a value would select them in one arithmetic and not
in another. So thresholds keep a distance that is larger than what float32 does to a probability.
"""

from __future__ import annotations

from typing import Any

ODDS = 2.0**-16
"""Relative distance in odds: 256 roundings of float32, for scores of a few hundred."""

PROBABILITY = 0.9 * 2.0**-22
"""Least relative distance in probability, which counts near 1: 3.6 steps of float32."""

STEPS = 2.0**40
"""Steps per unit where probabilities are sorted and summed: sums of them are exact in float64."""

_TINY = 2.0**-100
"""Least distance of all: a probability this small is 0 in some arithmetic."""


def just_below(value: Any) -> Any:
    """Return a threshold that ``value`` exceeds in every arithmetic; below 0 for 0.

    Args:
        value: a probability, or an array or tensor of them.
    """
    return value - _distance(value)


def just_above(value: Any) -> Any:
    """Return a threshold that ``value`` exceeds in no arithmetic; see ``just_below``."""
    return value + _distance(value)


def _distance(value: Any) -> Any:
    share = ODDS * (1 - value)
    share = max(share, PROBABILITY) if isinstance(value, float) else share.clip(min=PROBABILITY)
    return value * share + _TINY
