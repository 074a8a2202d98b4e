"""Compiled loops for ``retrieval_map``: every query depth first, or a list of them.

A query's score is the product of its conditions' probabilities in the order of its labels. An
unknown target is a NaN in the tables: it makes the row's product NaN, which is not above any score,
so the row is left out of exactly the queries that name the label.
"""

from __future__ import annotations

import numba
import numpy as np

# Up to this many comparisons, comparing all pairs beats sorting.
_PAIRS = 4096
_BUCKETS = 4096


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _count_at_least(values, bar):
    count = 0
    for i in range(values.size):
        count += values[i] >= bar
    return count


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _precision(values, relevant, first, counts):
    """Average precision of the ``relevant`` scores among ``values``, which hold them too.

    Only values at or above the lowest relevant one are needed. Equal scores enter together.
    """
    num_relevant = relevant.size
    if num_relevant * (values.size + num_relevant) <= 4 * _PAIRS:
        total = 0.0
        for i in range(num_relevant):
            bar = relevant[i]
            total += _count_at_least(relevant, bar) / _count_at_least(values, bar)
        return total / num_relevant
    ordered = np.sort(relevant)
    # Buckets of the float's bit pattern, which rises with the number: finer near 0, as products
    # are. `first[b]` is the place of the first relevant score in bucket b or a later one.
    bits, base = ordered.view(np.int64), ordered[:1].view(np.int64)[0]
    shift = 0
    while ((bits[num_relevant - 1] - base) >> shift) >= _BUCKETS:
        shift += 1
    place = 0
    for bucket in range(_BUCKETS + 1):
        while place < num_relevant and ((bits[place] - base) >> shift) < bucket:
            place += 1
        first[bucket] = place
    counts[: num_relevant + 1] = 0
    value_bits = values.view(np.int64)
    for i in range(values.size):
        bucket = (value_bits[i] - base) >> shift
        if bucket < 0:
            continue
        if bucket >= _BUCKETS:
            counts[num_relevant] += 1
            continue
        low, high = first[bucket], first[bucket + 1]
        while low < high:  # how many relevant scores are at or below this value
            middle = (low + high) // 2
            if ordered[middle] <= values[i]:
                low = middle + 1
            else:
                high = middle
        counts[low] += 1
    total, above, end = 0.0, 0, num_relevant
    while end > 0:
        above += counts[end]
        start = end - 1
        while start > 0 and ordered[start - 1] == ordered[end - 1]:
            start -= 1
            above += counts[start + 1] if start + 1 < end else 0
        total += (end - start) * ((num_relevant - start) / above)
        end = start
    return total / num_relevant


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _query_precision(scores, factors, rows, first, counts, relevant, passing):
    """Average precision when ``scores × factors`` ranks and ``rows`` are the relevant ones."""
    lowest = np.inf
    for i in range(rows.size):
        relevant[i] = scores[rows[i]] * factors[rows[i]]
        lowest = min(lowest, relevant[i])
    filled = 0
    for i in range(scores.size):
        value = scores[i] * factors[i]
        passing[filled] = value
        filled += value >= lowest
    return _precision(passing[:filled], relevant[: rows.size], first, counts)


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _narrow(rows, truth, wanted, out):
    """Rows that also satisfy one more condition; returns how many."""
    filled = 0
    for i in range(rows.size):
        out[filled] = rows[i]
        filled += truth[rows[i]] == wanted
    return filled


@numba.njit(cache=True, error_model="numpy", nogil=True)
def every_query(present, absent, truth, deepest, sums, counts_by_size):
    """Sum of average precisions and number of queries, by number of conditions.

    Labels rise along a query, so each prefix's products and relevant rows are made once for all
    queries that start with it; a prefix without relevant rows ends there.
    """
    num_labels, rows = present.shape
    scores = np.ones((deepest + 1, rows))
    relevant_rows = np.empty((deepest + 1, rows + 1), np.int32)
    num_relevant = np.zeros(deepest + 1, np.int64)
    relevant_rows[0, :rows] = np.arange(rows)
    num_relevant[0] = rows
    label = np.full(deepest + 1, -1)
    sign = np.zeros(deepest + 1, np.int64)
    num_wanted = np.zeros(deepest + 1, np.int64)
    first, counts = np.empty(_BUCKETS + 1, np.int64), np.empty(rows + 1, np.int64)
    relevant, passing = np.empty(rows), np.empty(rows + 1)
    depth = 1
    sign[1] = 1
    while depth > 0:
        sign[depth] = 1 - sign[depth]
        label[depth] += sign[depth] == 0
        if label[depth] >= num_labels:
            depth -= 1
            continue
        at, wanted = label[depth], 1 - sign[depth]
        known = relevant_rows[depth - 1, : num_relevant[depth - 1]]
        found = _narrow(known, truth[at], wanted, relevant_rows[depth])
        if found == 0:
            continue
        num_relevant[depth] = found
        num_wanted[depth] = num_wanted[depth - 1] + wanted
        factors = present[at] if wanted else absent[at]
        if num_wanted[depth] > 0:
            hits = relevant_rows[depth, :found]
            sums[depth] += _query_precision(
                scores[depth - 1], factors, hits, first, counts, relevant, passing
            )
            counts_by_size[depth] += 1
        if depth < deepest and at + 1 < num_labels:
            for i in range(rows):
                scores[depth, i] = scores[depth - 1, i] * factors[i]
            label[depth + 1], sign[depth + 1] = at, 1
            depth += 1


@numba.njit(cache=True, error_model="numpy", nogil=True)
def some_queries(present, absent, truth, labels, wanted, precisions):
    """Average precision of each query (a row of ``labels``, rising); NaN without relevant rows."""
    num_rows = present.shape[1]
    scores = np.empty(num_rows)
    relevant_rows = np.empty((2, num_rows + 1), np.int32)
    first, counts = np.empty(_BUCKETS + 1, np.int64), np.empty(num_rows + 1, np.int64)
    relevant, passing = np.empty(num_rows), np.empty(num_rows + 1)
    last = labels.shape[1] - 1
    for query in range(labels.shape[0]):
        relevant_rows[0, :num_rows] = np.arange(num_rows)
        found = num_rows
        for place in range(last + 1):
            known = relevant_rows[place % 2, :found]
            sign = 1 if wanted[query, place] else 0
            found = _narrow(known, truth[labels[query, place]], sign, relevant_rows[1 - place % 2])
        precisions[query] = np.nan
        if found == 0:
            continue
        scores[:] = 1.0
        for place in range(last):
            at = labels[query, place]
            factors = present[at] if wanted[query, place] else absent[at]
            for i in range(num_rows):
                scores[i] *= factors[i]
        at = labels[query, last]
        factors = present[at] if wanted[query, last] else absent[at]
        hits = relevant_rows[(last + 1) % 2, :found]
        precisions[query] = _query_precision(
            scores, factors, hits, first, counts, relevant, passing
        )
