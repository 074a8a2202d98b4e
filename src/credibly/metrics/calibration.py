"""Calibration errors, reliability diagrams and proper scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.compiled import compiled
from credibly.metrics.accumulators import Accumulator, mean_known, probability_pair
from credibly.metrics.label_sets import unknown_below_top
from credibly.notebook import html_table
from credibly.targets import TargetsLike
from credibly.types import Array, ArrayLike


def proportion_interval(successes: object, trials: object, level: float = 0.95) -> tuple[Any, Any]:
    """Return Wilson's confidence limits of a probability, elementwise; [0, 1] without trials.

    They invert the score test. Their mean coverage is close to ``level``.

    Example:
        >>> low, high = proportion_interval(8, 10)
        >>> round(float(low), 4), round(float(high), 4)
        (0.4902, 0.9433)
    """
    from scipy.special import ndtri

    checks.fraction("level", level, low_open=True, high_open=True)
    k, n = to_numpy(successes).astype(np.float64), to_numpy(trials).astype(np.float64)
    if not ((k >= 0) & (k <= n)).all():
        raise checks.InputError(
            "`successes` must lie between 0 and `trials`; "
            f"got {k.min():g} to {k.max():g} of {n.min():g} to {n.max():g}."
        )
    z = ndtri((1 + level) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = (k + z * z / 2) / (n + z * z)
        half = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    # At 0 and n successes the limits are exactly 0 and 1, but the difference would be rounded.
    low, high = np.where(k == 0, 0.0, centre - half)[()], np.where(k == n, 1.0, centre + half)[()]
    return like(low, successes, trials), like(high, successes, trials)


Average = Literal["pooled", "macro"] | None
COUNT, LOG_LOSS, SQUARED_ERROR = range(3)
CONFIDENCE, TARGET = 1, 2
"""Columns of the sums of ``ProperScores``, and of ``CalibrationBins``."""


class ProperScores(Accumulator):
    """Log loss and Brier score of each label.

    Args:
        num_labels: number of labels.
        floor: as in ``log_loss``.
    """

    def __init__(self, num_labels: int, floor: float | None = None) -> None:
        self.floor = floor
        self.sums = {"proper": np.zeros((num_labels, 3))}

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add checked entries, (rows, labels)."""
        values, truth = np.ascontiguousarray(probabilities), np.ascontiguousarray(targets)
        floor = smallest(values.dtype, self.floor)
        _add_proper_scores(values, truth, floor, self.sums["proper"])

    @property
    def known(self) -> int:
        """Return the number of entries with a known target."""
        return int(self.sums["proper"][:, COUNT].sum())

    def log_loss(self, average: Average = "pooled") -> Array:
        """Return ``metrics.log_loss`` of all rows."""
        return self._mean(LOG_LOSS, average)

    def brier(self, average: Average = "pooled") -> Array:
        """Return ``metrics.brier`` of all rows."""
        return self._mean(SQUARED_ERROR, average)

    def _mean(self, which: int, average: Average) -> Array:
        checks.choice("average", average, ("pooled", "macro", None))
        total = self.sums["proper"].sum(0) if average == "pooled" else self.sums["proper"]
        with np.errstate(invalid="ignore"):
            each = total[..., which] / total[..., COUNT]
        return mean_known(each) if average == "macro" else each


@compiled(error_model="numpy")
def _add_proper_scores(probabilities: Array, targets: Array, floor: float, sums: Array) -> None:
    """Add every known entry to ``sums[label]``: count, log loss, squared error."""
    for row in range(probabilities.shape[0]):
        for t in range(probabilities.shape[1]):
            p, y = float(probabilities[row, t]), float(targets[row, t])
            if y < 0:
                continue
            value = 0.0
            if y > 0:
                value -= y * math.log(max(p, floor))
            if y < 1:
                value -= (1 - y) * math.log(max(1 - p, floor))
            sums[t, 0] += 1
            sums[t, 1] += value
            sums[t, 2] += (p - y) ** 2


def log_loss(
    probabilities: ArrayLike,
    targets: TargetsLike,
    average: Average = "pooled",
    floor: float | None = None,
) -> ArrayLike:
    """Return the mean of −y log p − (1−y) log(1−p) over known entries.

    ``average="pooled"`` is the mean over all entries, ``None`` returns one value per label, and
    ``"macro"`` their mean. Probabilities below ``floor`` count as ``floor``, so a 0 that is only a
    rounding error does not make the mean infinite. The default is the resolution of the dtype, as
    in scikit-learn (1.2e-7 for float32 and half precision, 2.2e-16 for float64). 0 turns it off.

    Example:
        >>> probabilities, targets = np.array([[0.8, 0.1]]), np.array([[1, 0]])
        >>> round(float(log_loss(probabilities, targets)), 6)
        0.164252
        >>> float(log_loss(np.array([[0.0]]), np.array([[1]]), floor=0))
        inf
    """
    scores = proper_scores(*probability_pair(probabilities, targets), floor)
    return like(scores.log_loss(average), probabilities, targets)


