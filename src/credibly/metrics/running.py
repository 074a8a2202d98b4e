"""Metrics of predictions too large for memory: batches of rows in, fixed memory, exact numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.metrics import binning, calibration, ranking, scoring, top_k
from credibly.metrics.calibration import Average, Kind, Reliability
from credibly.metrics.inputs import mean_known, probability_pair, tally_of
from credibly.metrics.proportions import Band
from credibly.targets import Coding, Targets, TargetsLike, check_tally
from credibly.types import Array, ArrayLike

MIN_COUNT = 30
"""Entries that a bin needs to count for ACE and MCE in every table; ECE counts all bins."""

TOP = 4
"""Labels per row of F1-top-4 and ECE-top-4, as in the quasibinary paper."""


class Running:
    """Calibration, proper scores, mAP@x and top-4 metrics accumulated over batches of rows.

    The numbers equal those of the functions on all rows at once, in memory that depends on labels
    and bins alone. Average precision per label needs all scores of a label together: read the
    file one column at a time and call ``average_precision(scores, targets)`` on each.

    Args:
        num_labels: number of labels.
        bins: equal-width bins of the calibration errors.
        floor: as in ``log_loss``.
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``. Without it
            every number is refused where nothing but −1 and +1 was seen.

    Example:
        >>> running = Running(num_labels=2)
        >>> running.update(np.array([[0.8, 0.1]]), np.array([[1, 0]]))
        >>> running.update(np.array([[0.6, 0.3]]), np.array([[0, -1]]))
        >>> running.rows, running.known
        (2, 3)
        >>> round(float(running.brier()), 4)
        0.1367
    """

    def __init__(
        self,
        num_labels: int,
        bins: int = 15,
        floor: float | None = None,
        *,
        coding: Coding | None = None,
    ) -> None:
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self.floor = floor
        self.coding: Coding | None = coding
        self.rows = 0
        bins = binning.number_of_bins(bins)
        self._sums: dict[str, Array] = {
            "bins": np.zeros((self.num_labels, bins, 3)),
            "proper": np.zeros((self.num_labels, 3)),
            "precision": np.zeros(2),  # sum of the rows' average precision; rows that have one
            "top bins": np.zeros((self.num_labels, bins, 3)),
            "top sets": np.zeros((3, self.num_labels)),  # hits, returned, present
            "tally": np.zeros(4),
        }

    @property
    def num_bins(self) -> int:
        """Return the number of bins of the calibration errors."""
        return self._sums["bins"].shape[1]

    @property
    def known(self) -> int:
        """Return how many entries with a known target were seen."""
        return int(self._sums["proper"][:, scoring.COUNT].sum())

    def update(
        self,
        probabilities: ArrayLike,
        targets: TargetsLike,
        scores: ArrayLike | None = None,
    ) -> None:
        """Add a batch of rows; ``scores`` rank the labels of a row where given."""
        values, truth = probability_pair(probabilities, targets, self.coding, whole=False)
        if values.shape[1] != self.num_labels:
            raise checks.InputError(
                f"`probabilities` must have {self.num_labels} labels as in the constructor; "
                f"got {values.shape[1]}."
            )
        ranked = values if scores is None else to_numpy(scores)
        each = to_numpy(ranking.sample_average_precision(ranked, Targets(truth)))
        self._sums["precision"] += np.nansum(each), (~np.isnan(each)).sum()
        if not isinstance(targets, Targets):
            self._sums["tally"] += tally_of(targets, truth)
        self.rows += len(values)
        binning.add(self._sums["bins"], values, truth)
        floor = scoring.smallest(values.dtype, self.floor)
        scoring.add(self._sums["proper"], values, truth, floor)
        if self.num_labels > TOP:
            binning.add(self._sums["top bins"], values, top_k.unknown_below_top(values, truth, TOP))
            chosen = top_k.top_k_sets(ranked, truth, TOP)
            self._sums["top sets"] += top_k.set_counts(chosen, truth, 0)

    def merge(self, other: Running) -> None:
        """Add what another instance has seen, for batches read by several workers."""
        mine, theirs = self._sums["bins"].shape, other._sums["bins"].shape
        if mine != theirs:
            raise checks.InputError(
                "only the same labels and bins can be merged; got "
                f"{mine[:2]} and {theirs[:2]} (labels, bins)."
            )
        self.rows += other.rows
        for name, sums in other._sums.items():
            self._sums[name] += sums

    def state(self) -> dict[str, Array]:
        """Return everything that was accumulated, as arrays; ``add`` takes it back."""
        return {**self._sums, "rows": np.array(self.rows)}

    def add(self, state: Mapping[str, Array]) -> None:
        """Add the ``state`` of another instance with the same labels and bins."""
        other = Running(self.num_labels, self.num_bins)
        other.rows = int(state["rows"])
        other._sums = {name: np.asarray(state[name]) for name in self._sums}
        self.merge(other)

    def calibration_error(
        self, kind: Kind = "ace", min_count: int = 0, average: Average = "pooled"
    ) -> Any:
        """Return ``metrics.calibration_error`` of all rows."""
        checks.choice("kind", kind, calibration.KINDS)
        checks.choice("average", average, ("pooled", "macro", None))
        return calibration.averaged_error(self._total("bins"), kind, min_count, average)

    def reliability(
        self, per_label: bool = False, band: Band = "wilson", level: float = 0.95
    ) -> Reliability:
        """Return ``metrics.reliability`` of all rows."""
        total = self._total("bins")
        return calibration.diagram_of(total if per_label else total.sum(0), band, level)

    def log_loss(self, average: Average = "pooled") -> Any:
        """Return ``metrics.log_loss`` of all rows."""
        return scoring.averaged(self._total("proper"), scoring.LOG_LOSS, average)

    def brier(self, average: Average = "pooled") -> Any:
        """Return ``metrics.brier`` of all rows."""
        return scoring.averaged(self._total("proper"), scoring.SQUARED_ERROR, average)

    def mean_sample_average_precision(self) -> float:
        """Return mAP@x of all rows; NaN without a positive."""
        total, rows = self._total("precision")
        return float(total / rows) if rows else float("nan")

    def top_k_f1(self) -> float:
        """Return ``metrics.top_k_f1`` of all rows with k = 4; NaN with four labels or fewer."""
        hits, returned, present = self._total("top sets")
        seen = self._total("bins")[..., binning.COUNT].sum(1) > 0
        with np.errstate(invalid="ignore"):
            each = np.where(returned + present > 0, 2 * hits / (returned + present), 0.0)
        enough = self.num_labels > TOP
        return float(mean_known(np.where(seen, each, np.nan))) if enough else float("nan")

    def top_k_f1_terms(self) -> tuple[Array, Array] | None:
        """Return what F1-top-4 is linear in, for each label: 1 / (its sum × labels), and its F1.

        None with four labels or fewer.
        """
        if self.num_labels <= TOP:
            return None
        hits, returned, present = self._total("top sets")
        total = returned + present
        labels = max(int((self._total("bins")[..., binning.COUNT].sum(1) > 0).sum()), 1)
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        return inverse / labels, 2 * hits * inverse

    def top_k_calibration_error(self) -> float:
        """Return ``metrics.top_k_calibration_error`` of all rows with k = 4 (ECE)."""
        return float(calibration.averaged_error(self._total("top bins"), "ece", 0, "pooled"))

    def expected_size(self) -> float:
        """Return the mean over rows of the sum of probabilities, over known entries."""
        return float(self._total("bins")[..., binning.CONFIDENCE].sum() / max(self.rows, 1))

    def true_size(self) -> float:
        """Return the mean over rows of the sum of targets, over known entries."""
        return float(self._total("bins")[..., binning.TARGET].sum() / max(self.rows, 1))

    def summary(
        self, label_precisions: ArrayLike | None = None, min_count: int = MIN_COUNT
    ) -> dict[str, float]:
        """Return the numbers of ``metrics.summary`` by their names in tables.

        Args:
            label_precisions: average precision of each label, for mAP@y.
            min_count: entries that a bin needs to count for ACE and MCE, the same bins for both.
                ECE counts all non-empty bins.
        """
        numbers: dict[str, Any] = {}
        if label_precisions is not None:
            numbers["mAP@y"] = mean_known(to_numpy(label_precisions))
        numbers |= {
            "mAP@x": self.mean_sample_average_precision(),
            "ACE": self.calibration_error("ace", min_count),
            "MCE": self.calibration_error("mce", min_count),
            "ECE": self.calibration_error("ece", min_count),
            "NLL": self.log_loss(),
            "Brier": self.brier(),
            "expected size": self.expected_size(),
            "true size": self.true_size(),
        }
        if self.num_labels > TOP:
            numbers["F1-top-4"] = self.top_k_f1()
            numbers["ECE-top-4"] = self.top_k_calibration_error()
        return {name: float(number) for name, number in numbers.items()}

    def by_label(
        self, label_precisions: ArrayLike | None = None, min_count: int = MIN_COUNT
    ) -> dict[str, Array]:
        """Return one array per column of a table of labels, by its name.

        ``rate`` and ``mean probability`` are over rows whose truth is known; arguments as in
        ``summary``.
        """
        count, confidence, target = np.moveaxis(self._total("bins").sum(1), -1, 0)
        with np.errstate(invalid="ignore"):
            columns = {
                "known": count.astype(np.int64),
                "rate": target / count,
                "mean probability": confidence / count,
            }
        if label_precisions is not None:
            columns["AP"] = to_numpy(label_precisions)
        columns["ACE"] = np.asarray(self.calibration_error("ace", min_count, average=None))
        columns["NLL"] = np.asarray(self.log_loss(average=None))
        columns["Brier"] = np.asarray(self.brier(average=None))
        return columns

    def _total(self, name: str) -> Array:
        check_tally(self._sums["tally"], self.coding)
        return self._sums[name]
