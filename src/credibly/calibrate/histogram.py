"""Log-odds and truth in fine bins: what a calibrator is fitted on when the rows do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from credibly import checks
from credibly.targets import Targets
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.calibrate.base import Calibrator

PER_UNIT = 128
"""Bins per unit of asinh(log-odds): 1/128 wide at 0, wider where the sigmoid is flat."""

_FAR = 16 * PER_UNIT
"""The last bins, of log-odds beyond ±4e6."""

_MOST_CELLS = 2**26


def bin_numbers(log_odds: Array) -> Array:
    """Return the number of the fine bin of each log-odds, from 0 (−inf) on.

    Example:
        >>> bin_numbers(np.array([-np.inf, 0.0, 0.01])).tolist()
        [0, 2049, 2050]
    """
    finite = np.isfinite(log_odds)
    place = np.clip(np.rint(np.arcsinh(np.where(finite, log_odds, 0)) * PER_UNIT), -_FAR, _FAR)
    place = np.where(finite, place, np.sign(log_odds) * (_FAR + 1)) + _FAR + 1
    return place.astype(np.int64)


class LogOddsHistogram:
    """Counts and sums of log-odds in fine bins, for each label, of present and absent entries.

    A bin keeps the mean of its log-odds, so that a fit differs from one on all entries only by
    what the curvature of the loss makes of their spread within a bin: less than 1e-5 in the
    parameters of an affine map. Histograms of parts of the rows can be added.

    Args:
        num_labels: number of labels; 1 pools all labels, for calibrators with one map.

    Example:
        >>> from credibly.calibrate import Affine
        >>> rng = np.random.default_rng(0)
        >>> log_odds = rng.normal(size=(5000, 2))
        >>> targets = rng.random((5000, 2)) < 1 / (1 + np.exp(-2 * log_odds))
        >>> histogram = LogOddsHistogram(2)
        >>> histogram.update(log_odds, targets)
        >>> exact = Affine().fit(log_odds, targets)
        >>> abs(histogram.fit(Affine()).slope - exact.slope) < 1e-4
        True
    """

    def __init__(self, num_labels: int) -> None:
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self._bins = 2 * _FAR + 3  # −inf, far below … far above, +inf
        cells = self.num_labels * self._bins * 2
        if cells > _MOST_CELLS:
            raise checks.InputError(
                f"a histogram of {self.num_labels:,} labels takes {cells * 16 / 1e9:.1f} GB. Fit "
                "one map for all labels (`affine`), or fewer labels."
            )
        self._counts, self._sums = np.zeros(cells), np.zeros(cells)

    def update(self, log_odds: Array, targets: Array) -> None:
        """Add entries, (rows, labels); targets are 0, 1, soft, or below 0 for unknown."""
        columns = np.arange(self.num_labels)
        if self.num_labels == 1:
            log_odds, targets = log_odds.reshape(-1, 1), targets.reshape(-1, 1)
        known = targets >= 0
        label = np.broadcast_to(columns, targets.shape)[known]
        self.update_entries(label, log_odds[known], targets[known])

    def update_entries(self, labels: Array, log_odds: Array, targets: Array) -> None:
        """Add known entries, each (entries,), with the number of their label."""
        odds, truth = log_odds.astype(np.float64), targets.astype(np.float64)
        if np.isnan(odds).any():
            raise checks.InputError("log-odds must not be NaN where the truth is known; some are.")
        keys = (labels.astype(np.int64) * self._bins + bin_numbers(odds)) * 2
        values = np.where(np.isfinite(odds), odds, 0.0)
        for offset, weight in ((0, 1 - truth), (1, truth)):
            some = weight > 0
            spots, each = keys[some] + offset, weight[some]
            self._counts += np.bincount(spots, weights=each, minlength=len(self._counts))
            self._sums += np.bincount(spots, weights=each * values[some], minlength=len(self._sums))

    def state(self) -> dict[str, Array]:
        """Return the bins that are not empty; ``merge`` takes them back."""
        keys = np.flatnonzero(self._counts)
        return {"keys": keys, "counts": self._counts[keys], "sums": self._sums[keys]}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state`` of a histogram of other rows."""
        self._counts[state["keys"]] += state["counts"]
        self._sums[state["keys"]] += state["sums"]

    def entries(self) -> tuple[Array, Array, Array]:
        """Return log-odds, targets (0 or 1) and weights, (entries, labels), one entry per bin.

        Entries of weight 0 fill the columns up.
        """
        labels, log_odds, targets, counts = self.cells()
        sizes = np.bincount(labels, minlength=self.num_labels)
        shape = (max(int(sizes.max(initial=0)), 1), self.num_labels)
        starts = np.cumsum(sizes) - sizes
        rows = np.arange(len(labels)) - starts[labels]
        odds, truth, weights = np.zeros(shape), np.full(shape, -1.0), np.zeros(shape)
        odds[rows, labels], truth[rows, labels] = log_odds, targets
        weights[rows, labels] = counts
        return odds, truth, weights

    def cells(self) -> tuple[Array, Array, Array, Array]:
        """Return label, mean log-odds, target (0 or 1) and count of the bins that are not empty."""
        keys = np.flatnonzero(self._counts)
        counts = self._counts[keys]
        place = keys // 2 % self._bins
        means = self._sums[keys] / counts
        means = np.where(place == 0, -np.inf, np.where(place == self._bins - 1, np.inf, means))
        return keys // 2 // self._bins, means, (keys % 2).astype(np.float64), counts

    def fit(self, calibrator: Calibrator) -> Calibrator:
        """Fit the calibrator on the bins and return it."""
        odds, targets, weights = self.entries()
        return calibrator.fit(odds, Targets(targets), weights)
