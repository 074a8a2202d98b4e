"""Temperature: one slope for all labels, no intercept."""

from __future__ import annotations

import numpy as np

from credibly.calibrate.entries import Entries
from credibly.calibrate.parametric import Parametric, centre_and_spread, fit_shared, start_slope


class Temperature(Parametric):
    r"""$g \mapsto a\,g$ with $a = 1/T > 0$: sharper or softer, with ½ left in its place.

    Fitted, bounded and limited as :class:`Affine` is. It cannot move a base rate, so it does
    little for losses whose scores are shifted.

    Example:
        >>> log_odds = np.array([[-4.0, 2.0], [3.0, -6.0], [6.0, 4.0], [-2.0, -4.0]])
        >>> targets = np.array([[0, 1], [1, 0], [0, 1], [0, -1]])
        >>> Temperature().fit(log_odds, targets)
        Temperature(slope=0.314, floor=-2.708, ceiling=2.708)
    """

    name = "temperature"
    intercept = 0.0
    _parameters = ("slope", "floor", "ceiling")

    def _fit(self, entries: Entries) -> None:
        size = float(np.hypot(*centre_and_spread(entries)))
        start = np.array([start_slope(size)])
        theta = fit_shared(entries, lambda g: g[None], start, intercept=False)
        self.slope = float(np.exp(theta[0]))
        self.floor, self.ceiling = float(theta[2]), float(theta[3])
