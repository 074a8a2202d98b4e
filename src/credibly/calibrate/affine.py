"""Affine: one slope and one intercept for all labels (Platt scaling on log-odds)."""

from __future__ import annotations

import numpy as np

from credibly.calibrate.entries import Entries
from credibly.calibrate.parametric import Parametric, centre_and_spread, fit_shared, start_slope


class Affine(Parametric):
    r"""$g \mapsto a\,g + b$ with $a > 0$, shared by all labels. The default.

    Fitted by log loss on known entries, in float64, with a weak normal prior ($\log a$ with
    standard deviation 3; the output at the mean of $g$, 10) in place of Platt's smoothed targets:
    it bounds the fit on separable data, one class or constant scores, and takes soft targets as
    they are. $a$ is positive by construction; if the rates evidently fall as $g$ rises, a warning
    says so and the map is almost flat.

    Outputs below ``floor`` are pressed into (floor − 1, floor), above ``ceiling`` likewise, so
    that ±inf (a probability of exactly 0 or 1) become finite. Both start where N known entries
    no longer support a probability, ∓log(2N + 1), and are fitted too if the entries
    beyond hold more surprises than that. Where no entry comes that far, the map is affine.

    Attributes:
        slope, intercept: $a$ and $b$.
        floor, ceiling: where the soft limit starts, in calibrated log-odds.

    Example:
        >>> log_odds = np.array([[-4.0, 2.0], [3.0, -6.0], [6.0, 4.0], [-2.0, -4.0]])
        >>> targets = np.array([[0, 1], [1, 0], [0, 1], [0, -1]])
        >>> Affine().fit(log_odds, targets)
        Affine(slope=0.3553, intercept=-0.6328, floor=-2.708, ceiling=2.708)
    """

    name = "affine"

    def _fit(self, entries: Entries) -> None:
        mean, spread = centre_and_spread(entries)
        start = np.array([start_slope(spread)])
        theta = fit_shared(entries, lambda g: (g - mean)[None], start)
        self.slope = float(np.exp(theta[0]))
        self.intercept = float(theta[1] - self.slope * mean)
        self.floor, self.ceiling = float(theta[2]), float(theta[3])
