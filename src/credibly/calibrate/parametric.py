"""The fit that Affine, Temperature and Beta share: penalised log loss over all labels at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.calibrate.base import Calibrator
from credibly.calibrate.entries import Entries
from credibly.calibrate.likelihood import Features, soft_clip, sums
from credibly.calibrate.newton import minimise
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn

# The weak prior, in nats: it decides only where the data do not (separable scores, one class,
# constant scores), and costs less than one entry otherwise.
LOG_SLOPE_SD = 3.0
INTERCEPT_SD = 10.0
LIMIT_SD = 4.0


class Parametric(Calibrator):
    """Shared by all labels: soft_clip(Σ slope × feature + intercept), each slope above 0."""

    slope: float
    intercept: float
    floor: float
    ceiling: float
    _parameters = ("slope", "intercept", "floor", "ceiling")

    def _map(self, log_odds: Array) -> Array:
        return soft_clip(self.slope * log_odds + self.intercept, self.floor, self.ceiling)

    def to_module(self) -> nn.Module:
        self._require_fitted()
        from credibly.calibrate.torch_modules import AffineModule

        return AffineModule(
            slope=self.slope, intercept=self.intercept, floor=self.floor, ceiling=self.ceiling
        )


def fit_shared(entries: Entries, features: Features, start: Array, intercept: bool = True) -> Array:
    """Return the parameters of one map for all labels: k log-slopes, intercept, floor, ceiling.

    The limits stay at what the entries support, unless those beyond hold more surprises
    than that: then they are fitted too.
    """
    slopes, limit = len(start), evidence_limit(entries)
    centre = np.r_[np.zeros(slopes), 0.0, -limit, limit]
    precision = np.r_[[LOG_SLOPE_SD] * slopes, INTERCEPT_SD, LIMIT_SD, LIMIT_SD] ** -2.0

    def penalised(theta: Array) -> tuple[Array, Array, Array]:
        each = sums(entries, features, np.tile(theta, (entries.num_labels, 1)))
        value, gradient, curvature = (part.sum(axis=0) for part in each)
        away = theta - centre
        value = value + 0.5 * precision @ away**2
        return value, gradient + precision * away, curvature + np.diag(precision)

    free = np.r_[[True] * slopes, intercept, False, False]
    theta = _fit_some(penalised, np.r_[start, 0.0, -limit, limit], free)
    gradient = penalised(theta)[1]
    surprises = np.r_[-gradient[-2] > 1, gradient[-1] > 1]
    if surprises.any():
        free[-2:] = surprises
        theta = _fit_some(penalised, theta, free)
    return theta


def _fit_some(penalised: Callable[[Array], Any], start: Array, free: Array) -> Array:
    """Minimise over the ``free`` parameters, the others as they are in ``start``."""

    def evaluate(part: Array) -> tuple[Array, Array, Array]:
        theta = start.copy()
        theta[free] = part[0]
        if theta[-1] - theta[-2] < 1:  # the limits must not cross
            return np.array([np.inf]), np.zeros_like(part), np.eye(part.size)[None]
        value, gradient, curvature = penalised(theta)
        return np.array([value]), gradient[None, free], curvature[np.ix_(free, free)][None]

    result = start.copy()
    result[free] = minimise(evaluate, start[free][None])[0]
    return result


def evidence_limit(entries: Entries) -> float:
    """Return the log-odds of ½ in N + 1: the surest statement that N known entries support."""
    total = sum(float(w.sum()) for _, _, w in entries.pieces())
    return max(1.0, float(np.log(2 * total + 1)))


def centre_and_spread(entries: Entries) -> tuple[float, float]:
    """Return mean and deviation of the finite log-odds; warn if rates fall as they rise."""
    totals = np.zeros(3)
    for g, y, w in entries.pieces():
        keep = (w > 0) & np.isfinite(g)
        totals += w[keep].sum(), w[keep] @ g[keep], w[keep] @ y[keep]
    if totals[0] == 0:
        return 0.0, 1.0
    mean, rate = totals[1] / totals[0], totals[2] / totals[0]
    square, trend, noise = 0.0, 0.0, 0.0
    for g, y, w in entries.pieces():
        keep = (w > 0) & np.isfinite(g)
        away, w = g[keep] - mean, w[keep]
        square += w @ away**2
        trend += w @ (away * (y[keep] - rate))
        noise += rate * (1 - rate) * (w**2 @ away**2)
    if noise > 0 and trend < -3 * noise**0.5:
        warnings.warn(
            "the rate of known positives falls as the log-odds rise "
            f"({trend / noise**0.5:.1f} standard errors). A calibrator never turns the order "
            "around, so it will be almost flat. Check the sign of the scores and that columns "
            "and targets name the same labels.",
            stacklevel=4,
        )
    return float(mean), float((square / totals[0]) ** 0.5)


def start_slope(size: float) -> float:
    """Return a log-slope to start from: 1 for log-odds, lower for scores on a wide scale."""
    return -float(np.log(max(1.0, size)))