def brier(probabilities: ArrayLike, targets: TargetsLike, average: Average = "pooled") -> ArrayLike:
    """Return the mean squared difference of probability and target over known entries.

    Example:
        >>> round(float(brier(np.array([[0.8, 0.1]]), np.array([[1, 0]]))), 6)
        0.025
    """
    scores = proper_scores(*probability_pair(probabilities, targets))
    return like(scores.brier(average), probabilities, targets)


def kl_to_truth(
    probabilities: ArrayLike,
    truth: ArrayLike,
    *,
    exclusive: bool = False,
    floor: float | None = None,
) -> ArrayLike:
    r"""Return the mean Kullback–Leibler divergence from known probabilities η to the estimates.

    $$\mathrm{KL} = \eta \log\frac{\eta}{p} + (1-\eta) \log\frac{1-\eta}{1-p}$$

    per entry. It is the part of the log loss that better probabilities could remove. With
    ``exclusive=True``, rows are distributions over labels that exclude each other (shares of human
    votes), and the result is the mean over rows of Σ η log(η/p). In ``truth``, −1 is unknown.
    ``floor`` is as in ``log_loss``.

    Example:
        >>> round(float(kl_to_truth(np.array([[0.5]]), np.array([[0.9]]))), 6)
        0.368064
        >>> shares = np.array([[0.5, 0.5, 0.0]])
        >>> round(float(kl_to_truth(np.array([[0.25, 0.5, 0.25]]), shares, exclusive=True)), 6)
        0.346574
    """
    from scipy.special import rel_entr

    values, rates = probability_pair(probabilities, truth)
    lowest = smallest(values.dtype, floor)
    p, rates = values.astype(np.float64), rates.astype(np.float64)
    known = rates >= 0
    rates = np.where(known, rates, 0.0)
    gain = rel_entr(rates, np.maximum(p, lowest))
    if exclusive:
        whole = known.all(1)
        return like(mean_known(np.where(whole, gain.sum(1), np.nan)), probabilities, truth)
    each = np.where(known, gain + rel_entr(1 - rates, np.maximum(1 - p, lowest)), np.nan)
    return like(mean_known(each), probabilities, truth)


def smallest(dtype: np.dtype, floor: float | None) -> float:
    """Return the smallest probability that is not raised to the floor."""
    if floor is None:
        return float(np.finfo(dtype).eps)
    return checks.fraction("floor", floor, high_open=True)


def proper_scores(probabilities: Array, targets: Array, floor: float | None = None) -> ProperScores:
    """Return the proper scores of checked entries."""
    scores = ProperScores(probabilities.shape[1], floor)
    scores.update(probabilities, targets)
    return scores


def row_scores(probabilities: Array, targets: Array, floor: float | None = None) -> Array:
    """Return the number of known entries, log loss and squared error of each row, (rows, 3)."""
    return proper_scores(probabilities.T, targets.T, floor).sums["proper"]


def entry_log_loss(probabilities: Array, targets: Array) -> Array:
    """Return the log loss of each checked entry, (rows, labels); 0 if the target is unknown.

    Example:
        >>> entry_log_loss(np.array([[0.5, 0.9]]), np.array([[1, -1]])).round(4)
        array([[0.6931, 0.    ]])
    """
    each = proper_scores(probabilities.reshape(1, -1), targets.reshape(1, -1))
    return each.sums["proper"][:, LOG_LOSS].reshape(probabilities.shape)


