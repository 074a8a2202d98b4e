"""How far to trust a number: intervals over rows, for one prediction or the difference of two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.frames import aligned
from credibly.metrics import label_sets, proper, ranking
from credibly.metrics.inputs import by_blocks, probability_pair, set_pair, target_matrix
from credibly.metrics.inputs import label_sets as as_sets
from credibly.metrics.proportions import proportion_interval
from credibly.targets import Targets, TargetsLike, decode
from credibly.types import Array

Method = Literal["bootstrap", "basic", "analytic"]

Terms = tuple[Array, Array]


class Interval(NamedTuple):
    """A number and the ends of its confidence interval."""

    estimate: float
    low: float
    high: float


def interval(
    metric: Callable[..., Any],
    *arrays: TargetsLike,
    level: float = 0.95,
    method: Method = "bootstrap",
    resamples: int = 200,
    seed: int = 0,
    **options: object,
) -> Interval:
    """``metric(*arrays, **options)`` with a confidence interval, rows being independent.

    ``method="bootstrap"`` draws rows with replacement and takes quantiles of the metric;
    ``"basic"`` reflects them about the estimate, which undoes the upward bias of calibration
    errors (a resample looks worse calibrated than the data it came from). ``"analytic"`` needs no
    resampling: for metrics that are a mean over rows or entries (``log_loss``, ``brier``,
    ``hamming``, ``exact_match``, ``set_coverage``, ``set_size``, ``expected_size`` and
    ``mean_average_precision`` over samples), by the delta method with the row as the unit, or the
    exact Clopper–Pearson interval where each row is a single success or failure.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((500, 3))
        >>> targets = (rng.random((500, 3)) < probabilities).astype(int)
        >>> from credibly.metrics import brier
        >>> estimate, low, high = interval(brier, probabilities, targets)
        >>> low < 1 / 6 < high
        True
    """
    _check_options(level, method, resamples)
    columns, options = _decoded(metric, _same_rows(arrays), options)
    if method == "analytic":
        return _analytic(metric, columns, options, level)
    estimate = _number(metric(*columns, **options))
    draws = [
        _number(metric(*(column[rows] for column in columns), **options))
        for rows in bootstrap_rows(len(columns[0]), resamples, seed)
    ]
    return quantiles(estimate, np.array(draws), level, method)


def paired_interval(
    metric: Callable[..., Any],
    first: TargetsLike,
    second: TargetsLike,
    *shared: TargetsLike,
    level: float = 0.95,
    method: Method = "bootstrap",
    resamples: int = 200,
    seed: int = 0,
    **options: object,
) -> Interval:
    """``metric(first, *shared) − metric(second, *shared)`` with a confidence interval.

    Both are measured on the same rows in every resample, so what makes a row hard for both
    cancels; the interval is narrower than two separate ones suggest. Methods as in ``interval``.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> rates = rng.random((300, 3))
        >>> targets = (rng.random((300, 3)) < rates).astype(int)
        >>> from credibly.metrics import log_loss
        >>> paired_interval(log_loss, rates, 0.5 + 0 * rates, targets).high < 0
        True
    """
    _check_options(level, method, resamples)
    columns, options = _decoded(metric, _same_rows((first, second, *shared)), options)
    if method == "analytic":
        return _analytic_difference(metric, columns, options, level)

    def difference(one: Array, other: Array, *rest: Array) -> float:
        return _number(metric(one, *rest, **options)) - _number(metric(other, *rest, **options))

    return interval(
        difference,
        *columns,
        level=level,
        method=method,
        resamples=resamples,
        seed=seed,
    )


def bootstrap_rows(rows: int, resamples: int, seed: int) -> Iterator[Array]:
    """Row numbers of each resample."""
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        yield rng.integers(0, rows, rows)


def quantiles(estimate: float, draws: Array, level: float, method: Method) -> Interval:
    """The interval that the metric's values on resamples give."""
    known = draws[~np.isnan(draws)]  # a resample can miss every positive
    if np.isnan(estimate) or not known.size:
        return Interval(estimate, np.nan, np.nan)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    if method == "basic":
        low, high = 2 * estimate - high, 2 * estimate - low
    return Interval(estimate, float(low), float(high))


def _analytic(
    metric: Callable[..., Any], columns: list[Any], options: dict[str, Any], level: float
) -> Interval:
    part, whole = _row_terms(metric, columns, **options)
    trials = whole.sum()
    if not trials:
        return Interval(np.nan, np.nan, np.nan)
    estimate = float(part.sum() / trials)
    if np.isin(whole, (0, 1)).all() and np.isin(part, (0, 1)).all():
        low, high = proportion_interval(part.sum(), trials, level, "clopper-pearson")
        return Interval(estimate, float(low), float(high))
    return _around(estimate, _influence(part, whole), level)


