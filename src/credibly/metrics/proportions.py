"""Confidence intervals of a proportion."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy

Band = Literal["wilson", "clopper-pearson"]


def proportion_interval(
    successes: object, trials: object, level: float = 0.95, method: Band = "wilson"
) -> tuple[Any, Any]:
    """Lower and upper confidence limits of a probability, elementwise; [0, 1] without trials.

    ``"wilson"`` inverts the score test and covers close to ``level`` on average;
    ``"clopper-pearson"`` inverts the exact test and never covers less.

    Example:
        >>> low, high = proportion_interval(8, 10)
        >>> round(float(low), 4), round(float(high), 4)
        (0.4902, 0.9433)
        >>> low, high = proportion_interval(8, 10, method="clopper-pearson")
        >>> round(float(low), 4), round(float(high), 4)
        (0.4439, 0.9748)
    """
    checks.choice("method", method, ("wilson", "clopper-pearson"))
    checks.fraction("level", level, low_open=True, high_open=True)
    k, n = to_numpy(successes).astype(np.float64), to_numpy(trials).astype(np.float64)
    if not ((k >= 0) & (k <= n)).all():
        raise checks.InputError(
            "`successes` must lie between 0 and `trials`; "
            f"got {k.min():g} to {k.max():g} of {n.min():g} to {n.max():g}."
        )
    low, high = (_wilson if method == "wilson" else _clopper_pearson)(k, n, level)
    low, high = np.where(n > 0, low, 0.0)[()], np.where(n > 0, high, 1.0)[()]
    return like(low, successes, trials), like(high, successes, trials)


def _wilson(k: Any, n: Any, level: float) -> tuple[Any, Any]:
    from scipy.special import ndtri

    z = ndtri((1 + level) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = (k + z * z / 2) / (n + z * z)
        half = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    # At 0 and n successes the limits are 0 and 1 exactly; the difference would round.
    return np.where(k == 0, 0.0, centre - half), np.where(k == n, 1.0, centre + half)


def _clopper_pearson(k: Any, n: Any, level: float) -> tuple[Any, Any]:
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    # Arguments of 0 are outside of the beta function's domain; the ends are known there.
    low = betaincinv(np.maximum(k, 1e-300), n - k + 1, tail)
    high = betaincinv(k + 1, np.maximum(n - k, 1e-300), 1 - tail)
    return np.where(k == 0, 0.0, low), np.where(k == n, 1.0, high)
