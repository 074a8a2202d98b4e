"""Whether probabilities mean what they say: calibration errors and reliability diagrams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like
from credibly.metrics import kernels
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.inputs import mean_known, probability_pair
from credibly.metrics.label_sets import unknown_below_top
from credibly.metrics.proportions import Band, proportion_interval
from credibly.notebook import html_table
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike

Kind = Literal["ace", "mce", "ece"]
Average = Literal["pooled", "macro"] | None
KINDS = ("ace", "mce", "ece")
COUNT, CONFIDENCE, TARGET = range(3)


class CalibrationBins(Accumulator):
    """Count, sum of probabilities and sum of targets of equal-width bins, for each label.

    Every calibration measure is a function of these sums over known entries.

    Args:
        num_labels: number of labels.
        bins: number of bins.
    """

    def __init__(self, num_labels: int, bins: int = 15) -> None:
        if int(checks.at_least("bins", bins, 1)) != bins:
            raise checks.InputError(f"`bins` must be a whole number; got {bins!r}.")
        self.sums = {"bins": np.zeros((num_labels, int(bins), 3))}

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add checked entries, (rows, labels)."""
        total, dtype = self.sums["bins"], probabilities.dtype
        values, truth = np.ascontiguousarray(probabilities), np.ascontiguousarray(targets)
        bins = total.shape[1]
        kernels.add_to_bins(values, truth, _edges(bins, dtype), dtype.type(bins), total)

    def error(self, kind: Kind = "ace", min_count: float = 0, average: Average = "pooled") -> Any:
        """Return ``metrics.calibration_error`` of all rows."""
        checks.choice("kind", kind, KINDS)
        checks.choice("average", average, ("pooled", "macro", None))
        checks.at_least("min_count", min_count, 0)
        total = self.sums["bins"].sum(0) if average == "pooled" else self.sums["bins"]
        each = bin_error(total, kind, min_count)[()]
        return mean_known(each) if average == "macro" else each

    def reliability(
        self, per_label: bool = False, band: Band = "wilson", level: float = 0.95
    ) -> Reliability:
        """Return ``metrics.reliability`` of all rows."""
        total = self.sums["bins"] if per_label else self.sums["bins"].sum(0)
        count = total[..., COUNT]
        lower, upper = proportion_interval(total[..., TARGET], count, level, band)
        with np.errstate(invalid="ignore"):
            confidence = total[..., CONFIDENCE] / count
            frequency = total[..., TARGET] / count
        edges = _edges(total.shape[-2])
        return Reliability(edges, count.astype(np.int64), confidence, frequency, lower, upper)


def calibration_bins(probabilities: Array, targets: Array, bins: int = 15) -> CalibrationBins:
    """Return the bins of checked entries."""
    found = CalibrationBins(probabilities.shape[1], bins)
    found.update(probabilities, targets)
    return found


def row_bins(probabilities: Array, targets: Array, bins: int) -> Array:
    """Return the bins of each row, (rows, bins, 3)."""
    return calibration_bins(probabilities.T, targets.T, bins).sums["bins"]


def bin_error(total: Array, kind: str, min_count: float) -> Array:
    """Return ECE, ACE or MCE along the bins of ``total`` (…, bins, 3); NaN where no bin qualifies.

    ACE and MCE count bins with at least ``min_count`` entries. ECE counts all non-empty bins: it
    weighs them by count, so that small ones hardly matter.
    """
    count = total[..., COUNT]
    kept = count >= least_count(kind, min_count)
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.abs(total[..., CONFIDENCE] - total[..., TARGET]) / count
        gap = np.where(kept, gap, 0.0)
        if kind == "mce":
            return np.where(kept.any(-1), gap.max(-1), np.nan)
        weight = kept * count if kind == "ece" else kept
        return (gap * weight).sum(-1) / weight.sum(-1)


def least_count(kind: str, min_count: float) -> float:
    """Return how many entries a bin needs to count for an error of this kind."""
    return 1 if kind == "ece" else max(min_count, 1)


def _edges(bins: int, dtype: type | np.dtype = np.float64) -> Array:
    """``bins + 1`` edges k/bins, each correctly rounded in the precision of the probabilities."""
    return (np.arange(bins + 1) / bins).astype(dtype)


@dataclass(frozen=True, repr=False)
class Reliability:
    """A reliability diagram: ``bins`` values each, or (labels, bins) with ``per_label=True``.

    Empty bins have NaN confidence and frequency, and a band of [0, 1].
    """

    edges: Any
    """``bins + 1`` edges; bin k holds edges[k] ≤ p < edges[k+1], the last bin p = 1 too."""
    counts: Any
    """Known entries in the bin."""
    confidence: Any
    """Mean probability in the bin."""
    frequency: Any
    """Mean target in the bin: the share present."""
    lower: Any
    """Lower end of the frequency's confidence band."""
    upper: Any
    """Upper end of the frequency's confidence band."""

    def __repr__(self) -> str:
        bins = self.counts.shape[-1]
        return f"Reliability({bins} bins, {int(self.counts.sum()):,} entries)"

    def _repr_html_(self) -> str:
        """Return the bins that are not empty as a table, for notebooks."""
        if self.counts.ndim > 1:
            return html_table(f"{self!r}, one diagram per label", [], [])
        shown = [place for place, count in enumerate(self.counts) if count]
        rows = [
            [
                float(self.confidence[k]),
                float(self.frequency[k]),
                float(self.lower[k]),
                float(self.upper[k]),
                int(self.counts[k]),
            ]
            for k in shown
        ]
        heads = ["predicted", "observed", "from", "to (95 %)", "entries"]
        return html_table(repr(self), heads, rows, total=len(rows))


