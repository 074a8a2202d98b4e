"""Log-odds and truth in fine bins, for rows that do not fit into memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from credibly import checks
from credibly.types import Array

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
    what the curvature of the loss makes of their spread within a bin. An accumulator: the states
    of histograms of other rows can be merged.

    Args:
        num_labels: number of labels; 1 pools all labels.

    Example:
        >>> histogram = LogOddsHistogram(2)
        >>> histogram.update(np.array([0, 1, 1]), np.array([-1.5, 2.0, 2.0]), np.array([0, 1, 1]))
        >>> histogram.cells()[3]
        array([1., 2.])
    """

    def __init__(self, num_labels: int) -> None:
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self._bins = 2 * _FAR + 3  # −inf, far below … far above, +inf
        cells = self.num_labels * self._bins * 2
        if cells > _MOST_CELLS:
            raise checks.InputError(
                f"a histogram of {self.num_labels:,} labels takes {cells * 16 / 1e9:.1f} GB. "
                "Choose fewer labels, or 1, which pools them."
            )
        self._counts, self._sums = np.zeros(cells), np.zeros(cells)

    def update(self, labels: Array, log_odds: Array, targets: Array) -> None:
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

    def cells(self) -> tuple[Array, Array, Array, Array]:
        """Return label, mean log-odds, target (0 or 1) and count of the bins that are not empty."""
        keys = np.flatnonzero(self._counts)
        counts = self._counts[keys]
        place = keys // 2 % self._bins
        means = self._sums[keys] / counts
        means = np.where(place == 0, -np.inf, np.where(place == self._bins - 1, np.inf, means))
        return keys // 2 // self._bins, means, (keys % 2).astype(np.float64), counts
