"""Every label of a prediction: how often it is there, how often that was expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly import metrics
from credibly.predictions import Predictions
from credibly.targets import Targets
from credibly.types import Array


@dataclass(frozen=True)
class LabelSummary:
    """One label. All counts and means are over rows whose truth is known; all rows without truth.

    Attributes:
        label: its name.
        rows: rows that count: those with known truth, or all where there is no truth.
        expected: sum of the probabilities of those rows.
        present: how many of them carry the label (the sum of soft targets); None without truth.
        average_precision, error, log_loss: NaN where they are not defined; ``error`` is ACE by the
            bins of every table.
    """

    label: str
    rows: int
    expected: float
    present: float | None
    average_precision: float
    error: float
    log_loss: float

    @property
    def expected_share(self) -> float:
        """Return the mean probability; NaN without rows."""
        return self.expected / self.rows if self.rows else float("nan")

    @property
    def present_share(self) -> float:
        """Return the share of rows that carry the label; NaN without known truth."""
        known = self.present is not None and self.rows > 0
        return (self.present or 0.0) / self.rows if known else float("nan")


def label_table(predictions: Predictions) -> list[LabelSummary]:
    """Return one summary per label.

    Example:
        >>> rows = label_table(Predictions.from_arrays(
        ...     probabilities=[[0.9], [0.4], [0.2]], targets=[[1], [-1], [0]], labels=["a"]))
        >>> rows[0].rows, round(rows[0].expected, 1), rows[0].present
        (2, 1.1, 1.0)
    """
    return summarize_columns(predictions.labels, predictions.probabilities, predictions.targets)


def summarize_columns(labels: list[str], p: Array, y: Array | None) -> list[LabelSummary]:
    """Return one summary per column."""
    if y is None:
        nothing = float("nan")
        sums = p.sum(0, dtype=np.float64)
        return [
            LabelSummary(name, len(p), float(total), None, nothing, nothing, nothing)
            for name, total in zip(labels, sums, strict=True)
        ]
    return summarize_diagrams(labels, p, y, label_diagrams(p, y))


def label_diagrams(p: Array, y: Array) -> metrics.Reliability:
    """Return the reliability diagram of each column."""
    return metrics.reliability(p, Targets(y), per_label=True)


def summarize_diagrams(
    labels: list[str], p: Array, y: Array, diagrams: metrics.Reliability
) -> list[LabelSummary]:
    """Return one summary per column whose diagram is known: its bins hold counts and sums."""
    counts = diagrams.counts
    known = counts.sum(1)
    expected = np.nansum(counts * diagrams.confidence, axis=1)
    present = np.nansum(counts * diagrams.frequency, axis=1)
    truth = Targets(y)
    columns = (
        known,
        expected,
        present,
        metrics.average_precision(p, truth),
        metrics.calibration_error(p, truth, "ace", min_count=metrics.MIN_COUNT, average=None),
        metrics.log_loss(p, truth, average=None),
    )
    return [
        LabelSummary(name, int(n), float(e), round(float(s), 6), float(a), float(c), float(nll))
        for name, n, e, s, a, c, nll in zip(labels, *columns, strict=True)
    ]
