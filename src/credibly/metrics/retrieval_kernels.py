"""Compiled loops for ``retrieval_map``: every query depth first, or a list of them.

A query's score is the product of its conditions' probabilities in the order of its labels. An
unknown target is a NaN in the tables: it makes the row's product NaN, which is not above any score,
so the row is left out of exactly the queries that name the label.
"""

from __future__ import annotations

import numpy as np

from credibly.compiled import compiled

# Up to this many comparisons, comparing all pairs beats sorting.
_PAIRS = 4096
_BUCKETS = 4096  # at most
_CROWDED = 16  # relevant scores in one bucket that sorting should not leave to insertion
_BLOCK = 64


@compiled(error_model="numpy", nogil=True)
def _count_at_least(values, bar):
    count = 0
    for i in range(values.size):
        count += values[i] >= bar
    return count


@compiled(error_model="numpy", nogil=True)
def _sorted(relevant, first, scratch):
    """The scores in rising order, and where each bucket of them begins (``first``).

    Buckets go by the float's bit pattern, which rises with the number and is finer near 0, as
    products are.
    """
    lowest, highest = relevant[0], relevant[0]
    for i in range(relevant.size):
        lowest, highest = min(lowest, relevant[i]), max(highest, relevant[i])
    ends = np.array([lowest, highest]).view(np.int64)
    wanted, shift = 64, 0
    while wanted < 2 * relevant.size and wanted < _BUCKETS:
        wanted *= 2
    while ((ends[1] - ends[0]) >> shift) >= wanted:
        shift += 1
    used = ((ends[1] - ends[0]) >> shift) + 1
    first[: used + 1] = 0
    bits = relevant.view(np.int64)
    for i in range(relevant.size):
        first[((bits[i] - ends[0]) >> shift) + 1] += 1
    crowd = 0
    for bucket in range(used):
        crowd = max(crowd, first[bucket + 1])
        first[bucket + 1] += first[bucket]
    if crowd > _CROWDED:
        return np.sort(relevant), ends[0], shift
    ordered = scratch[: relevant.size]
    for i in range(relevant.size):
        bucket = (bits[i] - ends[0]) >> shift
        ordered[first[bucket]] = relevant[i]
        first[bucket] += 1
    for i in range(1, relevant.size):  # only within buckets is anything out of order
        value, place = ordered[i], i
        while place > 0 and ordered[place - 1] > value:
            ordered[place] = ordered[place - 1]
            place -= 1
        ordered[place] = value
    for bucket in range(used, 0, -1):
        first[bucket] = first[bucket - 1]
    first[0] = 0
    return ordered, ends[0], shift


@compiled(error_model="numpy", nogil=True)
def _precision(values, relevant, first, counts, scratch):
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
    ordered, base, shift = _sorted(relevant, first, scratch)
    last = (ordered.view(np.int64)[num_relevant - 1] - base) >> shift
    counts[: num_relevant + 1] = 0
    value_bits = values.view(np.int64)
    for i in range(values.size):
        bucket = (value_bits[i] - base) >> shift
        if bucket > last:
            counts[num_relevant] += 1
        elif bucket >= 0:
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
        total += (end - start) * ((num_relevant - start) / above)
        end = start
    return total / num_relevant


@compiled(error_model="numpy", nogil=True)
def _query_precision(scores, factors, rows, first, counts, relevant, passing, scratch):
    """Average precision when ``scores × factors`` ranks and ``rows`` are the relevant ones."""
    lowest = np.inf
    for i in range(rows.size):
        relevant[i] = scores[rows[i]] * factors[rows[i]]
        lowest = min(lowest, relevant[i])
    filled = _passing(scores, factors, lowest, passing)
    return _precision(passing[:filled], relevant[: rows.size], first, counts, scratch)


@compiled(error_model="numpy", nogil=True)
def _passing(scores, factors, lowest, passing):
    """Collect the products at or above ``lowest``; most blocks hold none and cost one look."""
    filled, whole = 0, scores.size - scores.size % _BLOCK
    for start in range(0, whole, _BLOCK):
        some, by = scores[start : start + _BLOCK], factors[start : start + _BLOCK]
        found = 0
        for i in range(_BLOCK):
            found += some[i] * by[i] >= lowest
        if found > 0:
            for i in range(_BLOCK):
                value = some[i] * by[i]
                passing[filled] = value
                filled += value >= lowest
    for i in range(whole, scores.size):
        value = scores[i] * factors[i]
        passing[filled] = value
        filled += value >= lowest
    return filled


@compiled(error_model="numpy", nogil=True)
def _narrow(rows, truth, wanted, out):
    """Rows that also satisfy one more condition; returns how many."""
    filled = 0
    for i in range(rows.size):
        out[filled] = rows[i]
        filled += truth[rows[i]] == wanted
    return filled


@compiled(error_model="numpy", nogil=True)
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
    first, counts = np.empty(_BUCKETS + 2, np.int64), np.empty(rows + 1, np.int64)
    relevant, passing, scratch = np.empty(rows), np.empty(rows + 1), np.empty(rows)
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
                scores[depth - 1], factors, hits, first, counts, relevant, passing, scratch
            )
            counts_by_size[depth] += 1
        if depth < deepest and at + 1 < num_labels:
            for i in range(rows):
                scores[depth, i] = scores[depth - 1, i] * factors[i]
            label[depth + 1], sign[depth + 1] = at, 1
            depth += 1


@compiled(error_model="numpy", nogil=True)
def some_queries(present, absent, truth, labels, wanted, precisions):
    """Average precision of each query (a row of ``labels``, rising); NaN without relevant rows."""
    num_rows = present.shape[1]
    scores = np.empty(num_rows)
    relevant_rows = np.empty((2, num_rows + 1), np.int32)
    first, counts = np.empty(_BUCKETS + 2, np.int64), np.empty(num_rows + 1, np.int64)
    relevant, passing = np.empty(num_rows), np.empty(num_rows + 1)
    scratch = np.empty(num_rows)
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
            scores, factors, hits, first, counts, relevant, passing, scratch
        )
