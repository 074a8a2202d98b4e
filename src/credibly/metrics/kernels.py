"""The compiled loops. Every index is checked, so NaN or invalid values cannot corrupt memory."""

from __future__ import annotations

from math import log, nan

import numpy as np

from credibly.compiled import compiled
from credibly.types import Array


@compiled(error_model="numpy")
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
    """Copy known scores of labels first…first+width−1 to rows of ``columns``; also positives apart.

    ``known`` and ``present`` receive their numbers.
    """
    known[:width] = 0
    present[:width] = 0
    rows = scores.shape[0]
    # A tile of rows stays in the first-level cache while all labels are read from it.
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


@compiled(error_model="numpy")
def ranked_totals(
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
def row_average_precision(scores: Array, targets: Array, most: int, out: Array) -> None:
    """Write the average precision of each row to ``out``; NaN for rows without a positive.

    It counts instead of sorting: rows have few positives, and counting uses vector instructions.
    Rows with more than ``most`` positives get -1 and are sorted by the caller.
    """
    num_labels = scores.shape[1]
    present = np.empty(num_labels, np.int64)
    for row in range(scores.shape[0]):
        values, truth = scores[row], targets[row]
        count = 0
        for t in range(num_labels):
            present[count] = t
            count += truth[t] > 0
        if count > most:
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
def mark_top(scores: Array, targets: Array, k: int, chosen: Array) -> None:
    """Set ``chosen`` for each row's ``k`` highest known labels; of tied labels the first wins."""
    best, places = np.empty(k, scores.dtype), np.empty(k, np.int64)
    for row in range(scores.shape[0]):
        values, truth = scores[row], targets[row]
        count = 0
        for t in range(len(values)):
            if truth[t] < 0 or (count == k and not values[t] > best[k - 1]):
                continue
            at = min(count, k - 1)
            while at > 0 and values[t] > best[at - 1]:
                best[at], places[at] = best[at - 1], places[at - 1]
                at -= 1
            best[at], places[at] = values[t], t
            count = min(count + 1, k)
        for place in places[:count]:
            chosen[row, place] = True


@compiled(error_model="numpy")
def ranked_soft_totals(
    scores: Array, weights: Array, above: float, hits_above: float
) -> tuple[float, float]:
    """Return ``ranked_totals`` for positive weights y and negative 1 − y; scores descending."""
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


@compiled(error_model="numpy")
def row_soft_precision(scores: Array, targets: Array, out: Array) -> None:
    """Write the average precision of rows with soft targets; NaN for rows without a positive."""
    for row in range(scores.shape[0]):
        known = targets[row] >= 0
        values, weights = scores[row][known], targets[row][known]
        order = np.argsort(-values)
        total, _ = ranked_soft_totals(values[order], weights[order], 0.0, 0.0)
        out[row] = total / weights.sum()


@compiled(error_model="numpy")
def row_errors(scores: Array, targets: Array, out: Array) -> None:
    """Write ranking loss, one-error and coverage error of each row to three columns of ``out``."""
    for row in range(scores.shape[0]):
        values, truth = scores[row], targets[row]
        highest, top, hits = -np.inf, 0, 0
        positives = negatives = wrong = deepest = 0
        for t in range(len(values)):
            if truth[t] >= 0:
                positives += truth[t] > 0
                negatives += truth[t] == 0
                if values[t] > highest or top == 0:
                    highest, top, hits = values[t], 0, 0
                top += values[t] == highest
                hits += (values[t] == highest) & (truth[t] > 0)
            if truth[t] > 0:
                depth, worse = 0, 0
                for other in range(len(values)):
                    depth += (values[other] >= values[t]) & (truth[other] >= 0)
                    worse += (values[other] >= values[t]) & (truth[other] == 0)
                wrong += worse
                deepest = max(deepest, depth)
        out[row] = nan
        if positives:
            out[row, 1] = 1 - hits / top
            out[row, 2] = deepest
        if positives and negatives:
            out[row, 0] = wrong / (positives * negatives)


@compiled(error_model="numpy")
def add_to_bins(
    probabilities: Array, targets: Array, edges: Array, bins: float, sums: Array
) -> None:
    """Add every known entry to ``sums[label, bin]``: count, probability, target.

    Bins are closed on the left, the last one on both sides. ``bins`` and ``edges`` have the dtype
    of the probabilities. Unsigned offsets into the flat sums avoid numba's test for negative
    indices; this is four times faster than three subscripts.
    """
    one, top, flat = np.uint64(1), np.uint64(len(edges) - 2), sums.reshape(-1)
    for row in range(probabilities.shape[0]):
        for t in range(probabilities.shape[1]):
            p, y = probabilities[row, t], targets[row, t]
            if y >= 0 and p >= 0 and p <= 1:
                k = min(np.uint64(np.int64(p * bins)), top)
                # The product can round across an edge, so compare with the edges.
                if p < edges[k]:
                    k -= one
                elif p >= edges[k + one] and k < top:
                    k += one
                at = (np.uint64(t) * (top + one) + k) * np.uint64(3)
                flat[at] += 1
                flat[at + one] += p
                flat[at + one + one] += y


@compiled(error_model="numpy")
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