Kind = Literal["ace", "mce", "ece"]
KINDS = ("ace", "mce", "ece")
ERRORS = {"ACE": "ace", "MCE": "mce", "ECE": "ece"}
"""The kind of each calibration error by its name in tables."""


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

    @property
    def num_bins(self) -> int:
        """Return the number of bins."""
        return self.sums["bins"].shape[1]

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add checked entries, (rows, labels)."""
        bins, dtype = self.num_bins, probabilities.dtype
        values, truth = np.ascontiguousarray(probabilities), np.ascontiguousarray(targets)
        _add_to_bins(values, truth, _edges(bins, dtype), dtype.type(bins), self.sums["bins"])

    def error(self, kind: Kind = "ace", min_count: float = 0, average: Average = "pooled") -> Array:
        """Return ``metrics.calibration_error`` of all rows."""
        checks.choice("kind", kind, KINDS)
        checks.choice("average", average, ("pooled", "macro", None))
        checks.at_least("min_count", min_count, 0)
        total = self.sums["bins"].sum(0) if average == "pooled" else self.sums["bins"]
        each = bin_error(total, kind, min_count)[()]
        return mean_known(each) if average == "macro" else each

    def reliability(self, per_label: bool = False, level: float = 0.95) -> ReliabilityDiagram:
        """Return ``metrics.reliability`` of all rows."""
        total = self.sums["bins"] if per_label else self.sums["bins"].sum(0)
        count = total[..., COUNT]
        lower, upper = proportion_interval(total[..., TARGET], count, level)
        with np.errstate(invalid="ignore"):
            confidence = total[..., CONFIDENCE] / count
            frequency = total[..., TARGET] / count
        edges = _edges(total.shape[-2])
        return ReliabilityDiagram(
            edges, count.astype(np.int64), confidence, frequency, lower, upper
        )


@compiled(error_model="numpy")
def _add_to_bins(
    probabilities: Array, targets: Array, edges: Array, bins: float, sums: Array
) -> None:
    """Add every known entry to ``sums[label, bin]``: count, probability, target.

    Bins are closed on the left, the last one on both sides. ``bins`` and ``edges`` have the dtype
    of the probabilities. Unsigned offsets into the flat sums avoid numba's test for negative
    indices; this is four times faster than three subscripts.
    """
    one, top, flat = np.uint64(1), np.uint64(len(edges) - 2), sums.reshape(-1)
    for row in range(probabilities.shape[0]):
        for t in range(probabilities.shape[1]):
            p, y = probabilities[row, t], targets[row, t]
            if y >= 0 and p >= 0 and p <= 1:
                k = min(np.uint64(np.int64(p * bins)), top)
                # The product can round across an edge, so compare with the edges.
                if p < edges[k]:
                    k -= one
                elif p >= edges[k + one] and k < top:
                    k += one
                at = (np.uint64(t) * (top + one) + k) * np.uint64(3)
                flat[at] += 1
                flat[at + one] += p
                flat[at + one + one] += y


def table_numbers(
    bins: CalibrationBins, proper: ProperScores, min_count: float, ending: str = ""
) -> dict[str, Array]:
    """Return calibration errors and proper scores by their names in tables."""
    return {
        f"ACE{ending}": bins.error("ace", min_count),
        f"MCE{ending}": bins.error("mce", min_count),
        f"ECE{ending}": bins.error("ece"),
        f"NLL{ending}": proper.log_loss(),
        f"Brier{ending}": proper.brier(),
    }


def calibration_bins(probabilities: Array, targets: Array, bins: int = 15) -> CalibrationBins:
    """Return the bins of checked entries."""
    found = CalibrationBins(probabilities.shape[1], bins)
    found.update(probabilities, targets)
    return found


def row_bins(probabilities: Array, targets: Array, bins: int) -> Array:
    """Return the bins of each row, (rows, bins, 3)."""
    return calibration_bins(probabilities.T, targets.T, bins).sums["bins"]


def bin_error(total: Array, kind: str, min_count: float) -> Array:
    """Return ECE, ACE or MCE over the bins of ``total`` (…, bins, 3); NaN if no bin counts.

    For ACE and MCE, a bin counts if it has at least ``min_count`` entries. For ECE all non-empty
    bins count: they are weighted by count, so small bins have little effect.
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
    """Return the number of entries that a bin needs to count for an error of this kind."""
    return 1 if kind == "ece" else max(min_count, 1)


def _edges(bins: int, dtype: type | np.dtype = np.float64) -> Array:
    """Return the ``bins + 1`` edges k/bins, correctly rounded in the dtype of the probabilities."""
    return (np.arange(bins + 1) / bins).astype(dtype)


@dataclass(frozen=True, repr=False)
class ReliabilityDiagram:
    """A reliability diagram: ``bins`` values each, or (labels, bins) with ``per_label=True``.

    Empty bins have NaN confidence and frequency, and a band of [0, 1].
    """

    edges: Array
    """``bins + 1`` edges; bin k holds edges[k] ≤ p < edges[k+1], the last bin p = 1 too."""
    counts: Array
    """Known entries in the bin."""
    confidence: Array
    """Mean probability in the bin."""
    frequency: Array
    """Mean target in the bin: the share present."""
    lower: Array
    """Lower end of the frequency's confidence band."""
    upper: Array
    """Upper end of the frequency's confidence band."""

    def __repr__(self) -> str:
        bins = self.counts.shape[-1]
        return f"ReliabilityDiagram({bins} bins, {int(self.counts.sum()):,} entries)"

    def _repr_html_(self) -> str:
        """Return the non-empty bins as a table, for notebooks."""
        if self.counts.ndim > 1:
            return html_table(f"{self!r}, one diagram per label", [], [])
        columns = self.confidence, self.frequency, self.lower, self.upper, self.counts
        filled = (row for row in zip(*columns, strict=True) if row[-1])
        rows = [[*map(float, values), int(count)] for *values, count in filled]
        heads = ["predicted", "observed", "from", "to (95 %)", "entries"]
        return html_table(repr(self), heads, rows, total=len(rows))


