"""PerLabel: an affine map for each label, shrunk toward the shared one by evidence."""

from __future__ import annotations

import numpy as np

from credibly.calibrate.base import Calibrator, Entries
from credibly.calibrate.parametric import centre_and_spread, fit_shared, minimise, start_slope, sums
from credibly.types import Array

ROUNDS = 6  # of refitting the labels under a new covariance; the changes after it are < 1e-3


class PerLabel(Calibrator):
    r"""$g_t \mapsto a_t\,g_t + b_t$: slope and intercept per label, as far as evidence goes.

    The labels' deviations $\delta_t$ from the shared :class:`Affine` map (in log-slope and in the
    output at the mean of $g$) are normal with one covariance for all labels, fitted by marginal
    likelihood (Laplace approximation, maximised by EM). A label with many known positives gets
    its own map, one with few stays near the shared map, one without known rows takes it over
    exactly. One label alone cannot tell how labels vary and gets the shared map.

    Attributes:
        slopes, intercepts: $a_t$ and $b_t$, one per label.
        slope, intercept: of the shared map.
        floor, ceiling: where the soft limit starts; shared.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> truth = noise.normal(-1, 2, (2000, 3))
        >>> targets = noise.random((2000, 3)) < 1 / (1 + np.exp(-truth))
        >>> PerLabel().fit(truth * [0.5, 1.0, 2.0], targets).slopes.round(1)
        array([2. , 1. , 0.5])
    """

    name = "per-label"
    slopes: Array
    intercepts: Array
    slope: float
    intercept: float
    floor: float
    ceiling: float
    _parameters = ("slopes", "intercepts", "slope", "intercept", "floor", "ceiling")
    _lists = ("slopes", "intercepts")

    def _fit(self, entries: Entries) -> None:
        mean, spread = centre_and_spread(entries)
        shared = fit_shared(entries, lambda g: (g - mean)[None], np.array([start_slope(spread)]))
        theta = _labels(entries, mean, shared)
        self.slope = float(np.exp(shared[0]))
        self.intercept = float(shared[1] - self.slope * mean)
        self.floor, self.ceiling = float(shared[2]), float(shared[3])
        self.slopes = np.exp(theta[:, 0])
        self.intercepts = theta[:, 1] - self.slopes * mean

    def _width(self) -> int:
        return np.size(self.slopes)


def _labels(entries: Entries, mean: float, shared: Array) -> Array:
    """Return log-slope and output at the mean of each label: the posterior mode."""
    count = entries.num_labels
    common = np.tile(shared, (count, 1))
    if count == 1:
        return common[:, :2]

    def likelihood(away: Array) -> tuple[Array, Array, Array]:
        theta = common.copy()
        theta[:, :2] += away
        value, gradient, curvature = sums(entries, lambda g: (g - mean)[None], theta)
        return value, gradient[:, :2], curvature[:, :2, :2]

    def posterior(away: Array) -> tuple[Array, Array, Array]:
        value, gradient, curvature = likelihood(away)
        pull = away @ precision
        return value + 0.5 * (away * pull).sum(axis=1), gradient + pull, curvature + precision

    away = np.zeros((count, 2))
    covariance = np.diag([0.3, 0.5]) ** 2
    for _ in range(ROUNDS):
        precision = np.linalg.inv(covariance)
        away = minimise(posterior, away, most=3)
        _, gradient, curvature = likelihood(away)
        covariance = _fitted_covariance(away, gradient, curvature, covariance)
    precision = np.linalg.inv(covariance)
    return common[:, :2] + minimise(posterior, away)


def _fitted_covariance(away: Array, gradient: Array, curvature: Array, start: Array) -> Array:
    """Run EM on the quadratic approximation of each label's log loss around ``away``."""
    informed = curvature[:, 1, 1] > 0
    if not informed.any():
        return start
    gradient, curvature = gradient[informed], curvature[informed]
    target = (curvature @ away[informed][..., None])[..., 0] - gradient
    covariance = start
    for _ in range(500):
        spread = np.linalg.inv(curvature + np.linalg.inv(covariance))
        mode = (spread @ target[..., None])[..., 0]
        new = (mode[:, :, None] * mode[:, None, :] + spread).mean(axis=0)
        new += 1e-8 * np.eye(2)  # labels that do not differ at all: the covariance tends to 0
        if np.abs(new - covariance).max() < 1e-6:
            return new
        covariance = new
    return covariance
