"""The numbers of every table, by the names that tables print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.metrics import label_sets
from credibly.metrics.accumulators import Accumulator, Accumulators, Codes
from credibly.metrics.calibration import CONFIDENCE, COUNT, TARGET, CalibrationBins
from credibly.metrics.inputs import is_soft, mean_known, probability_pair
from credibly.metrics.inputs import label_sets as as_sets
from credibly.metrics.label_sets import SetCounts, top_k_sets, unknown_below_top
from credibly.metrics.proper import ProperScores
from credibly.metrics.ranges import RankCounts, precision_influence
from credibly.metrics.ranking import average_precision, sample_average_precision
from credibly.metrics.zero_labels import ZeroLabels
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    from credibly.metrics.bootstrap import Draws
    from credibly.metrics.intervals import Interval

MIN_COUNT = 30
"""Entries that a bin needs to count for ACE and MCE in every table; ECE counts all bins."""

TOP = 4
"""Labels per row of F1-top-4 and ECE-top-4, as in the quasibinary paper."""

_ROWS_AT_ONCE = 16_384


class RowPrecision(Accumulator):
    """mAP@x: the mean over rows with a positive of their average precision."""

    def __init__(self) -> None:
        self.sums = {"precision": np.zeros(2)}  # sum, and number of rows that have one

    def update(self, ranked: Array, targets: Array) -> None:
        """Add checked rows of what ranks their labels, and decoded targets."""
        each = to_numpy(sample_average_precision(ranked, Targets(targets)))
        self.sums["precision"] += np.nansum(each), (~np.isnan(each)).sum()

    def mean(self) -> float:
        """Return the mean over all rows; NaN without a positive."""
        total, rows = self.sums["precision"]
        return float(total / rows) if rows else float("nan")


class TopFour(Accumulators):
    """F1 and calibration error of each row's four most probable labels.

    Args:
        num_labels: number of labels, more than four.
        bins: bins of the calibration error.
    """

    def __init__(self, num_labels: int, bins: int) -> None:
        self.sets, self.bins = SetCounts(num_labels), CalibrationBins(num_labels, bins)
        self.parts = {"sets": self.sets, "bins": self.bins}

    def update(self, values: Array, ranked: Array, targets: Array) -> None:
        """Add checked rows of probabilities, what ranks labels, and decoded targets."""
        self.bins.update(values, unknown_below_top(values, targets, TOP))
        self.sets.update(top_k_sets(ranked, targets, TOP), targets)

    def f1_terms(self) -> tuple[Array, Array]:
        """Return what F1-top-4 is linear in, by label: 1 / (its sum × labels), and its F1."""
        hits, returned, present, known = self.sets.sums["counts"]
        total = returned + present
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        return inverse / max(int((known > 0).sum()), 1), 2 * hits * inverse


class Summary(Accumulators):
    """The numbers of ``summary`` accumulated over batches of rows.

    They equal those of the function on all rows at once, in memory that depends on labels and bins
    alone. Average precision per label needs all scores of a label together: ``numbers`` and
    ``by_label`` take it as an argument.

    Args:
        num_labels: number of labels.
        bins: equal-width bins of the calibration errors.
        floor: as in ``log_loss``.
        zero: whether to count rows without a label, which soft targets cannot define.
        ranks: whether to count what ranks rows by its leading bits (``RankCounts``).
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``. Without it
            every number is refused where nothing but −1 and +1 was seen.

    Example:
        >>> summary = Summary(num_labels=2)
        >>> summary.update(np.array([[0.8, 0.1]]), np.array([[1, 0]]))
        >>> summary.update(np.array([[0.6, 0.3]]), np.array([[0, -1]]))
        >>> summary.rows, summary.known
        (2, 3)
        >>> round(float(summary.numbers()["Brier"]), 4)
        0.1367
    """

    def __init__(
        self,
        num_labels: int,
        bins: int = 15,
        floor: float | None = None,
        *,
        zero: bool = False,
        ranks: bool = False,
        coding: Coding | None = None,
    ) -> None:
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self.bins = CalibrationBins(self.num_labels, bins)
        self.proper = ProperScores(self.num_labels, floor)
        self.precision, self.codes = RowPrecision(), Codes(coding)
        self.top = TopFour(self.num_labels, bins) if self.num_labels > TOP else None
        self.zero = ZeroLabels(self.num_labels) if zero else None
        self.ranks = RankCounts(self.num_labels) if ranks else None
        self.count = Accumulator()
        self.count.sums = {"rows": np.zeros(1)}
        parts = {
            "bins": self.bins,
            "proper": self.proper,
            "precision": self.precision,
            "codes": self.codes,
            "top": self.top,
            "zero": self.zero,
            "ranks": self.ranks,
            "count": self.count,
        }
        self.parts = {name: part for name, part in parts.items() if part is not None}

    @property
    def num_bins(self) -> int:
        """Return the number of bins of the calibration errors."""
        return self.bins.sums["bins"].shape[1]

    @property
    def rows(self) -> int:
        """Return how many rows were seen."""
        return int(self.count.sums["rows"][0])

    @property
    def known(self) -> int:
        """Return how many entries with a known target were seen."""
        return self.proper.known

    def update(
        self, probabilities: ArrayLike, targets: TargetsLike, scores: ArrayLike | None = None
    ) -> None:
        """Add a batch of rows; ``scores`` rank the labels of a row where given."""
        values, truth = probability_pair(probabilities, targets, self.codes.coding, whole=False)
        if values.shape[1] != self.num_labels:
            raise checks.InputError(
                f"`probabilities` must have {self.num_labels} labels as in the constructor; "
                f"got {values.shape[1]}."
            )
        ranked = values if scores is None else to_numpy(scores)
        if not isinstance(targets, Targets):
            self.codes.update(targets, truth)
        self.count.sums["rows"] += len(values)
        self.precision.update(ranked, truth)
        self.bins.update(values, truth)
        self.proper.update(values, truth)
        if self.top is not None:
            self.top.update(values, ranked, truth)
        if self.zero is not None:
            self.zero.update(values, truth)
        if self.ranks is not None:
            self.ranks.update(ranked, truth)

    def numbers(
        self, label_precisions: ArrayLike | None = None, min_count: int = MIN_COUNT
    ) -> dict[str, float]:
        """Return the numbers of ``metrics.summary`` by their names in tables.

        Args:
            label_precisions: average precision of each label, for mAP@y.
            min_count: entries that a bin needs to count for ACE and MCE, the same bins for both.
                ECE counts all non-empty bins.
        """
        self.codes.check()
        numbers: dict[str, Any] = {}
        if label_precisions is not None:
            numbers["mAP@y"] = mean_known(to_numpy(label_precisions))
        sums, rows = self.bins.sums["bins"].sum((0, 1)), max(self.rows, 1)
        numbers |= {
            "mAP@x": self.precision.mean(),
            "ACE": self.bins.error("ace", min_count),
            "MCE": self.bins.error("mce", min_count),
            "ECE": self.bins.error("ece"),
            "NLL": self.proper.log_loss(),
            "Brier": self.proper.brier(),
            "expected size": sums[CONFIDENCE] / rows,
            "true size": sums[TARGET] / rows,
        }
        if self.top is not None:
            numbers["F1-top-4"] = self.top.sets.f1("mean_of_f1s")
            numbers["ECE-top-4"] = self.top.bins.error("ece")
        numbers = {name: float(number) for name, number in numbers.items()}
        return numbers | (self.zero.numbers() if self.zero is not None else {})

    def by_label(
        self, label_precisions: ArrayLike | None = None, min_count: int = MIN_COUNT
    ) -> dict[str, Array]:
        """Return one array per column of a table of labels, by its name.

        ``rate`` and ``mean probability`` are over rows whose truth is known; arguments as in
        ``numbers``.
        """
        self.codes.check()
        sums = self.bins.sums["bins"].sum(1)
        count = sums[:, COUNT]
        with np.errstate(invalid="ignore"):
            columns = {
                "known": count.astype(np.int64),
                "rate": sums[:, TARGET] / count,
                "mean probability": sums[:, CONFIDENCE] / count,
            }
        if label_precisions is not None:
            columns["AP"] = to_numpy(label_precisions)
        columns["ACE"] = np.asarray(self.bins.error("ace", min_count, average=None))
        columns["NLL"] = np.asarray(self.proper.log_loss(average=None))
        columns["Brier"] = np.asarray(self.proper.brier(average=None))
        return columns


def summary(
    probabilities: ArrayLike,
    targets: TargetsLike,
    scores: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    min_count: int = MIN_COUNT,
    *,
    bins: int = 15,
    coding: Coding | None = None,
) -> dict[str, float]:
    """Return the numbers of a table of predictions, in its order.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: of the same shape, 1, 0, soft or unknown; or class indices.
        scores: what to rank by, in place of the probabilities.
        sets: label sets, for their size, coverage, precision and F1.
        min_count: entries that a bin needs to count for ACE and MCE, the same bins for both; they
            are NaN where no bin has so many. ECE counts all non-empty bins.
        bins: equal-width bins of the calibration errors.
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``.

    Returns:
        Zero-label numbers appear where some rows are known to have no label and others have one,
        top-4 numbers with more than four labels, those of sets where ``sets`` are given. Soft
        targets leave out what they cannot define: zero-label numbers and exact match.

    Example:
        >>> import numpy as np
        >>> probabilities = np.array([[0.9, 0.2], [0.3, 0.8], [0.1, 0.4]])
        >>> numbers = summary(probabilities, np.array([[1, 0], [0, 1], [0, 0]]), min_count=1)
        >>> list(numbers)[:7]
        ['mAP@y', 'mAP@x', 'ACE', 'MCE', 'ECE', 'NLL', 'Brier']
        >>> round(numbers["ACE"], 4), round(numbers["NLL"], 4)
        (0.2167, 0.2541)
    """
    values, truth = probability_pair(probabilities, targets, coding)
    ranked = values if scores is None else to_numpy(scores)
    chosen = None if sets is None else as_sets(sets)
    return _summary(values, truth, ranked, chosen, min_count, bins)[1]


def _summary(
    values: Array, truth: Array, ranked: Array, sets: Array | None, min_count: int, bins: int
) -> tuple[Summary, dict[str, float]]:
    """Return the accumulator and the numbers of checked arrays."""
    decoded = Targets(truth)
    found = Summary(values.shape[1], bins, zero=not is_soft(truth))
    for start in range(0, len(values), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        found.update(values[rows], decoded[rows], ranked[rows])
    numbers = found.numbers(average_precision(ranked, decoded), min_count)
    if sets is not None:
        numbers |= _set_numbers(sets, decoded)
    return found, numbers


def summary_intervals(
    probabilities: ArrayLike,
    targets: TargetsLike,
    scores: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    min_count: int = MIN_COUNT,
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
    *,
    bins: int = 15,
    coding: Coding | None = None,
) -> dict[str, Interval]:
    """Return ``summary`` with a confidence interval for each number, by resampling rows.

    The interval is of the number as measured on so many rows: calibration errors keep their upward
    bias in estimate and interval alike. Resamples are linear in the weights of the rows (see
    ``summary_draws``), so the time hardly depends on their number.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((200, 2))
        >>> targets = (rng.random((200, 2)) < probabilities).astype(int)
        >>> number = summary_intervals(probabilities, targets, resamples=50)["Brier"]
        >>> number.low < number.estimate < number.high
        True
    """
    from credibly.metrics.intervals import quantiles

    found = summary_draws(
        to_numpy(probabilities),
        targets if isinstance(targets, Targets) else to_numpy(targets),
        scores,
        sets,
        min_count,
        resamples,
        seed,
        bins=bins,
        coding=coding,
    )
    return {
        name: quantiles(estimate, found.draws[name], level, "bootstrap")
        for name, estimate in found.estimates.items()
    }


def summary_draws(
    probabilities: ArrayLike,
    targets: TargetsLike,
    scores: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    min_count: int = MIN_COUNT,
    resamples: int = 200,
    seed: int = 0,
    *,
    bins: int = 15,
    coding: Coding | None = None,
) -> Draws:
    """Return ``summary`` and what each of its numbers would be on resamples of the rows.

    Every row has a Poisson(1) weight in a resample; past 16,384 rows, every group of rows
    (``GroupSums``). Calibration errors are those of the reweighted bins, centred on the estimate;
    all other numbers are expanded to first order in the weights. Predictions of the same rows have
    the same weights with the same ``seed``: the difference of their draws is a paired comparison.

    Returns:
        ``estimates`` and ``draws`` (an array of ``resamples`` values), by the names of ``summary``.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rates = rng.random((300, 3))
        >>> targets = (rng.random((300, 3)) < rates).astype(int)
        >>> mine, other = summary_draws(rates, targets), summary_draws(0.5 + 0 * rates, targets)
        >>> bool((mine.draws["NLL"] < other.draws["NLL"]).all())
        True
    """
    from credibly.metrics.bootstrap import Draws, GroupSums, groups_of

    values, truth = probability_pair(probabilities, targets, coding)
    ranked = values if scores is None else to_numpy(scores)
    chosen = None if sets is None else as_sets(sets)
    found, estimates = _summary(values, truth, ranked, chosen, min_count, bins)
    influence = precision_influence(ranked, truth)
    groups = GroupSums(
        found,
        lambda _, some, first: influence[first : first + len(some)],
        groups_of(len(values)),
        sets=chosen is not None,
    )
    groups.update(values, truth, ranked, chosen, first_row=0)
    draws = groups.draws(estimates, min_count, resamples, seed)
    draws = {name: like(each, probabilities, targets) for name, each in draws.items()}
    return Draws(estimates, draws)


def _set_numbers(sets: Array, truth: Targets) -> dict[str, float]:
    metrics: dict[str, Any] = {
        "set coverage": label_sets.set_coverage,
        "precision": label_sets.precision,
        "F1": label_sets.f1,
    }
    if not is_soft(truth.matrix):
        metrics["exact match"] = label_sets.exact_match
    numbers = {"set size": float(label_sets.set_size(sets))}
    return numbers | {name: float(metric(sets, truth)) for name, metric in metrics.items()}
