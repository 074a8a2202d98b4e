"""Exact average precision of labels whose values are spread over many workers.

One pass counts the values of each label by their leading bits (``RankCounts``). The counts say how
to cut each label into ranges of values that fit a worker (``RankPlan``), and how many values and
positives lie above each range. A range is then ranked on its own (``ranked_total``). The average
precision of a label is the sum over its ranges divided by its positives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from credibly.checks import InputError
from credibly.types import Array

MOST = 2**22
"""Values of one range, about."""


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


class RankCounts:
    """How many values of each label begin with which bits, and the sum of their targets.

    Args:
        num_labels: number of labels.

    Example:
        >>> counts = RankCounts(1)
        >>> counts.update(np.float32([[0.9], [0.2]]), np.array([[1], [0]]))
        >>> counts.plan().num_ranges(0)
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

    def add(self, state: Mapping[str, Array]) -> None:
        """Add the counts of other rows."""
        self._counts[state["keys"]] += state["counts"]

    def plan(self, most: int = MOST) -> RankPlan:
        """Return ranges of about ``most`` values each; more only where a cell holds more."""
        counts = self._counts.reshape(self.num_labels, self._cells, 2)
        firsts = [_range_starts(each[:, 0], most) for each in counts]
        above = []
        for each, starts in zip(counts, firsts, strict=True):
            from_top = np.cumsum(each[::-1], axis=0)[::-1]
            ends = np.r_[starts[1:], self._cells]
            above.append(np.vstack([from_top, np.zeros((1, 2))])[ends])
        return RankPlan(self.bits, firsts, above, counts[:, :, 1].sum(axis=1))

    def influence(self) -> RankInfluence:
        """Return what a row adds to the mean of average precisions, values of a cell being ties."""
        counts = self._counts.reshape(self.num_labels, self._cells, 2)
        from_top = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
        count, hits = from_top[..., 0], from_top[..., 1]
        targets, positives = counts[..., 1], counts[..., 1].sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            precision = np.where(count > 0, hits / count, 0.0)
            average = (targets * precision).sum(axis=1, keepdims=True) / positives
            gain = np.cumsum(np.where(count > 0, targets / count, 0.0), axis=1)
            loss = np.cumsum(np.where(count > 0, targets * precision / count, 0.0), axis=1)
            labels = max(int((positives > 0).sum()), 1)
            each = [np.where(positives > 0, part / positives / labels, 0.0) for part in (
                precision - average + gain, loss
            )]  # fmt: skip
        return RankInfluence(self.bits, *each)


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


def _range_starts(counts: Array, most: int) -> Array:
    """Return the first cell of each range, rising; ranges are filled from the top."""
    starts, held = [], 0.0
    for cell in np.flatnonzero(counts)[::-1]:
        if held and held + counts[cell] > most:
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
        positives: sum of the targets of each label.
    """

    bits: int
    starts: list[Array]
    counts_above: list[Array]
    positives: Array

    def num_ranges(self, label: int) -> int:
        """Return the number of ranges of a label."""
        return len(self.starts[label])

    @property
    def total_ranges(self) -> int:
        """Return the number of ranges of all labels."""
        return sum(map(len, self.starts))

    def above(self, label: int, part: int) -> tuple[float, float]:
        """Return how many values lie above a range, and the sum of their targets."""
        count, hits = self.counts_above[label][part]
        return float(count), float(hits)

    def select(self, label: int, part: int, values: Array, targets: Array) -> tuple[Array, Array]:
        """Return the known values of a range and their targets."""
        starts = self.starts[label]
        kept = targets >= 0
        if len(starts) > 1:
            cells = leading_bits(values, self.bits)
            kept &= np.searchsorted(starts, cells, side="right") - 1 == part
        return values[kept], targets[kept]

    def average_precisions(self, totals: Array) -> Array:
        """Return the average precision of each label from the sums of its ranges."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.positives > 0, totals / self.positives, np.nan)


def ranked_total(
    values: Array, targets: Array, all_above: float = 0.0, hits_above: float = 0.0
) -> float:
    """Return Σ target × precision over the values of one range.

    Args:
        values: known values, in any order.
        targets: of the same entries, 1, 0 or soft.
        all_above: how many values of the label lie above the range.
        hits_above: the sum of their targets.

    Example:
        >>> ranked_total(np.float32([0.3, 0.9, 0.8]), np.array([1, 1, 0])) / 2
        0.8333333333333333
    """
    if not len(values):
        return 0.0
    order = np.argsort(-values, kind="stable")
    ranked, truth = values[order], targets[order].astype(np.float64)
    ends = np.r_[np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1]  # of ties
    hits = np.cumsum(truth)[ends]
    gained = np.diff(hits, prepend=0.0)
    return float((gained * (hits_above + hits) / (all_above + ends + 1)).sum())
