"""The numbers one looks at first, by the names that tables print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from credibly.arrays import to_numpy
from credibly.metrics import label_sets, zero_labels
from credibly.metrics._inputs import probability_pair
from credibly.metrics.intervals import Interval, bootstrap_rows, quantiles
from credibly.metrics.ranking import average_precision
from credibly.metrics.running import Running
from credibly.types import Array, ArrayLike

CALIBRATION = ("ACE", "MCE", "ECE")


def summary(
    probabilities: ArrayLike,
    targets: ArrayLike,
    scores: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    min_count: int = 30,
) -> dict[str, float]:
    """Headline numbers of a prediction, in the order of a table.

    Ranking is by ``scores`` where given, else by the probabilities. ``min_count`` holds for MCE
    alone. Zero-label numbers appear where some rows are known to have no label and others have
    one, those of sets where ``sets`` are given; soft targets leave ranking and sets out.

    Example:
        >>> probabilities = np.array([[0.9, 0.2], [0.3, 0.8], [0.1, 0.4]])
        >>> numbers = summary(probabilities, np.array([[1, 0], [0, 1], [0, 0]]))
        >>> list(numbers)[:7]
        ['mAP@y', 'mAP@x', 'ACE', 'MCE', 'ECE', 'NLL', 'Brier']
        >>> round(numbers["ACE"], 4), round(numbers["NLL"], 4)
        (0.2167, 0.2541)
    """
    values, truth = probability_pair(probabilities, targets)
    ranked = values if scores is None else to_numpy(scores)
    running = Running(values.shape[1])
    running.update(values, truth, ranked)
    hard = truth.dtype == np.int8
    numbers = running.summary(average_precision(ranked, truth) if hard else None, min_count)
    if hard:
        numbers |= _zero_label_numbers(values, truth)
        numbers |= {} if sets is None else _set_numbers(to_numpy(sets), truth)
    return numbers


def summary_intervals(
    probabilities: ArrayLike,
    targets: ArrayLike,
    scores: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    min_count: int = 30,
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
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
    given = {"probabilities": probabilities, "targets": targets, "scores": scores, "sets": sets}
    arrays = {name: to_numpy(array) for name, array in given.items() if array is not None}
    estimates = summary(**arrays, min_count=min_count)
    draws: dict[str, list[float]] = {name: [] for name in estimates}
    for rows in bootstrap_rows(len(arrays["targets"]), resamples, seed):
        drawn = summary(**{name: each[rows] for name, each in arrays.items()}, min_count=min_count)
        for name, values in draws.items():
            values.append(drawn.get(name, np.nan))
    return {
        name: quantiles(
            estimate, np.array(draws[name]), level, "basic" if name in CALIBRATION else "bootstrap"
        )
        for name, estimate in estimates.items()
    }


def _zero_label_numbers(values: Array, truth: Array) -> dict[str, float]:
    result = zero_labels.zero_label(values, truth)
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
        "exact match": label_sets.exact_match,
    }
    numbers = {"set size": float(label_sets.set_size(sets))}
    return numbers | {name: float(metric(sets, truth)) for name, metric in metrics.items()}
