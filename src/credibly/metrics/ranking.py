"""Ranking metrics, also for data larger than memory: average precision, AUROC, ranking errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.checks import InputError
from credibly.compiled import compiled
from credibly.metrics.accumulators import (
    SparseSums,
    hard,
    is_soft,
    mean_known,
    score_pair,
)
from credibly.targets import Targets, TargetsLike
from credibly.types import Array, ArrayLike

_BLOCK = 16  # labels gathered at a time: one cache line of float32
TOTALS = 4
"""Sums of ``label_totals``."""
_MAX_COUNTED = 200  # positives of a row; above it, sorting is faster than counting


def average_precision(scores: ArrayLike, targets: TargetsLike) -> ArrayLike:
    r"""Return the average precision of each label; NaN for a label without a known positive.

    $$\mathrm{AP} = \frac{1}{\sum_i y_i} \sum_i
      y_i \frac{\sum_{j : s_j \ge s_i} y_j}{\#\{j : s_j \ge s_i\}}$$

    over known entries. With targets 0 and 1 this is scikit-learn's value, including ties. A soft
    target $y_i$ counts as positive with weight $y_i$ and as negative with weight $1 - y_i$. This is
    the value of scikit-learn with each row twice, as a weighted positive and a weighted negative.
    Rank by scores instead of probabilities if a link saturates. One-dimensional arguments belong to
    one label and give one number, so a file can be read column by column.

    Args:
        scores: (rows, labels) or (rows,); only their order counts.
        targets: of the same shape, 1, 0, soft or unknown; or class indices.

    Returns:
        One value per label.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
        >>> average_precision(scores, np.array([[1, 0], [0, -1], [1, 0]]))
        array([0.83333333,        nan])
        >>> float(average_precision(scores[:, 0], np.array([1, 0, 1])))
        0.8333333333333333
        >>> float(average_precision(scores[:, 0], np.array([0.5, 0.0, 1.0])))
        0.5
    """
    result = precisions(label_totals(*score_pair(scores, targets)))
    return like(result[0] if to_numpy(scores).ndim == 1 else result, scores, targets)


def auroc(scores: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return the area under the ROC curve of each label.

    This is the share of (positive, negative) pairs in the right order over known entries; a tie
    counts half. It is NaN for a label without a known positive or a known negative. Soft targets
    and one-dimensional arguments are as in ``average_precision``. ``curves`` returns its interval.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
        >>> auroc(scores, np.array([[1, 0], [0, 1], [1, 0]]))
        array([0.5, 1. ])
    """
    result = aurocs(label_totals(*score_pair(scores, targets)))
    return like(result[0] if to_numpy(scores).ndim == 1 else result, scores, targets)


def sample_average_precision(scores: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return the average precision of each row over its known labels; NaN without a positive.

    Soft targets count as in ``average_precision``.

    Example:
        >>> sample_average_precision(np.array([[0.9, 0.8, 0.1]]), np.array([[0, 1, 1]]))
        array([0.58333333])
    """
    return like(row_precisions(*score_pair(scores, targets)), scores, targets)


def row_precisions(values: Array, truth: Array) -> Array:
    """Return ``sample_average_precision`` of checked rows."""
    values, truth = np.ascontiguousarray(values), np.ascontiguousarray(truth)
    out = np.empty(len(values))
    if is_soft(truth):
        _sort_rows(values, truth.astype(np.float64, copy=False), out)
        return out
    _count_in_rows(values, truth, _MAX_COUNTED, out)
    many = out < 0
    if many.any():
        out[many] = row_precisions(values[many], truth[many].astype(np.float64))
    return out


@compiled(error_model="numpy")
def _count_in_rows(scores: Array, targets: Array, limit: int, out: Array) -> None:
    """Write the average precision of each row to ``out``; NaN for rows without a positive.

    It counts instead of sorting: rows have few positives, and counting uses vector instructions.
    Rows with more than ``limit`` positives get -1 and are left to ``_sort_rows``.
    """
    num_labels = scores.shape[1]
    present = np.empty(num_labels, np.int64)
    for row in range(scores.shape[0]):
        values, truth = scores[row], targets[row]
        count = 0
        for t in range(num_labels):
            present[count] = t
            count += truth[t] > 0
        if count > limit:
            out[row] = -1.0
            continue
        total = 0.0
        for a in present[:count]:
            above, hits = 0, 0
            for t in range(num_labels):
                above += (values[t] >= values[a]) & (truth[t] >= 0)
            for b in present[:count]:
                hits += values[b] >= values[a]
            total += hits / above
        out[row] = total / count  # 0/0 is NaN


@compiled(error_model="numpy")
def _sort_rows(scores: Array, targets: Array, out: Array) -> None:
    """Write the average precision of rows, also with soft targets, like ``_count_in_rows``."""
    for row in range(scores.shape[0]):
        known = targets[row] >= 0
        values, weights = scores[row][known], targets[row][known]
        order = np.argsort(-values)
        total, _ = _ranked_soft_totals(values[order], weights[order], 0.0, 0.0)
        out[row] = total / weights.sum()


def mean_average_precision(
    scores: ArrayLike, targets: TargetsLike, over: Literal["labels", "samples"] = "labels"
) -> ArrayLike:
    """Return mAP@y (``over="labels"``) or mAP@x (``over="samples"``), over those with a positive.

    Example:
        >>> scores = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
        >>> targets = np.array([[1, 0], [0, 1], [1, 0]])
        >>> float(mean_average_precision(scores, targets))
        0.9166666666666666
        >>> float(mean_average_precision(scores, targets, over="samples"))
        0.8333333333333334
    """
    checks.choice("over", over, ("labels", "samples"))
    each = average_precision if over == "labels" else sample_average_precision
    values, truth = score_pair(scores, targets)
    return like(mean_known(to_numpy(each(values, Targets(truth)))), scores, targets)


def ranking_loss(scores: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return the share of (present, absent) label pairs in the wrong order; ties are wrong.

    It is the mean over rows that have both; scikit-learn counts other rows as 0.

    Example:
        >>> float(ranking_loss(np.array([[0.9, 0.8, 0.1]]), np.array([[0, 1, 0]])))
        0.5
    """
    values, truth = score_pair(scores, targets)
    present, absent = hard(truth, "ranking_loss") > 0, truth == 0
    order = np.lexsort((present, -values))  # of tied labels the absent ones first
    above = np.cumsum(np.take_along_axis(absent, order, 1), axis=1)
    wrong = (above * np.take_along_axis(present, order, 1)).sum(1)
    return _mean_share(wrong, present.sum(1) * absent.sum(1), scores, targets)


def one_error(scores: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return the share of rows whose highest label is absent, over rows with a positive.

    If several labels share the highest score, the row counts with the share of them that is absent.

    Example:
        >>> float(one_error(np.array([[0.9, 0.8], [0.1, 0.7]]), np.array([[0, 1], [0, 1]])))
        0.5
    """
    values, truth = score_pair(scores, targets)
    present, known = hard(truth, "one_error") > 0, truth >= 0
    highest = values.max(1, keepdims=True, initial=-np.inf, where=known)
    top = known & (values == highest)
    ties = top.sum(1) * present.any(1)
    return _mean_share((top & ~present).sum(1), ties, scores, targets)


def coverage_error(scores: ArrayLike, targets: TargetsLike) -> ArrayLike:
    """Return the mean number of top labels that contain all present labels of a row.

    Example:
        >>> float(coverage_error(np.array([[0.9, 0.8, 0.1]]), np.array([[0, 1, 0]])))
        2.0
    """
    values, truth = score_pair(scores, targets)
    present = hard(truth, "coverage_error") > 0
    lowest = values.min(1, keepdims=True, initial=np.inf, where=present)
    depth = ((values >= lowest) & (truth >= 0)).sum(1)
    return _mean_share(depth, np.asarray(present.any(1)), scores, targets)


def _mean_share(part: Array, whole: Array, *given: ArrayLike | Targets) -> ArrayLike:
    """Return the mean of part / whole over the rows where the whole is not 0."""
    some = whole > 0
    return like(mean_known(part[some] / whole[some]), *given)


def label_totals(values: Array, truth: Array, above: float = 0.0, hits_above: float = 0.0) -> Array:
    """Return four sums of each label over known entries, (labels, 4).

    The columns are Σ target × precision; Σ target; the weight of (positive, negative) pairs in the
    wrong order, with ties counting half; Σ (1 − target). They can be added over ranges of values.

    Args:
        values: (rows, labels) without NaN.
        truth: decoded targets of the same shape.
        above: the number of the label's values in higher ranges.
        hits_above: the sum of their targets.
    """
    totals: Array = np.empty((values.shape[1], TOTALS))
    if is_soft(truth):
        for t in range(values.shape[1]):
            known = truth[:, t] >= 0
            scores, weights = values[known, t], truth[known, t].astype(np.float64)
            order = np.argsort(-scores)
            total, wrong = _ranked_soft_totals(scores[order], weights[order], above, hits_above)
            totals[t] = total, weights.sum(), wrong, (1 - weights).sum()
        return totals
    rows, num_labels = values.shape
    width = min(_BLOCK, num_labels)
    columns: Array = np.empty((2, width, rows), values.dtype)  # of all known rows, of positives
    counts: Array = np.zeros((2, width), np.int64)
    for first in range(0, num_labels, _BLOCK):
        size = min(_BLOCK, num_labels - first)
        block = _block(values, truth, first, size)
        _gather_columns(*block, columns, counts[:, :size])
        for t in range(size):
            # Sorting values is faster than sorting indices; positives are then looked up.
            ranked, hits = (columns[k, t, : counts[k, t]] for k in range(2))
            ranked.sort()
            hits.sort()
            total, wrong = _ranked_totals(ranked, hits, above, hits_above)
            totals[first + t] = total, len(hits), wrong, len(ranked) - len(hits)
    return totals


@compiled(error_model="numpy")
def _gather_columns(
    scores: Array,
    targets: Array,
    first: int,
    columns: Array,
    counts: Array,
) -> None:
    """Copy known scores of some labels to rows of ``columns[0]``, those of positives to the second.

    ``counts`` (2, labels) receives how many; the labels are those from ``first`` on.
    """
    counts[:] = 0
    rows = scores.shape[0]
    # A tile of rows stays in the first-level cache while all labels are read from it.
    for begin in range(0, rows, 256):
        for t in range(counts.shape[1]):
            i, j, column, hits = counts[0, t], counts[1, t], columns[0, t], columns[1, t]
            for row in range(begin, min(begin + 256, rows)):
                score, target = scores[row, first + t], targets[row, first + t]
                if target >= 0:
                    column[i] = score
                    i += 1
                    if target > 0:
                        hits[j] = score
                        j += 1
            counts[0, t], counts[1, t] = i, j


@compiled(error_model="numpy")
def _ranked_totals(
    ranked: Array, positives: Array, above: float, hits_above: float
) -> tuple[float, float]:
    """Return the sum over positives of (positives ≥ s) / (all ≥ s), and that of negatives > s.

    Ties count half. Both arrays are ascending. ``above`` values, ``hits_above`` of them positive,
    are higher than all of these.
    """
    total, wrong, n, count = 0.0, 0.0, len(ranked), len(positives)
    at, first = 0, 0
    while first < count:
        value, end = positives[first], first + 1
        while end < count and positives[end] == value:
            end += 1
        at = _first_not_below(ranked, value, at)
        tied = 0
        while at + tied < n and ranked[at + tied] == value:
            tied += 1
        hits, reached = hits_above + count - first, above + n - at
        total += (end - first) * (hits / reached)
        wrong += (end - first) * (reached - hits - (tied - (end - first)) / 2)
        first = end
    return total, wrong


@compiled(error_model="numpy", inline="always")
def _first_not_below(ranked: Array, value: float, low: int) -> int:
    """Return the index of the first entry ≥ ``value`` from ``low`` on: gallop, then bisect."""
    step, high = 1, low
    while high < len(ranked) and ranked[high] < value:
        low = high + 1
        high += step
        step *= 2
    high = min(high, len(ranked))
    while low < high:
        middle = (low + high) // 2
        if ranked[middle] < value:
            low = middle + 1
        else:
            high = middle
    # A positive is always among the ranked; this limit prevents a division by 0 on invalid input.
    return min(low, len(ranked) - 1)


@compiled(error_model="numpy")
def _ranked_soft_totals(
    scores: Array, weights: Array, above: float, hits_above: float
) -> tuple[float, float]:
    """Return ``_ranked_totals`` for positive weights y and negative 1 − y; scores descending."""
    total, wrong, hits = 0.0, 0.0, hits_above
    count, begin = len(scores), 0
    while begin < count:
        end, tied = begin, 0.0
        while end < count and (end == begin or scores[end] == scores[begin]):
            tied += weights[end]
            end += 1
        wrong += tied * (above + begin - hits + (end - begin - tied) / 2)
        hits += tied
        total += tied * hits / (above + end)
        begin = end
    return total, wrong


def precisions(totals: Array) -> Array:
    """Return the average precision of each label from ``label_totals``; NaN without a positive."""
    with np.errstate(invalid="ignore"):
        return totals[:, 0] / totals[:, 1]


def aurocs(totals: Array) -> Array:
    """Return the AUROC of each label from ``label_totals``; NaN without a positive or negative."""
    with np.errstate(invalid="ignore"):
        return 1 - totals[:, 2] / (totals[:, 1] * totals[:, 3])


def _block(values: Array, truth: Array, first: int, size: int) -> tuple[Array, Array, int]:
    """Return the arrays unchanged if rows are contiguous, else a copy of these labels."""
    if values.flags.c_contiguous and truth.flags.c_contiguous:
        return values, truth, first
    labels = slice(first, first + size)
    return np.ascontiguousarray(values[:, labels]), np.ascontiguousarray(truth[:, labels]), 0


def leading_bits(values: Array, bits: int = 16) -> Array:
    """Return the leading bits of float32 values as integers in the order of the values.

    Example:
        >>> a, b, c = leading_bits(np.float32([-1.0, 0.25, 0.5]))
        >>> bool(a < b < c)
        True
    """
    single = values.astype(np.float32, copy=False) + np.float32(0)  # −0 and 0 are equal
    if np.isnan(single).any():
        raise InputError("values to rank must not be NaN; some are.")
    pattern = single.view(np.uint32)
    ordered = np.where(pattern >> 31, ~pattern, pattern | np.uint32(1 << 31))
    return (ordered >> np.uint32(32 - bits)).astype(np.int64)


class RankCounts(SparseSums):
    """The number of values of each label by their leading bits, and the sum of their targets.

    Args:
        num_labels: number of labels.

    Example:
        >>> counts = RankCounts(1)
        >>> counts.update(np.float32([[0.9], [0.2]]), np.array([[1], [0]]))
        >>> counts.plan(100).num_ranges(0)
        1
    """

    def __init__(self, num_labels: int) -> None:
        self.num_labels = num_labels
        # At most 64 MB of counts. 16 bits give 128 cells per factor of two.
        self.bits = int(np.clip(22 - np.ceil(np.log2(num_labels)), 9, 16))
        self._cells = 1 << self.bits
        self.cells = np.zeros((num_labels * self._cells, 2))

    def update(self, values: Array, targets: Array) -> None:
        """Add values and targets, each (rows, labels); targets below 0 are unknown."""
        known = targets >= 0
        keys = leading_bits(values, self.bits) + self._cells * np.arange(self.num_labels)
        keys = keys[known]
        size = len(self.cells)
        self.cells[:, 0] += np.bincount(keys, minlength=size)
        self.cells[:, 1] += np.bincount(keys, weights=targets[known], minlength=size)

    def plan(self, limit: int) -> RankPlan:
        """Return ranges of about ``limit`` values each, or more if a single cell has more."""
        counts = self.cells.reshape(self.num_labels, self._cells, 2)
        firsts = [_range_starts(each[:, 0], limit) for each in counts]
        above = []
        for each, starts in zip(counts, firsts, strict=True):
            from_top = np.cumsum(each[::-1], axis=0)[::-1]
            ends = np.r_[starts[1:], self._cells]
            above.append(np.vstack([from_top, np.zeros((1, 2))])[ends])
        return RankPlan(self.bits, firsts, above)

    def influence(self) -> Callable[..., Array]:
        """Return a function from the columns of a ``Summary`` to the influence of each row.

        It is that on mAP@y and AUROC, (rows, 2); values of a cell are ties.
        """
        counts = self.cells.reshape(self.num_labels, self._cells, 2)
        cells = mean_influence([(each[:, 0], each[:, 1]) for each in counts])
        return partial(_counted_influence, self.bits, cells)


def _counted_influence(
    bits: int,
    influence: list[Array],
    probabilities: Array,
    targets: TargetsLike,
    scores: Array | None = None,
    *,
    first_row: int = 0,
) -> Array:
    """Return the influence of rows from that of the cells of their leading bits."""
    cells = leading_bits(probabilities if scores is None else scores, bits)
    return _row_influence(influence, cells.T, to_numpy(targets))


def rank_influence(values: Array, targets: Array) -> Array:
    """Return the first-order influence of each row on mAP@y and on the mean AUROC, (rows, 2)."""
    places, found = [], []
    for value, target in zip(values.T, targets.T, strict=True):
        _, cells = np.unique(value, return_inverse=True)
        known = target >= 0
        count = np.bincount(cells, known).astype(np.float64)
        found.append((count, np.bincount(cells, np.where(known, target, 0))))
        places.append(cells)
    return _row_influence(mean_influence(found), places, targets)


def _row_influence(influence: list[Array], cells: Iterable[Array], targets: Array) -> Array:
    """Return the sum over labels of the influence of each row's entries, (rows, 2)."""
    result = np.zeros((len(targets), 2))
    for each, cell, target in zip(influence, cells, targets.T, strict=True):
        known = np.flatnonzero(target >= 0)
        negative, positive = each[:, cell[known]]
        truth = target[known, None].astype(np.float64)
        result[known] += truth * positive + (1 - truth) * negative
    return result


def mean_influence(labels: Sequence[tuple[Array, Array]]) -> list[Array]:
    """Return ``cell_influence`` of each label, divided by the number of labels with the metric."""
    defined = np.zeros(2)
    for count, target in labels:
        positives = target.sum()
        defined += positives > 0, positives > 0 and count.sum() > positives
    return [cell_influence(*each) / np.maximum(defined, 1) for each in labels]


def tied_average_precision(count: Array, target: Array) -> float:
    """Return the average precision of one label from ascending cells of tied values.

    Args:
        count: known values in each cell.
        target: the sum of their targets.
    """
    above, hits = (np.cumsum(each[::-1])[::-1] for each in (count, target))
    with np.errstate(invalid="ignore"):
        precision = np.divide(hits, above, out=np.zeros_like(hits), where=above > 0)
        return float((target * precision).sum() / hits[0])


def tied_auroc(count: Array, target: Array) -> float:
    """Return the AUROC of one label from ascending cells of tied values."""
    negative = count - target
    below = np.cumsum(negative) - negative / 2
    with np.errstate(invalid="ignore"):
        return float((target * below).sum() / (target.sum() * negative.sum()))


def cell_influence(count: Array, target: Array) -> Array:
    """Return the influence of an entry in a cell of tied values on AP and AUROC, (2, cells, 2).

    These are the derivatives by the weight of a negative and of a positive entry of each cell, in
    ascending order; 0 if the metric is undefined.
    """
    result = np.zeros((2, len(count), 2))
    above, hits = (np.cumsum(each[::-1])[::-1] for each in (count, target))
    positives, negative = target.sum(), count - target
    negatives = negative.sum()
    if positives:
        share = np.divide(1.0, above, out=np.zeros_like(above), where=above > 0)
        precision, average = hits * share, tied_average_precision(count, target)
        result[:, :, 0] = -np.cumsum(target * precision * share) / positives
        gain = precision - average + np.cumsum(target * share)
        result[1, :, 0] += gain / positives
    if positives and negatives:
        area = tied_auroc(count, target)
        below = (np.cumsum(negative) - negative / 2) / negatives
        higher = (hits - target / 2) / positives
        result[0, :, 1] = (higher - area) / negatives
        result[1, :, 1] = (below - area) / positives
    return result


def _range_starts(counts: Array, limit: int) -> Array:
    """Return the first cell of each range, ascending; ranges are filled from the top."""
    starts, held = [], 0.0
    for cell in np.flatnonzero(counts)[::-1]:
        if held and held + counts[cell] > limit:
            starts.append(cell + 1)
            held = 0.0
        held += counts[cell]
    return np.array([0, *sorted(starts)])


@dataclass(frozen=True)
class RankPlan:
    """Ranges of values of each label.

    Attributes:
        bits: leading bits that decide the range of a value.
        starts: for each label, the first cell of each range.
        counts_above: for each label and range, values above it and the sum of their targets.

    Example:
        >>> values, targets = np.float32([[0.3], [0.9], [0.8]]), np.array([[1], [1], [0]])
        >>> total, positives, *_ = RankPlan.whole(1).totals(0, 0, values, targets)[0]
        >>> float(total / positives)
        0.8333333333333333
    """

    bits: int
    starts: list[Array]
    counts_above: list[Array]

    @classmethod
    def whole(cls, num_labels: int) -> RankPlan:
        """Return a plan with one range per label, which contains all of its values."""
        return cls(16, [np.zeros(1, int)] * num_labels, [np.zeros((1, 2))] * num_labels)

    def num_ranges(self, label: int) -> int:
        """Return the number of ranges of a label."""
        return len(self.starts[label])

    @property
    def total_ranges(self) -> int:
        """Return the number of ranges of all labels."""
        return sum(map(len, self.starts))

    def select(self, label: int, part: int, values: Array, targets: Array) -> tuple[Array, Array]:
        """Return the known values of a range and their targets."""
        starts = self.starts[label]
        kept = targets >= 0
        if len(starts) > 1:
            cells = leading_bits(values, self.bits)
            kept &= np.searchsorted(starts, cells, side="right") - 1 == part
        return values[kept], targets[kept]

    def totals(self, label: int, part: int, values: Array, targets: Array) -> Array:
        """Return ``label_totals`` of the selected values of a range, (1, 4).

        Several labels with one range each, from ``label`` on, may be passed together.
        """
        above, hits = self.counts_above[label][part]
        return label_totals(values, targets, float(above), float(hits))
