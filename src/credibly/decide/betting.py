r"""Test by betting that a mean of bounded values is at most a given level.

Let $x_i \in [0, 1]$ be independent with one mean. If that mean were $\alpha$ or more, the capital
$\prod_i (1 + \nu(\alpha - x_i))$ of a gambler with a fixed stake $\nu \in [0, 1/(1-\alpha)]$ would
have expectation at most 1, and so would the mean of several such capitals. By Markov's inequality
it reaches $1/\delta$ with probability at most $\delta$ (Waudby-Smith & Ramdas, 2024).

The capital falls whenever any $x_i$ rises. Where the $x_i$ of nested sets are all monotone, there
is one point at which it drops below $1/\delta$, and no correction for trying many thresholds is
needed.
"""

from __future__ import annotations

import math

import numpy as np

from credibly.types import Array

LARGEST = 0.999
"""Share of the stake with which one value of 1 would lose all capital."""

SPREADS = (1.0, 1 / 3, 1 / 9)
"""Variances to bet on, as shares of the largest possible one: α(1 − α)."""


def log_capital(values: Array, alpha: float, delta: float) -> float:
    """Return the log of the capital after betting on ``values`` in [0, 1] having a mean below α."""
    if not len(values):
        return 0.0
    counted, times = np.unique(values, return_counts=True)
    logs = [
        float(times @ np.log1p(stake * (alpha - counted)))
        for stake in _stakes(len(values), alpha, delta)
    ]
    top = max(logs)
    return top + math.log(sum(math.exp(each - top) for each in logs) / len(logs))


def rows_needed(alpha: float, delta: float) -> int:
    """Return the fewest values, all 0, with which the capital reaches 1/δ."""
    rows = 1
    while log_capital(np.zeros(rows), alpha, delta) < math.log(1 / delta):
        rows += 1
    return rows


def _stakes(rows: int, alpha: float, delta: float) -> list[float]:
    """Return the stakes that are best for a few variances; they do not depend on the values."""
    limit = LARGEST / (1 - alpha)
    return [
        min(limit, math.sqrt(2 * math.log(1 / delta) / (rows * alpha * (1 - alpha) * spread)))
        for spread in SPREADS
    ]
