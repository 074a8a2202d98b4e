"""Average precision of more values than memory should hold, by ranges of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from credibly.metrics.rank_plan import leading_bits
from credibly.types import Array

_BLOCK = 1 << 16
"""Positives whose ranks are in memory at once."""

Batches = Callable[[], Iterable[tuple[Array, Array]]]


def ranged_average_precision(batches: Batches, *, most: int = 2**22) -> float:
    """Return the average precision of one label whose values come in batches, exactly.

    The values are gone through once to count them by their leading bits, then once for each range
    of values that holds about ``most`` of them. Equal values count as one rank, as in
    ``average_precision``.

    Args:
        batches: called for each pass; returns (values, targets) of some rows at a time, the targets
            0, 1 or −1 for unknown.
        most: how many values to hold at once; more only where more begin with the same 16 bits.

    Returns:
        NaN where no row has the label.

    Example:
        >>> values, targets = np.float32([0.9, 0.8, 0.3]), np.array([1, 0, 1])
        >>> float(ranged_average_precision(lambda: [(values, targets)]))
        0.8333333333333333
    """
    counts = np.zeros(2**16, dtype=np.int64)
    for values, targets in batches():
        counts += np.bincount(leading_bits(values[targets >= 0]), minlength=2**16)
    total, all_above, hits_above = 0.0, 0, 0
    for low, high in _ranges(counts, most):
        ranked, positives = _gather(batches, low, high)
        for start in range(0, len(positives), _BLOCK):
            block = positives[start : start + _BLOCK]
            above = all_above + len(ranked) - np.searchsorted(ranked, block, side="left")
            hits = hits_above + len(positives) - np.searchsorted(positives, block, side="left")
            total += float((hits / above).sum())
        all_above += len(ranked)
        hits_above += len(positives)
    return total / hits_above if hits_above else float("nan")


def _ranges(counts: Array, most: int) -> list[tuple[int, int]]:
    """Return ranges [low, high) of leading bits, the highest first, of about ``most`` values."""
    ranges, high, held = [], len(counts), 0
    for low in range(len(counts) - 1, -1, -1):
        if held and held + counts[low] > most:
            ranges.append((low + 1, high))
            high, held = low + 1, 0
        held += counts[low]
    return [*ranges, (0, high)]


def _gather(batches: Batches, low: int, high: int) -> tuple[Array, Array]:
    """Return all known values of a range in rising order, and those of positives."""
    ranked: list[Array] = []
    positives: list[Array] = []
    for values, targets in batches():
        bits = np.where(targets >= 0, leading_bits(values), -1)
        inside = (bits >= low) & (bits < high)
        ranked.append(values[inside])
        positives.append(values[inside & (targets > 0)])
    return np.sort(np.concatenate(ranked)), np.sort(np.concatenate(positives))