def calibration_error(
    probabilities: ArrayLike,
    targets: TargetsLike,
    kind: Kind = "ace",
    bins: int = 15,
    min_count: int = 0,
    average: Average = "pooled",
) -> ArrayLike:
    """Return the distance between confidence and frequency over equal-width bins.

    Bin k of K contains k/K ≤ p < (k+1)/K; 1 belongs to the last bin. Targets may be soft: the
    frequency of a bin is its mean target.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: of the same shape: 1, 0, soft or unknown.
        kind: ``"ece"`` is the mean of |confidence − frequency| over all non-empty bins, weighted by
            count; ``"ace"`` is the unweighted mean; ``"mce"`` is the maximum.
        bins: number of equal-width bins.
        min_count: known entries that a bin needs to count for ACE and MCE (without 30 or so, MCE is
            mostly noise). ECE ignores it because small bins have small weights.
        average: ``"pooled"`` bins all (row, label) entries together; ``None`` returns one error
            per label, ``"macro"`` their mean. These values differ strongly.

    Returns:
        The error, or one per label; NaN if no bin counts.

    Example:
        >>> probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.8, 0.3], [0.9, 0.2]])
        >>> targets = np.array([[1, 0], [1, 0], [0, 1], [1, 0]])
        >>> round(float(calibration_error(probabilities, targets, "ece", bins=5)), 4)
        0.15
    """
    found = calibration_bins(*probability_pair(probabilities, targets), bins)
    return like(found.error(kind, min_count, average), probabilities, targets)


def top_k_calibration_error(
    probabilities: ArrayLike,
    targets: TargetsLike,
    k: int = 4,
    kind: Kind = "ece",
    bins: int = 15,
    min_count: int = 0,
) -> ArrayLike:
    """Return the pooled calibration error of each row's ``k`` most probable (known) labels.

    This is ECE-top-k of the quasibinary classifiers (Liao et al., with k = 4). Among labels that
    tie at rank k, the first one counts.

    Example:
        >>> probabilities = np.array([[0.75, 0.25, 0.5], [1.0, 0.0, 0.0]])
        >>> float(top_k_calibration_error(probabilities, np.array([[1, 0, 0], [1, 0, 0]]), k=1))
        0.125
    """
    values, truth = probability_pair(probabilities, targets)
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
) -> ArrayLike:
    """Return the calibration error that these probabilities would have if they were exactly right.

    The result is the mean error over ``repeats`` draws of targets from the probabilities; targets
    that are unknown in ``targets`` stay unknown. Finite data look miscalibrated, and rare labels
    most of all. An error near this value is not evidence against the probabilities.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> rates = rng.random((50, 2))
        >>> targets = (rng.random((50, 2)) < rates).astype(int)
        >>> round(float(calibration_error(rates, targets)), 3)
        0.081
        >>> round(float(calibration_noise(rates, targets)), 3)
        0.127
    """
    values, truth = probability_pair(probabilities, targets)
    checks.at_least("repeats", repeats, 1)
    # A separate stream: probabilities made with the same seed must not get the same draws.
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
    level: float = 0.95,
) -> ReliabilityDiagram:
    """Return counts, mean confidence and frequency of each bin, with Wilson confidence bands.

    For soft targets the band is that of 0/1 targets with the same mean, so it is never too narrow.

    Example:
        >>> diagram = reliability(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 0]), bins=2)
        >>> diagram.counts, diagram.confidence, diagram.frequency
        (array([2, 2]), array([0.15, 0.85]), array([0. , 0.5]))
        >>> diagram.lower.round(3), diagram.upper.round(3)
        (array([0.   , 0.095]), array([0.658, 0.905]))
    """
    found = calibration_bins(*probability_pair(probabilities, targets), bins)
    diagram = found.reliability(per_label, level)
    parts = {name: like(part, probabilities, targets) for name, part in vars(diagram).items()}
    return ReliabilityDiagram(**parts)
