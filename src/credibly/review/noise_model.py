r"""Estimate how many annotations are wrong, from probabilities and annotations.

If the truth is right, its rate rises from 0 to 1 with the log-odds g of a good model. If a share of
absent labels is marked present, the rate cannot fall below that share, however certain the model
is. The same holds for present labels at the top:

$$P(\tilde y = 1 \mid g) = f + (1 - f - c)\,\sigma(a g + b).$$

The floor f is the share of absent entries that are marked present. The gap c below 1 is the share
of present entries that are marked absent. Both are fitted by maximum likelihood for all labels
together. Uncertainty of the model that flattens the curve looks like noise. Truth and log-odds
alone cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import expit, logit
from threadpoolctl import threadpool_limits

from credibly.calibrate.auto import FAR, bin_numbers
from credibly.metrics.accumulators import SparseSums
from credibly.targets import UNKNOWN
from credibly.types import Array

Kind = Literal["missing", "extra", "unknown"]
KINDS: tuple[Kind, ...] = ("missing", "extra", "unknown")
"""Marked absent but probably present; marked present but probably absent; not marked at all but
probably present."""

PROBABLY = 0.5
"""A label is probably wrong if that is at least as probable as that it is right."""

BINS = 256
LARGEST = 0.45
"""Noise beyond this share cannot be told from a reversed label."""
USUAL = 0.05
"""Mean of the exponential prior of both shares of errors, which matters where rows are few."""
SPREAD = 0.5
"""Standard deviation of the prior of log slope and intercept: probabilities are calibrated."""
_FAR = 30.0


def log_odds(probabilities: Array) -> Array:
    """Return log-odds within ±30."""
    return np.clip(logit(probabilities.astype(np.float64)), -_FAR, _FAR)


@dataclass(frozen=True)
class NoiseModel:
    """A fitted curve of noisy truth over log-odds.

    Attributes:
        marked_present: share of absent entries that are marked present, f.
        marked_absent: share of present entries that are marked absent, c.
        slope, intercept: parameters of the log-odds of the real presence.
        UNINFORMED: the model of a truth without information, so only the probabilities decide.

    Example:
        >>> noise = NoiseModel(0.02, 0.02, 1.0, 0.0)
        >>> probabilities, targets = np.array([0.95, 0.995, 0.3]), np.array([0, 0, 1])
        >>> noise.error_probability(log_odds(probabilities), targets).round(2)
        array([0.28, 0.8 , 0.05])
        >>> noise.probably_wrong(probabilities, targets)
        array([False,  True, False])
    """

    marked_present: float
    marked_absent: float
    slope: float
    intercept: float
    UNINFORMED: ClassVar[NoiseModel]

    @classmethod
    def fit(cls, odds: Array, targets: Array, counts: Array) -> NoiseModel | None:
        """Return the curve for entries with ``counts``; None unless some are present, some absent.

        Log-odds are rounded to six digits, because sums of rows in another order differ beyond.
        """
        if not 0 < counts @ targets < counts.sum():
            return None
        with threadpool_limits(1):  # for small sums, threads cost time and change the last bits
            return _fit(_binned(np.round(odds, 6), targets, counts))

    def _rates(self, odds: Array) -> tuple[Array, Array]:
        """Return the probabilities that labels are present, and that they are marked present."""
        real = expit(self.slope * odds + self.intercept)
        return real, self.marked_present + (1 - self.marked_present - self.marked_absent) * real

    def error_probability(self, odds: Array, targets: Array) -> Array:
        """Return the probability that each truth is wrong, or that an unknown label is present."""
        real, rate = self._rates(odds)
        extra = self.marked_present * (1 - real) / np.maximum(rate, 1e-300)
        missing = self.marked_absent * real / np.maximum(1 - rate, 1e-300)
        known = np.where(targets == 1, extra, missing)
        return np.where(targets == UNKNOWN, expit(odds), known)

    def suspects(
        self, probabilities: Array, targets: Array, least: float, kinds: Sequence[Kind]
    ) -> Array:
        """Return whether each entry is of these kinds with an error probability ≥ ``least``."""
        f, c = self.marked_present, self.marked_absent
        both = least * (1 - f - c)
        missing_from, extra_to = (
            expit((logit(real) - self.intercept) / self.slope)
            for real in (least * (1 - f) / (c + both), f * (1 - least) / (f + both))
        )
        found = np.zeros(probabilities.shape, dtype=bool)
        if "missing" in kinds:
            found |= (targets == 0) & (probabilities >= missing_from)
        if "extra" in kinds:
            found |= (targets == 1) & (probabilities <= extra_to)
        if "unknown" in kinds:
            found |= (targets == UNKNOWN) & (probabilities >= least)
        return found

    def probably_wrong(self, probabilities: Array, targets: Array) -> Array:
        """Return which known labels are wrong with a probability of at least one half.

        Every count of labels to review uses this definition. Soft and unknown entries are never
        counted.
        """
        return self.suspects(probabilities, targets, PROBABLY, ("missing", "extra"))


NoiseModel.UNINFORMED = NoiseModel(0.5, 0.5, 1.0, 0.0)


@dataclass(frozen=True)
class _Binned:
    """Entries counted in bins of log-odds: centres, entries marked absent and marked present."""

    centres: Array
    absent: Array
    present: Array


def _binned(odds: Array, targets: Array, counts: Array) -> _Binned:
    """Merge fine bins into bins of about equal counts; each has mean log-odds, truth and count."""
    order = np.argsort(odds, kind="stable")
    odds, truth, weights = odds[order], targets[order], counts[order]
    place = np.minimum((np.cumsum(weights) - weights / 2) * BINS / weights.sum(), BINS - 1)
    _, group = np.unique(place.astype(np.int64), return_inverse=True)
    count = np.bincount(group, weights=weights)
    present = np.bincount(group, weights=weights * truth)
    return _Binned(np.bincount(group, weights=weights * odds) / count, count - present, present)


def _fit(bins: _Binned) -> NoiseModel:
    """Fit the curve to binned entries, from several starts."""
    from scipy.optimize import minimize

    weight = bins.absent + bins.present
    total = weight.sum()
    centre = float(bins.centres @ weight / total)
    spread = float(np.sqrt(((bins.centres - centre) ** 2) @ weight / total)) or 1.0
    x = (bins.centres - centre) / spread

    def cost(parameters: Array) -> float:
        log_slope, intercept, low, high = parameters
        floor, gap = LARGEST * expit(low), LARGEST * expit(high)
        steepness = np.exp(log_slope)
        rate = floor + (1 - floor - gap) * expit(steepness * x + intercept)
        rate = np.clip(rate, 1e-12, 1 - 1e-12)
        value = bins.present @ np.log(rate) + bins.absent @ np.log1p(-rate)
        shift = intercept - steepness / spread * centre
        prior = ((log_slope - np.log(spread)) ** 2 + shift**2) / (2 * SPREAD**2)
        return float((prior + (floor + gap) / USUAL - value) / total)

    odds = logit(np.clip(bins.present.sum() / total, 0.01, 0.99))
    starts = [(0.5, odds, -2.0, -2.0), (0.5, odds, -5.0, -5.0), (1.5, odds, -2.0, -2.0)]
    limits = [(-3.0, 5.0), (-40.0, 40.0), (-12.0, 6.0), (-12.0, 6.0)]
    results = [minimize(cost, each, method="L-BFGS-B", bounds=limits) for each in starts]
    log_slope, intercept, low, high = min(results, key=lambda each: each.fun).x
    slope = float(np.exp(log_slope)) / spread
    floor, gap = (float(LARGEST * expit(share)) for share in (low, high))
    return NoiseModel(floor, gap, slope, float(intercept - slope * centre))


class LogOddsHistogram(SparseSums):
    """Counts and sums of log-odds in fine bins, for each label, of present and absent entries.

    A bin stores the mean of its log-odds. A fit to bins differs from a fit to entries only through
    the curvature of the loss within a bin.

    Args:
        num_labels: number of labels; 1 pools all labels.

    Example:
        >>> histogram = LogOddsHistogram(2)
        >>> histogram.update(np.array([0, 1, 1]), np.array([-1.5, 2.0, 2.0]), np.array([0, 1, 1]))
        >>> histogram.bins()[3]
        array([1., 2.])
    """

    def __init__(self, num_labels: int) -> None:
        self.num_labels = num_labels
        self._bins = 2 * FAR + 3
        cells = num_labels * self._bins * 2
        self.cells = np.zeros((cells, 2))  # number of entries, sum of their log-odds

    def update(self, labels: Array, log_odds: Array, targets: Array) -> None:
        """Add entries of known, hard truth, each (entries,), with the index of their label."""
        keys = (labels.astype(np.int64) * self._bins + bin_numbers(log_odds)) * 2
        spots = keys + targets.astype(np.int64)
        for column, weights in enumerate((None, log_odds)):
            self.cells[:, column] += np.bincount(spots, weights, len(self.cells))

    def bins(self) -> tuple[Array, Array, Array, Array]:
        """Return label, mean log-odds, target (0 or 1) and count of the non-empty bins."""
        keys = np.flatnonzero(self.cells[:, 0])
        counts, sums = self.cells[keys].T
        return keys // 2 // self._bins, sums / counts, (keys % 2).astype(np.float64), counts
