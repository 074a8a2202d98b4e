"""All metrics of tables, by name, and metrics of rows without a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.metrics import label_sets
from credibly.metrics.accumulators import (
    Accumulator,
    Accumulators,
    Codes,
    Terms,
    ValueCounts,
    batch_pair,
    hard,
    is_soft,
    mean_known,
    probability_pair,
    score_pair,
)
from credibly.metrics.accumulators import label_sets as as_sets
from credibly.metrics.calibration import (
    CONFIDENCE,
    COUNT,
    ERRORS,
    TARGET,
    CalibrationBins,
    ProperScores,
    proportion_interval,
    row_bins,
    row_scores,
    table_numbers,
)
from credibly.metrics.label_sets import (
    SetCounts,
    exact_match_terms,
    set_counts,
    top_k_sets,
    unknown_below_top,
)
from credibly.metrics.ranking import (
    RankCounts,
    aurocs,
    label_totals,
    precisions,
    row_precisions,
    tied_auroc,
)
from credibly.targets import Coding, Targets, TargetsLike, check_tally
from credibly.types import Array, ArrayLike


@dataclass(frozen=True)
class ZeroLabel:
    """IN rows have a known label, OUT rows are known to have none; NaN without such rows."""

    accuracy: float
    """Share of IN rows whose most probable label is present (ties count by share)."""
    mean_confidence_in: float
    """Mean over IN rows of the largest probability."""
    mean_confidence_out: float
    """MMC: mean over OUT rows of the largest probability; best is 0."""
    auroc: float
    """Chance that an IN row's largest probability exceeds an OUT row's, ties counted half."""
    rows_in: int
    rows_out: int


def zero_label(probabilities: ArrayLike, targets: TargetsLike) -> ZeroLabel:
    """Return metrics of rows with labels (IN) and rows without labels (OUT).

    If all known labels of a row are absent but others are unknown, it is neither IN nor OUT. A
    label that is unknown in every row is ignored.

    Example:
        >>> probabilities = np.array([[0.9, 0.1], [0.2, 0.6], [0.1, 0.3]])
        >>> result = zero_label(probabilities, np.array([[1, 0], [1, 0], [0, 0]]))
        >>> float(result.accuracy), float(result.mean_confidence_out), float(result.auroc)
        (0.5, 0.3, 1.0)
    """
    values, truth = probability_pair(probabilities, targets)
    found = ZeroLabels(values.shape[1])
    found.update(values, hard(truth, "zero_label"))
    shares = ("accuracy", "mean_confidence_in", "mean_confidence_out", "auroc")
    numbers = found.compute()
    return replace(numbers, **{x: like(getattr(numbers, x), probabilities) for x in shares})


class ZeroLabels(Accumulator):
    """``zero_label`` over batches of rows, from the number of rows by confidence.

    Above ``exact`` different confidences, those with the same leading bits (by default 14 or more
    of the mantissa) count as ties in the AUROC. All other metrics stay exact.

    Args:
        num_labels: number of labels.
        exact: limit on the number of different confidences that are kept apart.
    """

    def __init__(self, num_labels: int, exact: int = 2**20) -> None:
        self.confidences = ValueCounts(exact)  # weights: rows with a label, rows without
        # Rows, hits and sum of confidences of rows with a label; rows in which each label is known.
        super().__init__(inside=np.zeros(3), seen=np.zeros(num_labels))
        # A row has no label for certain only if all labels with any truth are known. These labels
        # are known at the end; there are at least as many as any such row has.
        self._known = 0
        self._confidence_out = 0.0

    def update(self, probabilities: Array, targets: Array) -> None:
        """Add checked rows of targets 0, 1 and −1."""
        inside, outside_known, confidence, share = _rows(probabilities, targets)
        if not len(inside):
            return
        known = int(outside_known.max())
        outside = (outside_known == known) & ~inside & (known > 0)
        self.sums["inside"] += inside.sum(), share[inside].sum(), confidence[inside].sum()
        self.sums["seen"] += (targets >= 0).sum(0)
        used = inside | outside
        counts = np.stack([inside, outside], axis=1)[used].astype(np.float64)
        counts *= self._reach(known, float(confidence[outside].sum()))
        self.confidences.update(confidence[used], counts)

    def _reach(self, known: int, confidence: float) -> Array:
        """Count a row without a label that has ``known`` known ones; return the row weights."""
        if known > self._known:
            self.confidences.clear(1)
            self._known, self._confidence_out = known, 0.0
        certain = known == self._known
        self._confidence_out += confidence * certain
        return np.array([1.0, certain])

    def state(self) -> dict[str, Array]:
        """Return the counts."""
        about = np.array([self._known, self._confidence_out])
        return {**self.sums, "about": about, **self.confidences.state()}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of other rows."""
        super().merge(state)
        known, confidence = state["about"]
        counts = state["counts"] * self._reach(int(known), float(confidence))
        self.confidences.merge({**state, "counts": counts})

    def compute(self) -> ZeroLabel:
        """Return the metrics of all rows."""
        inside, outside = self._tables()
        rows_in, hits, confidence = self.sums["inside"]
        rows_out = outside.sum()
        with np.errstate(invalid="ignore"):
            return ZeroLabel(
                hits / rows_in,
                confidence / rows_in,
                np.float64(self._confidence_out if rows_out else 0.0) / rows_out,
                np.float64(tied_auroc(inside + outside, inside)),
                int(rows_in),
                int(rows_out),
            )

    def numbers(self) -> dict[str, float]:
        """Return the metrics by their names in tables; none unless there are IN and OUT rows."""
        found = self.compute()
        if not (found.rows_in and found.rows_out):
            return {}
        return {
            "IN accuracy": float(found.accuracy),
            "OUT MMC": float(found.mean_confidence_out),
            "zero-label AUROC": float(found.auroc),
        }

    def row_terms(self, probabilities: Array, targets: Array) -> dict[str, Terms]:
        """Return (part, whole) of each metric in ``numbers`` and row; see ``Summary.row_terms``."""
        inside, outside_known, confidence, share = _rows(probabilities, targets)
        used = int((self.sums["seen"] > 0).sum())
        outside = (outside_known == used) & ~inside
        tables = self._tables()
        places = self.confidences.places(confidence)
        auroc = np.zeros(len(inside))
        for mine, own, other, sign in ((inside, *tables, 1), (outside, *tables[::-1], -1)):
            shares = (np.cumsum(other) - other / 2) / max(other.sum(), 1)
            rows = max(own.sum(), 1)
            auroc[mine] = sign * (shares[places[mine]] - (shares * own).sum() / rows) / rows
        return {
            "IN accuracy": (np.where(inside, share, 0.0), inside),
            "OUT MMC": (np.where(outside, confidence, 0.0), outside),
            "zero-label AUROC": (auroc, np.zeros(len(auroc))),
        }

    def _tables(self) -> tuple[Array, Array]:
        """Return the numbers of rows with and without a label for each confidence."""
        inside, outside = self.confidences.counts().T
        return inside, outside * (self._known == int((self.sums["seen"] > 0).sum()))


