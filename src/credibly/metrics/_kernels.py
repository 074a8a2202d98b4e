"""The hot loops. Every index is guarded: NaN or a value out of range can spoil no memory."""

from __future__ import annotations

from math import log, nan

import numpy as np
from numba import njit

from credibly.types import Array


@njit(cache=True, error_model="numpy")
def gather_columns(
    scores: Array,
    targets: Array,
    first: int,
    width: int,
    columns: Array,
    positives: Array,
    known: Array,
    present: Array,
) -> None:
    """Known scores of labels first…first+width−1 into rows of ``columns``, positives apart.

    ``known`` and ``present`` receive how many there are of each.
    """
    known[:width] = 0
    present[:width] = 0
    rows = scores.shape[0]
    # Tiles of rows stay in the first cache while each of the labels passes over them.
    for begin in range(0, rows, 256):
        for t in range(width):
            i, j, column, hits = known[t], present[t], columns[t], positives[t]
            for row in range(begin, min(begin + 256, rows)):
                score, target = scores[row, first + t], targets[row, first + t]
                if target >= 0:
                    column[i] = score
                    i += 1
                    if target > 0:
                        hits[j] = score
                        j += 1
            known[t], present[t] = i, j


@njit(cache=True, error_model="numpy")
def sorted_average_precision(ranked: Array, positives: Array) -> float:
    """Mean over positives of (positives ≥ s) / (all ≥ s); both arrays ascending."""
    total, n, count = 0.0, len(ranked), len(positives)
    if count == 0:
        return nan
    at, first = 0, 0
    for i in range(count):
        if i == 0 or positives[i] != positives[first]:
            first = i
            at = _first_not_below(ranked, positives[i], at)
        total += (count - first) / (n - at)
    return total / count


@njit(cache=True, error_model="numpy", inline="always")
def _first_not_below(ranked: Array, value: float, low: int) -> int:
    """Position of the first entry ≥ ``value`` at or after ``low``: gallop, then bisect."""
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
    # A positive is always among the ranked; the guard keeps a broken pair from dividing by 0.
    return min(low, len(ranked) - 1)


@njit(cache=True, error_model="numpy")
def row_average_precision(scores: Array, targets: Array, out: Array) -> None:
    """Average precision of each row; NaN for rows without a positive."""
    num_labels = scores.shape[1]
    present = np.empty(num_labels, np.int64)
    for row in range(scores.shape[0]):
        values, truth = scores[row], targets[row]
        count = 0
        for t in range(num_labels):
            present[count] = t
            count += truth[t] > 0
        if count == 0:
            out[row] = nan
        elif count <= 32:
            out[row] = _counted_precision(values, truth, present[:count])
        else:
            known = truth >= 0
            out[row] = sorted_average_precision(np.sort(values[known]), np.sort(values[truth > 0]))


@njit(cache=True, error_model="numpy")
def _counted_precision(values: Array, truth: Array, present: Array) -> float:
    total: float = 0.0
    for a in present:
        above = 0
        for t in range(len(values)):
            above += int((values[t] >= values[a]) & (truth[t] >= 0))
        hits = 0
        for b in present:
            hits += int(values[b] >= values[a])
        total += hits / above
    return total / len(present)


@njit(cache=True, error_model="numpy")
def row_errors(scores: Array, targets: Array, out: Array) -> None:
    """Ranking loss, one-error and coverage error of each row, in three columns of ``out``."""
    for row in range(scores.shape[0]):
        values, truth = scores[row], targets[row]
        lowest, highest = np.inf, -np.inf
        positives = negatives = 0
        for t in range(len(values)):
            if truth[t] >= 0:
                highest = max(highest, values[t])
                if truth[t] > 0:
                    positives += 1
                    lowest = min(lowest, values[t])
                else:
                    negatives += 1
        out[row] = nan
        if positives == 0:
            continue
        depth = top = hits = 0
        for t in range(len(values)):
            if truth[t] >= 0:
                depth += values[t] >= lowest
                top += values[t] == highest
                hits += (values[t] == highest) & (truth[t] > 0)
        out[row, 1] = 1 - hits / top
        out[row, 2] = depth
        if negatives:
            out[row, 0] = _wrong_pairs(values, truth) / (positives * negatives)


@njit(cache=True, error_model="numpy")
def _wrong_pairs(values: Array, truth: Array) -> float:
    """Pairs of an absent and a present label where the absent one scores as high or higher."""
    absent, present = np.sort(values[truth == 0]), np.sort(values[truth > 0])
    wrong, below = 0, 0
    for value in absent:
        while below < len(present) and present[below] <= value:
            below += 1
        wrong += below
    return float(wrong)


@njit(cache=True, error_model="numpy")
def add_to_bins(
    probabilities: Array, targets: Array, edges: Array, bins: float, sums: Array
) -> None:
    """Add every known entry to ``sums[label, bin]``: count, probability, target.

    Bins are closed on the left, the last one on both sides. ``bins`` and ``edges`` come in the
    precision of the probabilities. Unsigned offsets into the flat sums spare numba's test for
    negative indices, four times faster than three subscripts.
    """
    one, top, flat = np.uint64(1), np.uint64(len(edges) - 2), sums.reshape(-1)
    for row in range(probabilities.shape[0]):
        for t in range(probabilities.shape[1]):
            p, y = probabilities[row, t], targets[row, t]
            if y >= 0 and p >= 0 and p <= 1:
                k = min(np.uint64(np.int64(p * bins)), top)
                # The product can round across an edge; the edges decide.
                if p < edges[k]:
                    k -= one
                elif p >= edges[k + one] and k < top:
                    k += one
                at = (np.uint64(t) * (top + one) + k) * np.uint64(3)
                flat[at] += 1
                flat[at + one] += p
                flat[at + one + one] += y


@njit(cache=True, error_model="numpy")
def add_proper_scores(probabilities: Array, targets: Array, floor: float, sums: Array) -> None:
    """Add every known entry to ``sums[label]``: count, log loss, squared error."""
    for row in range(probabilities.shape[0]):
        for t in range(probabilities.shape[1]):
            p, y = float(probabilities[row, t]), float(targets[row, t])
            if y < 0:
                continue
            value = 0.0
            if y > 0:
                value -= y * log(max(p, floor))
            if y < 1:
                value -= (1 - y) * log(max(1 - p, floor))
            sums[t, 0] += 1
            sums[t, 1] += value
            sums[t, 2] += (p - y) ** 2
