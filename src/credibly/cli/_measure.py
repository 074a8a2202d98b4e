"""Headline numbers of a predictions file of any size, in memory that does not grow with it.

One pass over the rows for calibration, proper scores and mAP@x; then the columns, a few labels at
a time, for mAP@y, which needs all rows of a label together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from credibly import metrics
from credibly.checks import InputError
from credibly.predictions import Scan
from credibly.types import Array

# Values of a few labels over all rows; with the copies that ranking sorts, about 0.3 GB.
_COLUMN_CELLS = 2**24


@dataclass(frozen=True)
class Measured:
    """What was found in one file; ``by_label`` has an array, one entry a label, a column."""

    path: str
    rows: int
    labels: list[str]
    numbers: dict[str, float]
    by_label: dict[str, Array]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def labels_without_truth(self) -> list[str]:
        return [name for name, n in zip(self.labels, self.by_label["known"], strict=True) if not n]


def measure(scan: Scan, *, bins: int, min_count: int, advance: Callable[[float], None]) -> Measured:
    """Numbers of a whole file; ``advance`` is told the share of the work done."""
    if not scan.has_targets:
        raise InputError(
            f"{scan.path} must have the truth to be evaluated, columns 'y:<label>'; it has none. "
            "Add it with `Predictions.join_truth`."
        )
    scan.check_ids()
    running = metrics.Running(len(scan.labels), bins)
    sums = np.zeros((3, len(scan.labels)))
    zero = None if scan.soft else _ZeroLabel()
    for piece in scan.batches():
        assert piece.targets is not None
        running.update(piece.probabilities, piece.targets, piece.scores)
        _count(sums, piece.probabilities, piece.targets)
        if zero is not None:
            zero.update(piece.probabilities, piece.targets)
        advance(0.5 * len(piece) / scan.num_rows)
    if running.known == 0:
        raise InputError(f"{scan.path} must have some truth to be evaluated; all is unknown.")
    precisions = None if scan.soft else _label_precisions(scan, advance)
    numbers = running.summary(precisions, min_count)
    if zero is not None:
        numbers |= zero.numbers(int((sums[0] > 0).sum()))
    known = np.maximum(sums[0], 1)
    by_label = {
        "known": sums[0].astype(np.int64),
        "rate": np.where(sums[0] > 0, sums[1] / known, np.nan),
        "mean probability": np.where(sums[0] > 0, sums[2] / known, np.nan),
        **({} if precisions is None else {"AP": precisions}),
        "ACE": np.asarray(running.calibration_error("ace", average=None)),
        "NLL": np.asarray(running.log_loss(average=None)),
        "Brier": np.asarray(running.brier(average=None)),
    }
    return Measured(str(scan.path), scan.num_rows, scan.labels, numbers, by_label)


def _count(sums: Array, probabilities: Array, targets: Array) -> None:
    """Known entries, truth and probability over them, a label."""
    known = targets >= 0
    sums[0] += known.sum(0)
    sums[1] += np.where(known, targets, 0).sum(0, dtype=np.float64)
    sums[2] += np.where(known, probabilities, 0).sum(0, dtype=np.float64)


def _label_precisions(scan: Scan, advance: Callable[[float], None]) -> Array:
    width = max(1, _COLUMN_CELLS // scan.num_rows)
    result = np.empty(len(scan.labels))
    for first in range(0, len(scan.labels), width):
        names = scan.labels[first : first + width]
        values, targets = scan.columns(names, "scores" if scan.has_scores else "probabilities")
        assert targets is not None
        result[first : first + width] = metrics.average_precision(values, targets)
        advance(0.5 * len(names) / len(scan.labels))
    return result


class _ZeroLabel:
    """``metrics.zero_label`` over pieces; of each row its largest probability is kept.

    Which labels have any truth is known only at the end, and with it which rows have no label.
    """

    def __init__(self) -> None:
        self._hits = 0.0
        self._rows: list[tuple[Array, Array, Array]] = []

    def update(self, probabilities: Array, targets: Array) -> None:
        part = metrics.zero_label(probabilities, targets)
        self._hits += part.rows_in * float(part.accuracy) if part.rows_in else 0.0
        known = targets >= 0
        confidence = np.where(known, probabilities, np.float32(0)).max(axis=1)
        self._rows.append((confidence, targets.max(axis=1) > 0, known.sum(axis=1, dtype=np.int32)))

    def numbers(self, labels_with_truth: int) -> dict[str, float]:
        confidence, inside, known = (np.concatenate(each) for each in zip(*self._rows, strict=True))
        kept = inside | (known == labels_with_truth)
        if not inside.any() or inside[kept].all():
            return {}
        # As if each row had the one label "some label is present".
        whole = metrics.zero_label(confidence[kept, None], inside[kept, None])
        return {
            "IN accuracy": self._hits / whole.rows_in,
            "OUT MMC": float(whole.mean_confidence_out),
            "zero-label AUROC": float(whole.auroc),
        }


def with_intervals(
    measured: Measured, scan: Scan, *, bins: int, min_count: int, seed: int
) -> Measured:
    """The same with a 95 % interval for each number, by resampling rows; reads the whole file."""
    whole = scan.read()
    assert whole.targets is not None
    arrays = whole.probabilities, whole.targets
    found = metrics.summary_intervals(*arrays, whole.scores, min_count=min_count, seed=seed)
    if bins != _USUAL_BINS:
        for name, kind, lowest in _BINNED:
            found[name] = metrics.interval(
                metrics.calibration_error,
                *arrays,
                method="basic",
                seed=seed,
                kind=kind,
                bins=bins,
                min_count=min_count if lowest else 0,
            )
    ends = {name: (each.low, each.high) for name, each in found.items() if name in measured.numbers}
    return replace(measured, intervals=ends)


_USUAL_BINS = 15
_BINNED = (
    ("ACE", "ace", False),
    ("MCE", "mce", True),
    ("ECE", "ece", False),
)
