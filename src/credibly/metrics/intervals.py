"""Confidence intervals of metrics over rows, for one prediction or for a difference of two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from credibly import checks
from credibly.arrays import aligned, to_numpy
from credibly.metrics.accumulators import (
    Accumulator,
    target_matrix,
)
from credibly.metrics.calibration import (
    COUNT,
    bin_error,
    least_count,
)
from credibly.metrics.ranking import rank_influence
from credibly.metrics.summaries import MIN_COUNT, Summary, summarised
from credibly.metrics.top_labels import HeldLabels
from credibly.targets import Targets, TargetsLike
from credibly.types import Array, ArrayLike

Metric = Callable[..., Any]
Column = Array | Targets


class Interval(NamedTuple):
    """An estimate and the limits of its confidence interval."""

    estimate: float
    low: float
    high: float


def interval(
    metric: Metric,
    *arrays: TargetsLike,
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
    **options: object,
) -> Interval:
    """Return ``metric(*arrays, **options)`` with a bootstrap interval over independent rows.

    Rows are drawn with replacement, and the limits are quantiles of the metric over the resamples.
    A resample looks worse calibrated than the data, so the interval of a calibration error is too
    high. ``summary_intervals`` centres it, and is faster.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((500, 3))
        >>> targets = (rng.random((500, 3)) < probabilities).astype(int)
        >>> from credibly.metrics import brier
        >>> estimate, low, high = interval(brier, probabilities, targets)
        >>> low < 1 / 6 < high
        True
    """
    return _interval(metric, arrays, (level, resamples, seed), options)


def paired_interval(
    metric: Metric,
    first: TargetsLike,
    second: TargetsLike,
    *shared: TargetsLike,
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
    **options: object,
) -> Interval:
    """Return ``metric(first, *shared) − metric(second, *shared)`` with a confidence interval.

    Every resample evaluates both on the same rows, so effects that both share cancel. The interval
    is narrower than two separate intervals suggest.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> rates = rng.random((300, 3))
        >>> targets = (rng.random((300, 3)) < rates).astype(int)
        >>> from credibly.metrics import log_loss
        >>> paired_interval(log_loss, rates, 0.5 + 0 * rates, targets).high < 0
        True
    """
    arrays = first, second, *shared
    return _interval(metric, arrays, (level, resamples, seed), options, paired=True)


def _interval(
    metric: Metric,
    arrays: tuple[TargetsLike, ...],
    sampling: tuple[float, int, int],
    options: dict[str, object],
    *,
    paired: bool = False,
) -> Interval:
    """Return the interval of a metric, or of its difference between the first two arrays."""
    level, resamples, seed = sampling
    checks.fraction("level", level, low_open=True, high_open=True)
    checks.at_least("resamples", resamples, 1)
    columns = _decoded(metric, _same_rows(arrays))

    def number(some: Sequence[Column]) -> float:
        if not paired:
            return _number(metric(*some, **options))
        one, other = (_number(metric(each, *some[2:], **options)) for each in some[:2])
        return one - other

    rng, rows = np.random.default_rng(seed), len(columns[0])
    resampled = (rng.integers(0, rows, rows) for _ in range(resamples))
    draws = [number([column[some] for column in columns]) for some in resampled]
    return quantiles(number(columns), np.array(draws), level)


def quantiles(estimate: float, draws: Array, level: float = 0.95) -> Interval:
    """Return the interval from the values of the metric on resamples."""
    known = draws[~np.isnan(draws)]  # a resample may have no positive
    if np.isnan(estimate) or not known.size:
        return Interval(estimate, np.nan, np.nan)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high))


def _same_rows(arrays: tuple[TargetsLike, ...]) -> list[Column]:
    others = (aligned(arrays[0], each, "values") for each in arrays[1:])
    columns = [
        array if isinstance(array, Targets) else to_numpy(array) for array in (*arrays[:1], *others)
    ]
    if not columns or any(not column.shape for column in columns):
        raise checks.InputError("an interval needs arrays with one entry per row; got none.")
    if len({len(column) for column in columns}) > 1 or not len(columns[0]):
        listed = ", ".join(str(len(column)) for column in columns)
        raise checks.InputError(
            f"arrays must have the same number of rows, at least one; got {listed}."
        )
    return columns


def _decoded(metric: Metric, columns: list[Column]) -> list[Column]:
    """Decode the targets of all rows together: a single resample may not show their coding."""
    code = getattr(metric, "__code__", None)
    ours = getattr(metric, "__module__", "").startswith("credibly.metrics.")
    if not ours or code is None or "targets" not in code.co_varnames[: code.co_argcount]:
        return columns
    *values, targets = columns
    shape = values[0].shape
    if not isinstance(targets, Targets):
        whole = targets[:, None] if len(shape) == 1 else targets
        matrix = target_matrix(whole, (*shape, 1)[:2], "values")
        targets = Targets(matrix[:, 0] if len(shape) == 1 else matrix)
    return [*values, targets]


def _number(value: ArrayLike | float) -> float:
    if np.ndim(value):
        raise checks.InputError(
            f"`metric` must return one number; got shape {np.shape(value)}. "
            "Pass an average, for example `average='macro'`."
        )
    return float(value)


GROUPS = 2000
ROWS_RESAMPLED = 2**14
"""Up to so many rows, each of them is resampled."""
_ROWS_AT_ONCE = 4096
_GROUPS_AT_ONCE = 8192


@dataclass(frozen=True, repr=False)
class Draws:
    """The metrics of a summary, and their values on resamples of the rows."""

    estimates: dict[str, float]
    draws: dict[str, Array]

    def intervals(self) -> dict[str, Interval]:
        """Return a 95 % interval for each metric that has draws."""
        return {
            name: quantiles(each, self.draws[name])
            for name, each in self.estimates.items()
            if name in self.draws
        }

    def __repr__(self) -> str:
        return f"Draws({', '.join(self.estimates)})"


class GroupSums(Accumulator):
    """Sums over groups of rows, which give the intervals of every metric of a summary.

    Args:
        found: the accumulated ``Summary`` or ``HeldLabels`` of the same rows.
        influence: a function of the columns of ``update`` and the index of the first row to the
            influence of rows on mAP@y and AUROC, (rows, 2); without it they have no interval.
        groups: number of groups.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((500, 3)).astype(np.float32)
        >>> targets = (rng.random((500, 3)) < probabilities).astype(np.int8)
        >>> summary = Summary(3)
        >>> summary.update(probabilities, targets)
        >>> sums = GroupSums(summary)
        >>> sums.update(probabilities, targets, first_row=0)
        >>> estimate, low, high = sums.draws(summary.numbers()).intervals()["Brier"]
        >>> low < estimate < high
        True
    """

    def __init__(
        self,
        found: Summary | HeldLabels,
        influence: Callable[..., Array] | None = None,
        groups: int = GROUPS,
    ) -> None:
        super().__init__()
        self.found, self.influence, self.groups = found, influence, groups

    def update(self, *columns: Any, first_row: int) -> None:
        """Add rows: the columns that ``found`` takes, and the index of the first one."""
        for start in range(0, len(columns[0]), _ROWS_AT_ONCE):
            some, first = slice(start, start + _ROWS_AT_ONCE), first_row + start
            rows: list[Any] = [None if each is None else each[some] for each in columns]
            terms = self.found.row_terms(*rows)
            if self.influence is not None:
                precision, area = self.influence(*rows, first_row=first).T
                terms |= {"mAP@y": (precision, 0 * precision), "AUROC": (area, 0 * area)}
            parts = {name: np.stack(each, axis=1) for name, each in terms.items()}
            for name, each in (parts | self.found.row_bins(*rows)).items():
                self._add(name, each, first)

    def _add(self, name: str, rows: Array, first_row: int) -> None:
        """Add rows to consecutive groups, beginning with the group of the first row."""
        total, start, place = self._total(name, rows.shape[1:]), 0, first_row % self.groups
        while start < len(rows):
            size = min(self.groups - place, len(rows) - start)
            total[place : place + size] += rows[start : start + size]
            start, place = start + size, 0

    def _total(self, name: str, shape: tuple[int, ...]) -> Array:
        return self.sums.setdefault(name, np.zeros((self.groups, *shape)))

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of other rows."""
        for name, each in state.items():
            self._total(name, each.shape[1:])[...] += each

    def draws(
        self,
        estimates: Mapping[str, float],
        min_count: int = 30,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Draws:
        """Return the ``estimates``, and the known ones on resamples of the groups.

        Args:
            estimates: metrics of all rows, by their names in tables.
            min_count: as in ``summary``.
            resamples: number of resamples.
            seed: seed of the weights.
        """
        terms = {
            name: each for name, each in self.sums.items() if each.ndim == 2 and name in estimates
        }
        influence = np.stack([_group_influence(*each.T) for each in terms.values()], axis=1)
        errors = {name: how for name, how in self.found.errors.items() if name in estimates}
        linear = np.zeros((resamples, len(terms)))
        binned = {of: np.zeros((resamples, *self.sums[of].shape[1:])) for _, of in errors.values()}
        for number, first in enumerate(range(0, self.groups, _GROUPS_AT_ONCE)):
            some = slice(first, min(first + _GROUPS_AT_ONCE, self.groups))
            shape = resamples, some.stop - first
            weights = np.random.default_rng((seed, number)).poisson(1.0, shape).astype(np.float64)
            linear += (weights - 1.0) @ influence[some]
            for of in binned:
                binned[of] += np.tensordot(weights, self.sums[of][some], axes=1)
        draws = {name: estimates[name] + each for name, each in zip(terms, linear.T, strict=True)}
        for name, (kind, of) in errors.items():
            draws[name] = _error_draws(binned[of], self.sums[of].sum(0), kind, min_count)
        return Draws(dict(estimates), draws)


def _group_influence(part: Array, whole: Array) -> Array:
    """Return the influence of each group on Σ part / Σ whole; the part itself without a whole."""
    total = whole.sum()
    scale = total if total > 0 else 1.0
    return (part - part.sum() / scale * whole) / scale


def _error_draws(total: Array, whole: Array, kind: str, min_count: int) -> Array:
    """Return calibration errors over the bins that count in the whole, centred on its error.

    A resample looks worse calibrated than the data. Its spread is right, so only its centre is
    moved to the error of the data. Estimate and interval then describe the same quantity.
    """
    kept = whole[:, COUNT] >= least_count(kind, min_count)
    if not kept.any():
        return np.full(len(total), np.nan)
    errors = bin_error(total[:, kept], kind, 1)
    return bin_error(whole[kept], kind, 1) + errors - np.nanmean(errors)


def summary_intervals(
    probabilities: ArrayLike,
    targets: TargetsLike,
    scores: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    min_count: int = MIN_COUNT,
    resamples: int = 200,
    seed: int = 0,
    *,
    bins: int = 15,
) -> dict[str, Interval]:
    """Return ``summary`` with a 95 % interval for each metric, by resampling rows.

    Calibration errors keep their upward bias, in the estimate and in the interval. Resamples are
    linear in the weights of the rows (see ``summary_draws``), so their number hardly affects the
    time.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probabilities = rng.random((200, 2))
        >>> targets = (rng.random((200, 2)) < probabilities).astype(int)
        >>> number = summary_intervals(probabilities, targets, resamples=50)["Brier"]
        >>> number.low < number.estimate < number.high
        True
    """
    found = summary_draws(
        probabilities, targets, scores, sets, min_count, resamples, seed, bins=bins
    )
    return found.intervals()


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
) -> Draws:
    """Return ``summary`` and its metrics on resamples of the rows.

    Every row has a Poisson(1) weight in a resample. Above 16,384 rows, every group of rows has one
    (``GroupSums``). Calibration errors are those of the reweighted bins, centred on the estimate.
    All other metrics are expanded to first order in the weights. Predictions of the same rows have
    the same weights if the ``seed`` is the same, so the difference of their draws is a paired
    comparison.

    Returns:
        ``estimates`` and ``draws`` (arrays of ``resamples`` values), by the names of ``summary``.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> rates = rng.random((300, 3))
        >>> targets = (rng.random((300, 3)) < rates).astype(int)
        >>> mine, other = summary_draws(rates, targets), summary_draws(0.5 + 0 * rates, targets)
        >>> bool((mine.draws["NLL"] < other.draws["NLL"]).all())
        True
    """
    found, estimates, rows = summarised(probabilities, targets, scores, sets, min_count, bins)
    values, truth, ranked, _ = rows
    influence = rank_influence(ranked, truth)
    groups = GroupSums(
        found,
        lambda some, *_, first_row: influence[first_row : first_row + len(some)],
        len(values) if len(values) <= ROWS_RESAMPLED else GROUPS,
    )
    groups.update(*rows, first_row=0)
    return groups.draws(estimates, min_count, resamples, seed)