def calibration_error(
    probabilities: ArrayLike,
    targets: TargetsLike,
    kind: Kind = "ace",
    bins: int = 15,
    min_count: int = 0,
    average: Average = "pooled",
    *,
    coding: Coding | None = None,
) -> Any:
    """Distance between confidence and frequency over equal-width bins.

    Bin k of K holds k/K ≤ p < (k+1)/K, and 1 goes to the last bin. Targets may be soft: a bin's
    frequency is its mean target.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: of the same shape, 1, 0, soft or unknown.
        kind: of |confidence − frequency|, ``"ece"`` is the mean over all non-empty bins weighted
            by count, ``"ace"`` the unweighted mean over bins, ``"mce"`` the largest.
        bins: number of equal-width bins.
        min_count: known entries that a bin needs to count for ACE and MCE (MCE is noise without,
            say, 30). ECE has no use for it: small bins have small weights.
        average: ``"pooled"`` bins all (row, label) entries together; ``None`` returns one error
            per label, ``"macro"`` their mean. These have very different values.
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``.

    Returns:
        The error, or one per label; NaN where no bin counts.

    Example:
        >>> probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.8, 0.3], [0.9, 0.2]])
        >>> targets = np.array([[1, 0], [1, 0], [0, 1], [1, 0]])
        >>> round(float(calibration_error(probabilities, targets, "ece", bins=5)), 4)
        0.15
    """
    found = calibration_bins(*probability_pair(probabilities, targets, coding), bins)
    return like(found.error(kind, min_count, average), probabilities, targets)


def top_k_calibration_error(
    probabilities: ArrayLike,
    targets: TargetsLike,
    k: int = 4,
    kind: Kind = "ece",
    bins: int = 15,
    min_count: int = 0,
    *,
    coding: Coding | None = None,
) -> Any:
    """Calibration error of each row's ``k`` most probable (known) labels, pooled.

    ECE-top-k of the quasibinary classifiers (Liao et al.), there with k = 4. Ties
    at the k-th place go to the label that comes first.

    Example:
        >>> probabilities = np.array([[0.75, 0.25, 0.5], [1.0, 0.0, 0.0]])
        >>> float(top_k_calibration_error(probabilities, np.array([[1, 0, 0], [1, 0, 0]]), k=1))
        0.125
    """
    values, truth = probability_pair(probabilities, targets, coding)
    top = unknown_below_top(values, truth, k)
    error = calibration_bins(values, top, bins).error(kind, min_count)
    return like(error, probabilities, targets)


def calibration_noise(
    probabilities: ArrayLike,
    targets: TargetsLike,
    kind: Kind = "ace",
    bins: int = 15,
    min_count: int = 0,
    average: Average = "pooled",
    repeats: int = 20,
    seed: int = 0,
    *,
    coding: Coding | None = None,
) -> Any:
    """Calibration error that these probabilities would show if they were exactly right.

    The mean over ``repeats`` of the error against targets drawn from the probabilities, unknown
    where ``targets`` are: finite data look miscalibrated, rare labels most of all. An error near
    this value is no evidence against the probabilities.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> rates = rng.random((50, 2))
        >>> targets = (rng.random((50, 2)) < rates).astype(int)
        >>> round(float(calibration_error(rates, targets)), 3)
        0.081
        >>> round(float(calibration_noise(rates, targets)), 3)
        0.127
    """
    values, truth = probability_pair(probabilities, targets, coding)
    checks.at_least("repeats", repeats, 1)
    # A stream of its own: probabilities made with the same seed must not meet their own numbers.
    rng = np.random.default_rng((seed, 17))
    errors = [
        calibration_bins(values, _redrawn(values, truth, rng), bins).error(kind, min_count, average)
        for _ in range(int(repeats))
    ]
    return like(np.mean(errors, axis=0), probabilities, targets)


def _redrawn(values: Array, truth: Array, rng: np.random.Generator) -> Array:
    drawn = (rng.random(values.shape) < values).astype(np.int8)
    return np.where(truth >= 0, drawn, np.int8(-1))


def reliability(
    probabilities: ArrayLike,
    targets: TargetsLike,
    bins: int = 15,
    per_label: bool = False,
    band: Band = "wilson",
    level: float = 0.95,
    *,
    coding: Coding | None = None,
) -> Reliability:
    """Counts, mean confidence and frequency of each bin, with a confidence band.

    ``band="wilson"`` is close to its level on average, ``"clopper-pearson"`` never below it. For
    soft targets the band is that of 0/1 targets with the same mean, hence too wide if anything.

    Example:
        >>> diagram = reliability(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 0]), bins=2)
        >>> diagram.counts, diagram.confidence, diagram.frequency
        (array([2, 2]), array([0.15, 0.85]), array([0. , 0.5]))
        >>> diagram.lower.round(3), diagram.upper.round(3)
        (array([0.   , 0.095]), array([0.658, 0.905]))
    """
    found = calibration_bins(*probability_pair(probabilities, targets, coding), bins)
    diagram = found.reliability(per_label, band, level)
    parts = {name: like(part, probabilities, targets) for name, part in vars(diagram).items()}
    return Reliability(**parts)
