"""The numbers of every table, by the names that tables print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from credibly.arrays import like, to_numpy
from credibly.metrics import label_sets, zero_labels
from credibly.metrics.bootstrap import Draws, draw
from credibly.metrics.inputs import is_soft, probability_pair
from credibly.metrics.inputs import label_sets as as_sets
from credibly.metrics.intervals import Interval, quantiles
from credibly.metrics.ranking import average_precision
from credibly.metrics.running import MIN_COUNT, Running
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike

_ROWS_AT_ONCE = 16_384


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
    decoded = Targets(truth)
    running = Running(values.shape[1], bins)
    for start in range(0, len(values), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        running.update(values[rows], decoded[rows], ranked[rows])
    numbers = running.summary(average_precision(ranked, decoded), min_count)
    if not is_soft(truth):
        numbers |= _zero_label_numbers(values, decoded)
    return numbers | ({} if sets is None else _set_numbers(to_numpy(sets), decoded))


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

    Every row has a Poisson(1) weight in a resample. Calibration errors are those of the reweighted
    bins, centred on the estimate; all other numbers are expanded to first order in the weights.
    Predictions of the same rows have the same weights with the same ``seed``: the difference of
    their draws is a paired comparison.

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
    values, truth = probability_pair(probabilities, targets, coding)
    ranked = values if scores is None else to_numpy(scores)
    chosen = None if sets is None else as_sets(sets)
    options: Any = {"min_count": min_count, "bins": bins}
    estimates = summary(values, Targets(truth), ranked, chosen, **options)
    options |= {"resamples": resamples, "seed": seed}
    found = draw(estimates, values, truth, ranked, chosen, **options)
    draws = {name: like(drawn, probabilities, targets) for name, drawn in found.draws.items()}
    return Draws(found.estimates, draws)


def _zero_label_numbers(values: Array, truth: Targets) -> dict[str, float]:
    result = zero_labels.zero_label(values, truth)
    if not (result.rows_in and result.rows_out):
        return {}
    return {
        "IN accuracy": float(result.accuracy),
        "OUT MMC": float(result.mean_confidence_out),
        "zero-label AUROC": float(result.auroc),
    }


def _set_numbers(sets: Array, truth: Targets) -> dict[str, float]:
    metrics: dict[str, Callable[..., Any]] = {
        "set coverage": label_sets.set_coverage,
        "precision": label_sets.precision,
        "F1": label_sets.f1,
    }
    if not is_soft(truth.matrix):
        metrics["exact match"] = label_sets.exact_match
    numbers = {"set size": float(label_sets.set_size(sets))}
    return numbers | {name: float(metric(sets, truth)) for name, metric in metrics.items()}
