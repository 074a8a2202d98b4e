r"""Log loss of $\mathrm{clip}(\sum_i e^{\alpha_i} f_i(g) + c)$ and its derivatives in one pass.

All parametric calibrators are of this form and differ only in their features $f_i$ of the log-odds
$g$. Slopes are $e^{\alpha}$, so they stay above 0 and no order is ever reversed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from credibly.calibrate.entries import Entries
from credibly.compiled import compiled
from credibly.types import Array

Features = Callable[[Array], Array]
"""Log-odds (rows, L) to features (k, rows, L), each increasing in the log-odds."""


def soft_clip(log_odds: Array, floor: float, ceiling: float) -> Array:
    """Map values below ``floor`` into (floor − 1, floor), and above ``ceiling`` likewise.

    In order, smooth at the joint, and ±inf land on floor − 1 and ceiling + 1: probabilities that
    no finite set of rows supports become ones that it does.

    Example:
        >>> soft_clip(np.array([-np.inf, -7.0, -6.0, 0.0, 7.0]), -6.0, 6.0)
        array([-7. , -6.5, -6. ,  0. ,  6.5])
    """
    below = np.maximum(floor - log_odds, 0.0)
    above = np.maximum(log_odds - ceiling, 0.0)
    return np.clip(log_odds, floor, ceiling) + 1 / (1 + below) - 1 / (1 + above)


def log_loss(log_odds: Array, targets: Array) -> Array:
    """Return the log loss of entries; infinite where p = 0 happened or p = 1 did not."""
    with np.errstate(invalid="ignore"):
        present = np.where(targets > 0, targets * np.logaddexp(0, -log_odds), 0)
        return present + np.where(targets < 1, (1 - targets) * np.logaddexp(0, log_odds), 0)


def sums(entries: Entries, features: Features, theta: Array) -> tuple[Array, Array, Array]:
    """Return log loss, its gradient and Gauss–Newton curvature for each label.

    ``theta`` is (L, k + 3): k log-slopes, intercept, floor, ceiling. The results have shapes (L,),
    (L, k + 3) and (L, k + 3, k + 3).
    """
    count, size = theta.shape
    totals = np.zeros(count), np.zeros((count, size)), np.zeros((count, size, size))
    for g, y, w in entries.pieces():
        _accumulate(features(g), y, w, theta, totals)
    value, gradient, curvature = totals
    curvature += np.tril(curvature, -1).transpose(0, 2, 1)
    return value, gradient, curvature


@compiled(error_model="numpy")
def _accumulate(features, targets, weights, theta, totals):
    value, gradient, curvature = totals
    slopes, rows, labels = features.shape
    slope = np.exp(theta[:, :slopes])
    change = np.zeros(slopes + 3)  # of the output with each parameter
    for row in range(rows):
        for label in range(labels):
            weight = weights[row, label]
            if not weight > 0:
                continue
            odds = theta[label, slopes]
            for i in range(slopes):
                change[i] = slope[label, i] * features[i, row, label]
                odds += change[i]
            floor, ceiling = theta[label, slopes + 1], theta[label, slopes + 2]
            change[slopes], change[slopes + 1], change[slopes + 2] = 1.0, 0.0, 0.0
            outside = False
            if odds < floor or odds > ceiling:
                outside = True
                if odds < floor:
                    near = 1 / (1 + floor - odds)
                    odds = floor - 1 + near
                    change[slopes + 1] = 1 - near * near
                else:
                    near = 1 / (1 + odds - ceiling)
                    odds = ceiling + 1 - near
                    change[slopes + 2] = 1 - near * near
                for i in range(slopes + 1):
                    # At ±inf the change is 0 × inf: the output no longer depends on the slope.
                    change[i] = change[i] * near * near if near > 0 else 0.0
            small = np.exp(-abs(odds))
            rate = 1 / (1 + small) if odds >= 0 else small / (1 + small)
            cost = max(odds, 0.0) + np.log1p(small) - targets[row, label] * odds
            value[label] += weight * cost
            pull = weight * (rate - targets[row, label])
            bend = weight * rate * (1 - rate)
            for i in range(slopes + 3 if outside else slopes + 1):
                gradient[label, i] += pull * change[i]
                scaled = bend * change[i]
                for k in range(i + 1):
                    curvature[label, i, k] += scaled * change[k]
