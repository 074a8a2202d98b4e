"""Metrics of predictions too large for memory: chunks of rows in, fixed memory, exact numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.metrics import _bins, calibration, ranking, scoring
from credibly.metrics._inputs import mean_known, probability_pair
from credibly.metrics.calibration import Average, Kind, Reliability
from credibly.metrics.proportions import Band
from credibly.types import Array, ArrayLike


class Running:
    """Calibration, proper scores and mAP@x accumulated over chunks of rows.

    The same numbers as the functions give on all rows at once, in memory that depends on labels
    and bins alone. Average precision a label needs a label's scores together: read the file a
    column at a time and call ``average_precision(scores, targets)`` on each.

    Example:
        >>> running = Running(num_labels=2)
        >>> running.update(np.array([[0.8, 0.1]]), np.array([[1, 0]]))
        >>> running.update(np.array([[0.6, 0.3]]), np.array([[0, -1]]))
        >>> running.rows, running.known
        (2, 3)
        >>> round(float(running.brier()), 4)
        0.1367
    """

    def __init__(self, num_labels: int, bins: int = 15, floor: float | None = None) -> None:
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self.floor = floor
        self.rows = 0
        self._bins: Array = np.zeros((self.num_labels, _bins.number_of_bins(bins), 3))
        self._proper: Array = np.zeros((self.num_labels, 3))
        self._precision: Array = np.zeros(2)
        """Sum of the rows' average precision, and how many rows have one."""

    @property
    def known(self) -> int:
        """Entries seen whose target is known."""
        return int(self._proper[:, scoring.COUNT].sum())

    def update(
        self, probabilities: ArrayLike, targets: ArrayLike, scores: ArrayLike | None = None
    ) -> None:
        """Add a chunk of rows; ``scores`` rank the labels of a row if given."""
        values, truth = probability_pair(probabilities, targets)
        if values.shape[1] != self.num_labels:
            raise checks.InputError(
                f"`probabilities` must have {self.num_labels} labels as in the constructor; "
                f"got {values.shape[1]}."
            )
        if truth.dtype == np.int8:
            each = ranking.sample_average_precision(values if scores is None else scores, truth)
            each = np.asarray(each)
            self._precision += np.nansum(each), (~np.isnan(each)).sum()
        else:
            self._precision[:] = np.nan  # present or absent is undefined for soft targets
        self.rows += len(values)
        _bins.add(self._bins, values, truth)
        scoring.add(self._proper, values, truth, scoring.smallest(values.dtype, self.floor))

    def merge(self, other: Running) -> None:
        """Add what another one has seen, for chunks read by several workers."""
        if self._bins.shape != other._bins.shape:
            raise checks.InputError(
                "only the same labels and bins can be merged; got "
                f"{self._bins.shape[:2]} and {other._bins.shape[:2]} (labels, bins)."
            )
        self.rows += other.rows
        self._bins += other._bins
        self._proper += other._proper
        self._precision += other._precision

    def calibration_error(
        self, kind: Kind = "ace", min_count: int = 0, average: Average = "pooled"
    ) -> Any:
        """As ``metrics.calibration_error`` on all rows."""
        checks.choice("kind", kind, calibration.KINDS)
        checks.choice("average", average, ("pooled", "macro", None))
        return calibration.averaged_error(self._bins, kind, min_count, average)

    def reliability(
        self, per_label: bool = False, band: Band = "wilson", level: float = 0.95
    ) -> Reliability:
        """As ``metrics.reliability`` on all rows."""
        return calibration.diagram_of(self._bins if per_label else self._bins.sum(0), band, level)

    def log_loss(self, average: Average = "pooled") -> Any:
        """As ``metrics.log_loss`` on all rows."""
        return scoring.averaged(self._proper, scoring.LOG_LOSS, average)

    def brier(self, average: Average = "pooled") -> Any:
        """As ``metrics.brier`` on all rows."""
        return scoring.averaged(self._proper, scoring.SQUARED_ERROR, average)

    def mean_sample_average_precision(self) -> float:
        """mAP@x on all rows; NaN for soft targets or without a positive."""
        with np.errstate(invalid="ignore"):
            return float(self._precision[0] / self._precision[1])

    def expected_size(self) -> float:
        """Mean over rows of the sum of probabilities, over known entries."""
        return float(self._bins[..., _bins.CONFIDENCE].sum() / max(self.rows, 1))

    def true_size(self) -> float:
        """Mean over rows of the number of labels present (the sum of targets), where known."""
        return float(self._bins[..., _bins.TARGET].sum() / max(self.rows, 1))

    def summary(
        self, label_precisions: ArrayLike | None = None, min_count: int = 30
    ) -> dict[str, float]:
        """The headline numbers; mAP@y from ``label_precisions``, one average precision a label.

        ``min_count`` holds for MCE alone.
        """
        numbers: dict[str, Any] = {}
        if label_precisions is not None:
            numbers["mAP@y"] = mean_known(to_numpy(label_precisions))
        numbers |= {
            "mAP@x": self.mean_sample_average_precision(),
            "ACE": self.calibration_error("ace"),
            "MCE": self.calibration_error("mce", min_count),
            "ECE": self.calibration_error("ece"),
            "NLL": self.log_loss(),
            "Brier": self.brier(),
            "expected size": self.expected_size(),
            "true size": self.true_size(),
        }
        return {name: float(number) for name, number in numbers.items()}
