"""Isotonic: any non-decreasing map, from the data alone."""

from __future__ import annotations

import numpy as np

from credibly.calibrate.base import Calibrator, Entries
from credibly.types import Array


class Isotonic(Calibrator):
    """The non-decreasing step map with the least squared error, shared by all labels.

    scikit-learn's pool-adjacent-violators on the pooled entries, linear between steps, constant
    beyond the fitted range. It may tie log-odds that differed, so rank before it, not after.
    The lowest step, if no positive fell into it, would say probability 0; it gets (0 + ½)/(m + 1)
    for its m entries instead (the highest likewise), or its neighbour's rate if that is lower.
    ±inf count as one unit beyond the outermost finite log-odds.

    Attributes:
        points: log-odds where the steps begin and end.
        rates: the rates there.

    Example:
        >>> log_odds = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
        >>> targets = np.array([[0], [0], [1], [0], [1]])
        >>> Isotonic().fit(log_odds, targets).rates.round(2)
        array([0.17, 0.17, 0.5 , 0.5 , 0.75])
    """

    name = "isotonic"
    strict = False
    points: Array
    rates: Array
    _parameters = _lists = ("points", "rates")

    def _fit(self, entries: Entries) -> None:
        from sklearn.isotonic import IsotonicRegression

        parts = [(g[w > 0], y[w > 0], w[w > 0]) for g, y, w in entries.pieces()]
        g, y, w = (np.concatenate(column) for column in zip(*parts, strict=True))
        finite = g[np.isfinite(g)]
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
        g = np.clip(g, low - 1, high + 1)
        fitted = IsotonicRegression(out_of_bounds="clip").fit(g, y, sample_weight=w)
        self.points, self.rates = fitted.X_thresholds_.copy(), fitted.y_thresholds_.copy()
        self._smooth_ends(g, w)

    def _smooth_ends(self, log_odds: Array, weights: Array) -> None:
        certain = self.rates <= 0
        if certain.any():
            mass = weights[log_odds <= self.points[certain][-1]].sum()
            inner = self.rates[~certain]
            self.rates[certain] = min(0.5 / (mass + 1), inner[0] if inner.size else 1.0)
        certain = self.rates >= 1
        if certain.any():
            mass = weights[log_odds >= self.points[certain][0]].sum()
            inner = self.rates[~certain]
            self.rates[certain] = max(1 - 0.5 / (mass + 1), inner[-1] if inner.size else 0.0)
