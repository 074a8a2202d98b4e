"""Metrics that are a ratio of sums over rows, as the two terms that each row adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from credibly import checks
from credibly.metrics import label_sets, ranking, scoring
from credibly.metrics.inputs import by_blocks, hard, probability_pair, set_pair
from credibly.metrics.inputs import label_sets as as_sets
from credibly.targets import Targets
from credibly.types import Array

Terms = tuple[Array, Array]


def row_terms(metric: Callable[..., Any], columns: list[Any], **options: Any) -> Terms:
    """(part, whole) of each row, so that the metric is Σ part / Σ whole; targets are `Targets`."""
    terms = _TERMS.get(metric)
    if terms is None:
        known = ", ".join(sorted(each.__name__ for each in _TERMS))
        name = getattr(metric, "__name__", metric)
        raise checks.InputError(
            f"an analytic interval exists for {known}; got {name}. Use method='bootstrap'."
        )
    if options.get("average", "pooled") != "pooled":
        raise checks.InputError(
            f"an analytic interval needs average='pooled'; got {options['average']!r}. "
            "Use method='bootstrap'."
        )
    rest = {name: value for name, value in options.items() if name != "average"}
    if len(columns) == 2 and columns[0].ndim == 2 and columns[0].shape == columns[1].shape:
        both = by_blocks(lambda *some: np.stack(terms(*some, **rest), axis=1), *columns)
        return both[:, 0], both[:, 1]
    return terms(*columns, **rest)


def _log_loss(probabilities: Array, targets: Targets, floor: float | None = None) -> Terms:
    values, truth = probability_pair(probabilities, targets)
    lowest, known = scoring.smallest(values.dtype, floor), truth >= 0
    p, y = values.astype(np.float64), np.where(known, truth, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        present = np.where(y > 0, y * np.log(np.maximum(p, lowest)), 0.0)
        absent = np.where(y < 1, (1 - y) * np.log(np.maximum(1 - p, lowest)), 0.0)
    return -np.where(known, present + absent, 0.0).sum(1), known.sum(1)


def _brier(probabilities: Array, targets: Targets) -> Terms:
    values, truth = probability_pair(probabilities, targets)
    known = truth >= 0
    squared = (values.astype(np.float64) - truth) ** 2
    return np.where(known, squared, 0.0).sum(1), known.sum(1)


def _expected_size(probabilities: Array) -> Terms:
    return probabilities.sum(1, dtype=np.float64), np.ones(len(probabilities))


def _mean_average_precision(scores: Array, targets: Targets, over: str = "labels") -> Terms:
    if over != "samples":
        raise checks.InputError(
            "mAP over labels is no mean over rows; use method='bootstrap', or over='samples'."
        )
    each = ranking.sample_average_precision(scores, targets)
    return np.nan_to_num(each), (~np.isnan(each)).astype(np.float64)


def _set_coverage(sets: Array, targets: Targets) -> Terms:
    chosen, truth = set_pair(sets, targets)
    present = np.where(truth >= 0, truth, 0)
    return np.where(chosen, present, 0).sum(1), present.sum(1)


def _set_size(sets: Array) -> Terms:
    return as_sets(sets).sum(1).astype(np.float64), np.ones(len(sets))


def _hamming(sets: Array, targets: Targets) -> Terms:
    chosen, truth = set_pair(sets, targets)
    known = truth >= 0
    return np.where(known, np.abs(chosen - truth), 0).sum(1), known.sum(1)


def _exact_match(sets: Array, targets: Targets) -> Terms:
    chosen, truth = set_pair(sets, targets)
    known = hard(truth, "exact_match") >= 0
    right = ((chosen == truth) | ~known).all(1) & known.any(1)
    return right.astype(np.float64), np.asarray(known.any(1), np.float64)


_TERMS: dict[Callable[..., Any], Callable[..., Terms]] = {
    scoring.log_loss: _log_loss,
    scoring.brier: _brier,
    scoring.expected_size: _expected_size,
    ranking.mean_average_precision: _mean_average_precision,
    label_sets.set_coverage: _set_coverage,
    label_sets.set_size: _set_size,
    label_sets.hamming: _hamming,
    label_sets.exact_match: _exact_match,
}
