"""The numbers of every table, by the names that tables print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from credibly.arrays import to_numpy
from credibly.metrics import label_sets, zero_labels
from credibly.metrics._inputs import is_soft, probability_pair
from credibly.metrics.intervals import Interval, bootstrap_rows, quantiles
from credibly.metrics.ranking import average_precision
from credibly.metrics.running import MIN_COUNT, Running
from credibly.targets import Coding
from credibly.types import Array, ArrayLike

CALIBRATION = ("ACE", "MCE", "ECE", "ECE-top-4")


def summary(
    probabilities: ArrayLike,
    targets: ArrayLike,
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
        min_count: entries that a bin needs to count for ACE, MCE and ECE, the same bins for all
            three; they are NaN where no bin has so many.
        bins: equal-width bins of the calibration errors.
        coding: how to read targets of only −1 and +1: ``"signed"`` or ``"unknown"``.

    Returns:
        Zero-label numbers appear where some rows are known to have no label and others have one,
        top-4 numbers with more than four labels, those of sets where ``sets`` are given. Soft
        targets leave out what they cannot define: zero-label numbers and exact match.

    Example:
        >>> probabilities = np.array([[0.9, 0.2], [0.3, 0.8], [0.1, 0.4]])
        >>> numbers = summary(probabilities, np.array([[1, 0], [0, 1], [0, 0]]), min_count=1)
        >>> list(numbers)[:7]
        ['mAP@y', 'mAP@x', 'ACE', 'MCE', 'ECE', 'NLL', 'Brier']
        >>> round(numbers["ACE"], 4), round(numbers["NLL"], 4)
        (0.2167, 0.2541)
    """
    values, truth = probability_pair(probabilities, targets, coding)
    ranked = values if scores is None else to_numpy(scores)
    running = Running(values.shape[1], bins, coding="unknown")
    running.update(values, truth, ranked)
    numbers = running.summary(average_precision(ranked, truth, coding="unknown"), min_count)
    if not is_soft(truth):
        numbers |= _zero_label_numbers(values, truth)
    return numbers | ({} if sets is None else _set_numbers(to_numpy(sets), truth))


def summary_intervals(
    probabilities: ArrayLike,
    targets: ArrayLike,
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
    """``summary`` with a confidence interval for each number, by resampling rows.

    Calibration errors have the ``"basic"`` interval, the others the plain bootstrap's (see
    ``interval``).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((200, 2))
        >>> targets = (rng.random((200, 2)) < probabilities).astype(int)
        >>> number = summary_intervals(probabilities, targets, resamples=50)["Brier"]
        >>> number.low < number.estimate < number.high
        True
    """
    values, truth = probability_pair(probabilities, targets, coding)
    given = {"probabilities": values, "targets": truth, "scores": scores, "sets": sets}
    arrays = {name: to_numpy(array) for name, array in given.items() if array is not None}
    estimates = summary(**arrays, min_count=min_count, bins=bins, coding="unknown")
    draws: dict[str, list[float]] = {name: [] for name in estimates}
    for rows in bootstrap_rows(len(arrays["targets"]), resamples, seed):
        drawn = summary(
            **{name: each[rows] for name, each in arrays.items()},
            min_count=min_count,
            bins=bins,
            coding="unknown",
        )
        for name, values in draws.items():
            values.append(drawn.get(name, np.nan))
    return {
        name: quantiles(
            estimate, np.array(draws[name]), level, "basic" if name in CALIBRATION else "bootstrap"
        )
        for name, estimate in estimates.items()
    }


def _zero_label_numbers(values: Array, truth: Array) -> dict[str, float]:
    result = zero_labels.zero_label(values, truth, coding="unknown")
    if not (result.rows_in and result.rows_out):
        return {}
    return {
        "IN accuracy": float(result.accuracy),
        "OUT MMC": float(result.mean_confidence_out),
        "zero-label AUROC": float(result.auroc),
    }


def _set_numbers(sets: Array, truth: Array) -> dict[str, float]:
    metrics: dict[str, Callable[..., Any]] = {
        "set coverage": label_sets.set_coverage,
        "precision": label_sets.precision,
        "F1": label_sets.f1,
    }
    if not is_soft(truth):
        metrics["exact match"] = label_sets.exact_match
    numbers = {"set size": float(label_sets.set_size(sets))}
    return numbers | {
        name: float(metric(sets, truth, coding="unknown")) for name, metric in metrics.items()
    }