def _analytic_difference(
    metric: Callable[..., Any], columns: list[Any], options: dict[str, Any], level: float
) -> Interval:
    first, second, *shared = columns
    one, other = (_row_terms(metric, [each, *shared], **options) for each in (first, second))
    estimate = one[0].sum() / one[1].sum() - other[0].sum() / other[1].sum()
    return _around(float(estimate), _influence(*one) - _influence(*other), level)


def _influence(part: Array, whole: Array) -> Array:
    """What each row adds to the error of the ratio Σ part / Σ whole, to first order."""
    return (part - part.sum() / whole.sum() * whole) / whole.mean()


def _around(estimate: float, influence: Array, level: float) -> Interval:
    from scipy.special import stdtrit

    n = len(influence)
    if n < 2:
        return Interval(estimate, np.nan, np.nan)
    half = stdtrit(n - 1, (1 + level) / 2) * influence.std(ddof=1) / np.sqrt(n)
    return Interval(estimate, float(estimate - half), float(estimate + half))


def _check_options(level: float, method: str, resamples: int) -> None:
    checks.choice("method", method, ("bootstrap", "basic", "analytic"))
    checks.fraction("level", level, low_open=True, high_open=True)
    checks.at_least("resamples", resamples, 1)


def _same_rows(arrays: tuple[TargetsLike, ...]) -> list[Any]:
    others = (aligned(arrays[0], each, "values") for each in arrays[1:])
    columns = [
        array if isinstance(array, Targets) else to_numpy(array) for array in (*arrays[:1], *others)
    ]
    if not columns or any(not column.shape for column in columns):
        raise checks.InputError("an interval needs arrays with one entry a row; got none.")
    if len({len(column) for column in columns}) > 1 or not len(columns[0]):
        listed = ", ".join(str(len(column)) for column in columns)
        raise checks.InputError(
            f"arrays must have the same number of rows, at least one; got {listed}."
        )
    return columns


def _decoded(
    metric: Callable[..., Any], columns: list[Any], options: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Decode the targets of all rows once: a resample alone cannot tell how they are coded."""
    if "coding" not in (getattr(metric, "__kwdefaults__", None) or {}):
        return columns, options  # no metric of this package that takes targets
    *values, targets = columns
    coding, shape = options.get("coding"), values[0].shape
    if isinstance(targets, Targets):
        decoded = targets.matrix
    elif len(shape) == 1:
        decoded = decode(targets[:, None], coding=coding)[:, 0]
    else:
        decoded = target_matrix(targets, shape, "values", coding)
    rest = {name: value for name, value in options.items() if name != "coding"}
    return [*values, Targets(decoded)], rest


def _number(value: Any) -> float:
    if np.ndim(value):
        raise checks.InputError(
            f"`metric` must return one number; got shape {np.shape(value)}. "
            "Pass an average, for example `average='macro'`."
        )
    return float(value)


def _row_terms(metric: Callable[..., Any], columns: list[Any], **options: Any) -> Terms:
    """(part, whole) of each row, so that the metric is Σ part / Σ whole; targets are `Targets`."""
    terms = _TERMS.get(metric)
    if terms is None:
        known = ", ".join(sorted(each.__name__ for each in _TERMS))
        name = getattr(metric, "__name__", metric)
        raise checks.InputError(
            f"an analytic interval exists for {known}; got {name}. Use method='bootstrap'."
        )
    average = options.pop("average", "pooled")
    if average != "pooled":
        raise checks.InputError(
            f"an analytic interval needs average='pooled'; got {average!r}. Use method='bootstrap'."
        )
    if len(columns) == 2 and columns[0].ndim == 2 and columns[0].shape == columns[1].shape:
        both = by_blocks(lambda *some: np.stack(terms(*some, **options), axis=1), *columns)
        return both[:, 0], both[:, 1]
    return terms(*columns, **options)


def _log_loss(probabilities: Array, targets: Targets, floor: float | None = None) -> Terms:
    count, log_loss, _ = proper.row_scores(*probability_pair(probabilities, targets), floor).T
    return log_loss, count


def _brier(probabilities: Array, targets: Targets) -> Terms:
    count, _, squared = proper.row_scores(*probability_pair(probabilities, targets)).T
    return squared, count


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
    hits, _, present = label_sets.set_counts(*set_pair(sets, targets), 1)
    return hits, present


def _set_size(sets: Array) -> Terms:
    return as_sets(sets).sum(1).astype(np.float64), np.ones(len(sets))


_TERMS: dict[Callable[..., Any], Callable[..., Terms]] = {
    proper.log_loss: _log_loss,
    proper.brier: _brier,
    proper.expected_size: _expected_size,
    ranking.mean_average_precision: _mean_average_precision,
    label_sets.set_coverage: _set_coverage,
    label_sets.set_size: _set_size,
    label_sets.hamming: lambda sets, targets: label_sets.hamming_terms(*set_pair(sets, targets)),
    label_sets.exact_match: lambda sets, targets: label_sets.exact_match_terms(
        *set_pair(sets, targets)
    ),
}
