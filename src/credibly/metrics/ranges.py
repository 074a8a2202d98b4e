"""Exact average precision of labels whose values do not fit into memory, by ranges of values.

One pass counts the values of each label by their leading bits (``RankCounts``). The counts say how
to cut each label into ranges of values that fit (``RankPlan``), and how many values and positives
lie above each range. A range is then ranked on its own. The average precision of a label is the sum
over its ranges divided by its positives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from credibly.checks import InputError
from credibly.metrics.accumulators import Accumulator
from credibly.metrics.ranking import label_totals
from credibly.types import Array


def leading_bits(values: Array, bits: int = 16) -> Array:
    """Return the leading bits of float32 values, as numbers in the order of the values.

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


class RankCounts(Accumulator):
    """How many values of each label begin with which bits, and the sum of their targets.

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
        # At most 64 MB of counts; 16 bits are 128 cells per factor of two.
        self.bits = int(np.clip(22 - np.ceil(np.log2(num_labels)), 9, 16))
        self._cells = 1 << self.bits
        self._counts = np.zeros((num_labels * self._cells, 2))

    def update(self, values: Array, targets: Array) -> None:
        """Add values and targets, each (rows, labels); targets below 0 are unknown."""
        known = targets >= 0
        keys = leading_bits(values, self.bits) + self._cells * np.arange(self.num_labels)
        keys = keys[known]
        size = len(self._counts)
        self._counts[:, 0] += np.bincount(keys, minlength=size)
        self._counts[:, 1] += np.bincount(keys, weights=targets[known], minlength=size)

    def state(self) -> dict[str, Array]:
        """Return the cells that are not empty."""
        keys = np.flatnonzero(self._counts[:, 0])
        return {"keys": keys, "counts": self._counts[keys]}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of other rows."""
        self._counts[state["keys"]] += state["counts"]

    def plan(self, limit: int) -> RankPlan:
        """Return ranges of about ``limit`` values each; more only where a cell holds more."""
        counts = self._counts.reshape(self.num_labels, self._cells, 2)
        firsts = [_range_starts(each[:, 0], limit) for each in counts]
        above = []
        for each, starts in zip(counts, firsts, strict=True):
            from_top = np.cumsum(each[::-1], axis=0)[::-1]
            ends = np.r_[starts[1:], self._cells]
            above.append(np.vstack([from_top, np.zeros((1, 2))])[ends])
        return RankPlan(self.bits, firsts, above)

    def influence(self) -> RankInfluence:
        """Return what a row adds to the mean of average precisions, values of a cell being ties."""
        counts = self._counts.reshape(self.num_labels, self._cells, 2)
        each = np.array([_gains_and_losses(*label.T) for label in counts])
        each /= max(int((counts[..., 1].sum(1) > 0).sum()), 1)
        return RankInfluence(self.bits, each[:, 0], each[:, 1])


@dataclass(frozen=True)
class RankInfluence:
    """What an entry adds to the mean of average precisions, to first order, by its leading bits.

    Attributes:
        bits: number of leading bits.
        gains: (labels, cells), added in proportion to the target.
        losses: (labels, cells), subtracted from every known entry.
    """

    bits: int
    gains: Array
    losses: Array

    def of_rows(self, values: Array, targets: Array) -> Array:
        """Return the influence of each row, (rows,)."""
        cells, labels = leading_bits(values, self.bits), np.arange(values.shape[1])
        known = targets >= 0
        truth = np.where(known, targets, 0)
        each = truth * self.gains[labels, cells] - self.losses[labels, cells]
        return np.where(known, each, 0.0).sum(axis=1)


def precision_influence(values: Array, targets: Array) -> Array:
    """Return what each row adds to the mean of average precisions, to first order, (rows,)."""
    result, labels = np.zeros(len(values)), 0
    for t in range(values.shape[1]):
        rows = np.flatnonzero(targets[:, t] >= 0)
        truth = targets[rows, t].astype(np.float64)
        if truth.any():
            _, cells = np.unique(values[rows, t], return_inverse=True)
            counts = np.bincount(cells).astype(np.float64), np.bincount(cells, truth)
            gains, losses = _gains_and_losses(*counts)
            result[rows] += truth * gains[cells] - losses[cells]
            labels += 1
    return result / max(labels, 1)


def tied_average_precision(count: Array, target: Array) -> float:
    """Return the average precision of one label from rising cells of tied values.

    Args:
        count: known values in each cell.
        target: the sum of their targets.
    """
    above, hits = (np.cumsum(each[::-1])[::-1] for each in (count, target))
    with np.errstate(invalid="ignore"):
        precision = np.divide(hits, above, out=np.zeros_like(hits), where=above > 0)
        return float((target * precision).sum() / hits[0])


def _gains_and_losses(count: Array, target: Array) -> tuple[Array, Array]:
    """Return what an entry of each rising cell of tied values adds to a label's average precision.

    Its derivative by the weight of an entry: ``target × gain − loss``, 0 without a positive.
    """
    above, hits = (np.cumsum(each[::-1])[::-1] for each in (count, target))
    positives = hits[0]
    if positives == 0:
        return np.zeros_like(count), np.zeros_like(count)
    share = np.divide(1.0, above, out=np.zeros_like(above), where=above > 0)
    precision, average = hits * share, tied_average_precision(count, target)
    gain = np.cumsum(target * share)
    loss = np.cumsum(target * precision * share)
    return (precision - average + gain) / positives, loss / positives


def _range_starts(counts: Array, limit: int) -> Array:
    """Return the first cell of each range, rising; ranges are filled from the top."""
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
        >>> ((total, positives),) = RankPlan.whole(1).totals(0, 0, values, targets)
        >>> float(total / positives)
        0.8333333333333333
    """

    bits: int
    starts: list[Array]
    counts_above: list[Array]

    @classmethod
    def whole(cls, num_labels: int) -> RankPlan:
        """Return one range per label: all of its values."""
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
        """Return ``label_totals`` of the selected values of a range, (1, 2).

        Several labels that have one range each, from ``label`` on, may come together.
        """
        above, hits = self.counts_above[label][part]
        return label_totals(values, targets, float(above), float(hits))
