"""Whether probabilities mean what they say: calibration errors and reliability diagrams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like
from credibly.metrics import binning
from credibly.metrics.inputs import mean_known, probability_pair
from credibly.metrics.proportions import Band, proportion_interval
from credibly.metrics.top_k import unknown_below_top
from credibly.notebook import html_table
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike

Kind = Literal["ace", "mce", "ece"]
Average = Literal["pooled", "macro"] | None
KINDS = ("ace", "mce", "ece")


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
    checks.choice("kind", kind, KINDS)
    checks.choice("average", average, ("pooled", "macro", None))
    checks.at_least("min_count", min_count, 0)
    values, truth = probability_pair(probabilities, targets, coding)
    total = binning.sums(values, truth, binning.number_of_bins(bins))
    return like(averaged_error(total, kind, min_count, average), probabilities, targets)


def averaged_error(total: Array, kind: Kind, min_count: float, average: Average) -> Any:
    """Calibration error from the sums of bins (labels, bins, 3)."""
    if average == "pooled":
        return binning.calibration_error(total.sum(0), kind, min_count)[()]
    each = binning.calibration_error(total, kind, min_count)
    return mean_known(each) if average == "macro" else each


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
    error = calibration_error(values, Targets(top), kind, bins, min_count)
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
        calibration_error(
            values, Targets(_redrawn(values, truth, rng)), kind, bins, min_count, average
        )
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
    values, truth = probability_pair(probabilities, targets, coding)
    total = binning.sums(values, truth, binning.number_of_bins(bins))
    diagram = diagram_of(total if per_label else total.sum(0), band, level)
    parts = {name: like(part, probabilities, targets) for name, part in vars(diagram).items()}
    return Reliability(**parts)


def diagram_of(total: Array, band: Band = "wilson", level: float = 0.95) -> Reliability:
    """The diagram of the sums of bins (…, bins, 3)."""
    count = total[..., binning.COUNT]
    lower, upper = proportion_interval(total[..., binning.TARGET], count, level, band)
    with np.errstate(invalid="ignore"):
        confidence = total[..., binning.CONFIDENCE] / count
        frequency = total[..., binning.TARGET] / count
    edges = binning.edges(total.shape[-2])
    return Reliability(edges, count.astype(np.int64), confidence, frequency, lower, upper)
