"""Beta calibration: separate slopes for the low and the high end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from credibly.calibrate.base import Calibrator
from credibly.calibrate.entries import Entries
from credibly.calibrate.likelihood import soft_clip
from credibly.calibrate.parametric import centre_and_spread, fit_shared, start_slope
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class Beta(Calibrator):
    r"""$g \mapsto a \log p - b \log(1 - p) + c$ with $p = \sigma(g)$ and $a, b > 0$, shared.

    Beta calibration (Kull, Silva Filho & Flach, 2017) written on log-odds: $a$ is the slope far
    below ½, $b$ far above; $a = b$ gives :class:`Affine`. Both are positive by construction, so
    the order is kept. Fitted, bounded and limited as :class:`Affine` is.

    Attributes:
        slope_low, slope_high: $a$ and $b$.
        intercept: $c$.
        floor, ceiling: where the soft limit starts, in calibrated log-odds.

    Example:
        >>> log_odds = np.array([[-4.0, 2.0], [3.0, -6.0], [6.0, 4.0], [-2.0, -4.0]])
        >>> targets = np.array([[0, 1], [1, 0], [0, 1], [0, -1]])
        >>> beta = Beta().fit(log_odds, targets)
        >>> bool(beta.slope_low > beta.slope_high)
        True
    """

    name = "beta"
    slope_low: float
    slope_high: float
    intercept: float
    floor: float
    ceiling: float
    _parameters = ("slope_low", "slope_high", "intercept", "floor", "ceiling")

    def _fit(self, entries: Entries) -> None:
        size = float(np.hypot(*centre_and_spread(entries)))
        theta = fit_shared(entries, _ends, np.full(2, start_slope(size)))
        self.slope_low, self.slope_high = (float(value) for value in np.exp(theta[:2]))
        self.intercept = float(theta[2])
        self.floor, self.ceiling = float(theta[3]), float(theta[4])

    def _map(self, log_odds: Array) -> Array:
        low, high = _ends(log_odds)
        odds = self.slope_low * low + self.slope_high * high + self.intercept
        return soft_clip(odds, self.floor, self.ceiling)

    def to_module(self) -> nn.Module:
        self._require_fitted()
        from credibly.calibrate.torch_modules import BetaModule

        return BetaModule(**{name: getattr(self, name) for name in self._parameters})


def _ends(log_odds: Array) -> Array:
    """Return log p and −log(1 − p)."""
    return np.stack([-np.logaddexp(0, -log_odds), np.logaddexp(0, log_odds)])