def _rows(probabilities: Array, targets: Array) -> tuple[Array, Array, Array, Array]:
    """Return for each row: has a label, known labels if not, confidence, share of hits."""
    known = targets >= 0
    values = np.where(known, probabilities.astype(np.float64), 0.0)
    confidence = values.max(1, initial=0.0) + 0.0  # −0 and 0 are equal
    inside = np.asarray((targets > 0).any(1))
    top = known & (values == confidence[:, None])
    share = (top & (targets > 0)).sum(1) / np.maximum(top.sum(1), 1)
    return inside, np.where(inside, 0, known.sum(1)), confidence, share


MIN_COUNT = 30
"""Entries that a bin needs to count for ACE and MCE in every table; ECE counts all bins."""

THRESHOLD = 0.5
"""Threshold of micro and macro F1."""

TOP = 4
"""Labels per row of F1-top-4 and ECE-top-4, as in the quasibinary paper."""

_ROWS_AT_ONCE = 16_384


class Summary(Accumulators):
    """The metrics of ``summary`` accumulated over batches of rows.

    They equal those of the function on all rows, in memory that depends only on labels and bins.
    Average precision and AUROC need all scores of a label together, so ``numbers`` and ``by_label``
    take them as arguments.

    Args:
        num_labels: number of labels.
        bins: number of equal-width bins of the calibration errors.
        zero: whether to count rows without a label; not possible with soft targets.
        ranks: whether to count the ranking values by their leading bits (``RankCounts``).
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``. Without it,
            metrics are refused if only −1 and +1 were seen.

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
        *,
        zero: bool = False,
        ranks: bool = False,
        coding: Coding | None = None,
    ) -> None:
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self.coding: Coding | None = coding
        self.bins = CalibrationBins(self.num_labels, bins)
        self.proper, self.sets = ProperScores(self.num_labels), SetCounts(self.num_labels)
        self.codes = Codes()
        # Sum of the average precision of rows with a positive, their number, and all rows.
        self.ranked_rows = Accumulator(precision=np.zeros(2), rows=np.zeros(1))
        self.zero = ZeroLabels(self.num_labels) if zero else None
        self.ranks = RankCounts(self.num_labels) if ranks else None
        self.errors = {name: (kind, "bins") for name, kind in ERRORS.items()}
        if self.num_labels > TOP:
            self.top_sets = SetCounts(self.num_labels)
            self.top_bins = CalibrationBins(self.num_labels, bins)
            self.errors["ECE-top-4"] = ("ece", "top bins")

    @property
    def rows(self) -> int:
        """Return the number of rows seen."""
        return int(self.ranked_rows.sums["rows"][0])

    @property
    def known(self) -> int:
        """Return the number of entries seen with a known target."""
        return self.proper.known

    def update(
        self, probabilities: ArrayLike, targets: TargetsLike, scores: ArrayLike | None = None
    ) -> None:
        """Add a batch of rows; ``scores``, if given, rank the labels of a row."""
        decoded = Targets.beside(
            probabilities, targets, "probabilities", coding=self.coding, whole=False
        )
        values, truth = batch_pair(probabilities, decoded, self.num_labels)
        ranked = values if scores is None else score_pair(scores, decoded)[0]
        if not isinstance(targets, Targets):
            self.codes.update(targets, truth)
        each = row_precisions(ranked, truth)
        self.ranked_rows.sums["precision"] += np.nansum(each), (~np.isnan(each)).sum()
        self.ranked_rows.sums["rows"] += len(values)
        self.bins.update(values, truth)
        self.proper.update(values, truth)
        self.sets.update(values >= THRESHOLD, truth)
        if self.num_labels > TOP:
            self.top_bins.update(values, unknown_below_top(values, truth, TOP))
            self.top_sets.update(top_k_sets(ranked, truth, TOP), truth)
        if self.zero is not None:
            self.zero.update(values, truth)
        if self.ranks is not None:
            self.ranks.update(ranked, truth)

    def row_terms(
        self,
        values: Array,
        targets: TargetsLike,
        scores: Array | None = None,
        sets: Array | None = None,
    ) -> dict[str, Terms]:
        """Return (part, whole) of each metric and row: a ratio, or an influence if whole is 0.

        The rows are among those that were added; ``sets`` adds the metrics of label sets.
        """
        truth, ranked = to_numpy(targets), values if scores is None else scores
        known, ones, nothing = truth >= 0, np.ones(len(values)), np.zeros(len(values))
        precision = row_precisions(ranked, truth)
        count, costs, squared = row_scores(values, truth).T
        selected = values >= THRESHOLD
        hits, returned, present = set_counts(selected, truth, 1)
        found = {
            "micro F1": (2 * hits, returned + present),
            "macro F1": (self.sets.macro_f1_influence(selected, truth), nothing),
            "mAP@x": (np.nan_to_num(precision), ~np.isnan(precision)),
            "NLL": (costs, count),
            "Brier": (squared, count),
            "expected size": (np.where(known, values, 0).sum(1, dtype=np.float64), ones),
            "true size": (np.where(known, truth, 0).sum(1, dtype=np.float64), ones),
        }
        if self.num_labels > TOP:
            top = top_k_sets(ranked, truth, TOP)
            found["F1-top-4"] = (self.top_sets.macro_f1_influence(top, truth), nothing)
        if self.zero is not None:
            found |= self.zero.row_terms(values, truth)
        if sets is not None:
            hits, returned, present = set_counts(sets, truth, 1)
            found |= {
                "set size": (sets.sum(1), ones),
                "set coverage": (hits, present),
                "precision": (hits, returned),
                "F1": (2 * hits, returned + present),
            }
            if not is_soft(truth):
                found["exact match"] = exact_match_terms(sets, truth)
        return found

    def row_bins(
        self, values: Array, targets: TargetsLike, scores: object = None, sets: object = None
    ) -> dict[str, Array]:
        """Return the bins of the calibration errors of each row, (rows, bins, 3)."""
        truth, bins = to_numpy(targets), self.bins.num_bins
        found = {"bins": row_bins(values, truth, bins)}
        if self.num_labels > TOP:
            found["top bins"] = row_bins(values, unknown_below_top(values, truth, TOP), bins)
        return found

    def numbers(
        self,
        label_precisions: ArrayLike | None = None,
        label_aurocs: ArrayLike | None = None,
        min_count: int = MIN_COUNT,
    ) -> dict[str, float]:
        """Return the metrics of ``metrics.summary`` by their names in tables.

        Args:
            label_precisions: average precision of each label, for mAP@y.
            label_aurocs: AUROC of each label, for their mean.
            min_count: entries that a bin needs to count for ACE and MCE, which use the same bins.
                ECE counts all non-empty bins.
        """
        check_tally(self.codes.sums["codes"], self.coding)
        numbers: dict[str, Array | float] = {}
        if label_precisions is not None:
            numbers["mAP@y"] = mean_known(to_numpy(label_precisions))
        sums, rows = self.bins.sums["bins"].sum((0, 1)), max(self.rows, 1)
        total, ranked = self.ranked_rows.sums["precision"]
        numbers |= {
            "mAP@x": total / ranked if ranked else np.nan,
            **table_numbers(self.bins, self.proper, min_count),
            "micro F1": self.sets.f1("micro"),
            "macro F1": self.sets.f1("mean_of_f1s"),
            "expected size": sums[CONFIDENCE] / rows,
            "true size": sums[TARGET] / rows,
        }
        if label_aurocs is not None:
            numbers["AUROC"] = mean_known(to_numpy(label_aurocs))
        if self.num_labels > TOP:
            numbers["F1-top-4"] = self.top_sets.f1("mean_of_f1s")
            numbers["ECE-top-4"] = self.top_bins.error("ece")
        zero = {} if self.zero is None else self.zero.numbers()
        return {name: float(number) for name, number in numbers.items()} | zero

    def by_label(
        self,
        label_precisions: ArrayLike | None = None,
        label_aurocs: ArrayLike | None = None,
        min_count: int = MIN_COUNT,
    ) -> dict[str, Array]:
        """Return one array per column of a table of labels, by column name.

        ``rate`` and ``mean probability`` are over rows whose truth is known. For precision, recall
        and F1, a label is selected if its probability is at least ½. Arguments as in ``numbers``.
        """
        check_tally(self.codes.sums["codes"], self.coding)
        columns = self._columns(None, min_count)
        last = {name: columns.pop(name) for name in ("ACE", "NLL", "Brier")}
        ranking = {"AP": label_precisions, "AUROC": label_aurocs}
        found = {name: to_numpy(each) for name, each in ranking.items() if each is not None}
        return columns | found | last

    def micro(self, min_count: int = MIN_COUNT) -> dict[str, float]:
        """Return the columns of ``by_label`` for the entries of all labels together."""
        columns = self._columns("micro", min_count)
        known = int(columns.pop("known"))
        return {"known": known} | {name: float(each) for name, each in columns.items()}

    def _columns(self, average: Literal["micro"] | None, min_count: int) -> dict[str, Array]:
        """Return each column by label, or for the entries of all labels together."""
        sums = self.bins.sums["bins"].sum(1 if average is None else (0, 1))
        count, pooled = sums[..., COUNT], None if average is None else "pooled"
        with np.errstate(invalid="ignore"):
            return {
                "known": count.astype(np.int64),
                "rate": sums[..., TARGET] / count,
                "mean probability": sums[..., CONFIDENCE] / count,
                "precision": self.sets.precision(average),
                "recall": self.sets.recall(average),
                "F1": self.sets.f1(average),
                "ACE": np.asarray(self.bins.error("ace", min_count, pooled)),
                "NLL": np.asarray(self.proper.log_loss(pooled)),
                "Brier": np.asarray(self.proper.brier(pooled)),
            }

    def label_intervals(self) -> dict[str, tuple[Array, Array]]:
        """Return 95 % limits of precision, recall and F1 of every label (Wilson's)."""
        hits, returned, present, _ = self.sets.sums["counts"]
        low, high = proportion_interval(hits, returned + present - hits)  # Jaccard
        return {
            "precision": proportion_interval(hits, returned),
            "recall": proportion_interval(hits, present),
            "F1": (2 * low / (1 + low), 2 * high / (1 + high)),
        }


def summary(
    probabilities: ArrayLike,
    targets: TargetsLike,
    scores: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    min_count: int = MIN_COUNT,
    *,
    bins: int = 15,
) -> dict[str, float]:
    """Return the metrics of a table of predictions, in its order.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: of the same shape: 1, 0, soft or unknown; or class indices.
        scores: values to rank by instead of the probabilities.
        sets: label sets, for their size, coverage, precision and F1.
        min_count: entries that a bin needs to count for ACE and MCE, which use the same bins and
            are NaN if no bin counts. ECE counts all non-empty bins.
        bins: number of equal-width bins of the calibration errors.

    Returns:
        The metrics by name. For micro and macro F1, a label is selected if its probability is at
        least ½. Zero-label metrics need rows with and rows certainly without a label, top-4 metrics
        more than four labels, and metrics of sets need ``sets``. With soft targets, zero-label
        metrics and exact match are not defined and left out.

    Example:
        >>> import numpy as np
        >>> probabilities = np.array([[0.9, 0.2], [0.3, 0.8], [0.1, 0.4]])
        >>> numbers = summary(probabilities, np.array([[1, 0], [0, 1], [0, 0]]), min_count=1)
        >>> list(numbers)[:7]
        ['mAP@y', 'mAP@x', 'ACE', 'MCE', 'ECE', 'NLL', 'Brier']
        >>> round(numbers["ACE"], 4), round(numbers["NLL"], 4)
        (0.2167, 0.2541)
    """
    return summarised(probabilities, targets, scores, sets, min_count, bins)[1]


def summarised(
    probabilities: ArrayLike,
    targets: TargetsLike,
    scores: ArrayLike | None,
    sets: ArrayLike | None,
    min_count: int,
    bins: int,
) -> tuple[Summary, dict[str, float], tuple[Array, Array, Array, Array | None]]:
    """Return the accumulator, the metrics and the checked arrays of ``summary``."""
    values, truth = probability_pair(probabilities, targets)
    ranked = values if scores is None else to_numpy(scores)
    chosen, decoded = None if sets is None else as_sets(sets), Targets(truth)
    found = Summary(values.shape[1], bins, zero=not is_soft(truth))
    for start in range(0, len(values), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        found.update(values[rows], decoded[rows], ranked[rows])
    totals = label_totals(ranked, truth)
    numbers = found.numbers(precisions(totals), aurocs(totals), min_count)
    if chosen is not None:
        numbers |= _set_numbers(chosen, decoded)
    return found, numbers, (values, truth, ranked, chosen)


def _set_numbers(sets: Array, truth: Targets) -> dict[str, float]:
    metrics = {
        "set coverage": label_sets.set_coverage,
        "precision": label_sets.precision,
        "F1": label_sets.f1,
    }
    if not is_soft(truth.matrix):
        metrics["exact match"] = label_sets.exact_match
    numbers = {"set size": float(label_sets.set_size(sets))}
    return numbers | {name: float(metric(sets, truth)) for name, metric in metrics.items()}
