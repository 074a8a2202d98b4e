"""Retrieval metrics: average precision of queries, by number of conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from credibly import checks
from credibly.compiled import compiled
from credibly.metrics.accumulators import hard, probability_pair
from credibly.notebook import html_table
from credibly.targets import TargetsLike
from credibly.types import Array, ArrayLike

# Up to this many comparisons, comparing all pairs is faster than sorting.
_PAIRS = 4096
_BUCKETS = 4096  # at most
_BLOCK = 64


@compiled(error_model="numpy", nogil=True)
def _count_at_least(values, bar):
    count = 0
    for i in range(values.size):
        count += values[i] >= bar
    return count


@compiled(error_model="numpy", nogil=True)
def _buckets(ordered, first):
    """Return the index where each bucket of ascending scores begins, its lowest bits and shift.

    Buckets are ranges of the float's bit pattern. It increases with the number and is finer near 0,
    as the distribution of products is.
    """
    bits = ordered.view(np.int64)
    base, spread, wanted, shift = bits[0], bits[-1] - bits[0], 64, 0
    while wanted < 2 * ordered.size and wanted < _BUCKETS:
        wanted *= 2
    while (spread >> shift) >= wanted:
        shift += 1
    first[: (spread >> shift) + 2] = 0
    for i in range(ordered.size):
        first[((bits[i] - base) >> shift) + 1] = i + 1
    for bucket in range(1, (spread >> shift) + 1):
        first[bucket] = max(first[bucket], first[bucket - 1])
    return base, shift


@compiled(error_model="numpy", nogil=True)
def _precision(values, relevant, first, counts):
    """Return the average precision of ``relevant`` scores among ``values``, which include them.

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
    base, shift = _buckets(ordered, first)
    last = (ordered.view(np.int64)[num_relevant - 1] - base) >> shift
    counts[: num_relevant + 1] = 0
    value_bits = values.view(np.int64)
    for i in range(values.size):
        bucket = (value_bits[i] - base) >> shift
        if bucket > last:
            counts[num_relevant] += 1
        elif bucket >= 0:
            low, high = first[bucket], first[bucket + 1]
            while low < high:  # the number of relevant scores at or below this value
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
def _query_precision(scores, factors, rows, work):
    """Return the average precision of ``scores × factors``; ``rows`` are the relevant rows."""
    first, counts, relevant, passing = work
    lowest = np.inf
    for i in range(rows.size):
        relevant[i] = scores[rows[i]] * factors[rows[i]]
        lowest = min(lowest, relevant[i])
    filled = _passing(scores, factors, lowest, passing)
    return _precision(passing[:filled], relevant[: rows.size], first, counts)


@compiled(error_model="numpy", nogil=True)
def _passing(scores, factors, lowest, passing):
    """Collect the products at or above ``lowest``; most blocks have none and are skipped fast."""
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
    """Write the rows that also satisfy one more condition to ``out``; return their number."""
    filled = 0
    for i in range(rows.size):
        out[filled] = rows[i]
        filled += truth[rows[i]] == wanted
    return filled


@compiled(error_model="numpy", nogil=True)
def every_query(present, absent, truth, deepest, sums, counts_by_size):
    """Add average precisions and numbers of queries, by number of conditions.

    Labels ascend along a query, so the products and relevant rows of a prefix are computed once
    for all queries that start with it. A prefix without relevant rows is not extended.
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
    work = first, counts, np.empty(rows), np.empty(rows + 1)
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
            sums[depth] += _query_precision(scores[depth - 1], factors, hits, work)
            counts_by_size[depth] += 1
        if depth < deepest and at + 1 < num_labels:
            for i in range(rows):
                scores[depth, i] = scores[depth - 1, i] * factors[i]
            label[depth + 1], sign[depth + 1] = at, 1
            depth += 1


@compiled(error_model="numpy", nogil=True)
def some_queries(present, absent, truth, labels, wanted, precisions):
    """Write the average precision of each query (ascending labels); NaN without relevant rows."""
    num_rows = present.shape[1]
    scores = np.empty(num_rows)
    relevant_rows = np.empty((2, num_rows + 1), np.int32)
    first, counts = np.empty(_BUCKETS + 2, np.int64), np.empty(num_rows + 1, np.int64)
    work = first, counts, np.empty(num_rows), np.empty(num_rows + 1)
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
        precisions[query] = _query_precision(scores, factors, hits, work)


# The cost of a query, measured on one core: a constant and a cost per row. They are fixed, so the
# same seed gives the same queries on every machine.
_SECONDS_A_QUERY, _SECONDS_A_ROW = 2e-6, 2.5e-9
_FEWEST_QUERIES = 200
_TRIED = 1000
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, repr=False)
class RetrievalMap:
    """The result of ``retrieval_map``; the keys of all dicts are numbers of conditions.

    Attributes:
        by_conditions: mean average precision over the queries with a relevant row.
        mean: mean average precision over all queries of all numbers of conditions.
        counts: number of ranked queries.
        queries: number of queries with a relevant row: counted, or estimated if sampled.
        intervals: 95 % confidence interval of ``by_conditions``; its width is 0 if not sampled.
        sampled: numbers of conditions whose queries were sampled.
        expected, hits: sum of the probabilities, and number of relevant rows, over all queries, by
            (wanted, unwanted). Queries without a relevant row count here too.
    """

    by_conditions: Mapping[int, float]
    mean: float
    counts: Mapping[int, int]
    queries: Mapping[int, float]
    intervals: Mapping[int, tuple[float, float]]
    sampled: tuple[int, ...]
    expected: Mapping[tuple[int, int], float]
    hits: Mapping[tuple[int, int], int]

    def __repr__(self) -> str:
        each = ", ".join(f"{size}: {value:.4f}" for size, value in self.by_conditions.items())
        return f"RetrievalMap(mean {self.mean:.4f}; by conditions {each})"

    def _repr_html_(self) -> str:
        """Return one row per number of conditions, for notebooks."""
        rows = [
            [size, value, self.counts[size], *self.intervals[size]]
            for size, value in self.by_conditions.items()
        ]
        heads = ["conditions", "mAP", "queries", "from", "to (95 %)"]
        return html_table(f"retrieval, mean {self.mean:.4f}", heads, rows)

    def mass_ratio(self, conditions: int, wanted: int | None = None) -> float:
        """Return expected / real hits of all queries with so many conditions (and wanted ones)."""
        chosen = [
            key
            for key in self.expected
            if sum(key) == conditions and (key[0] == wanted if wanted is not None else key[0] > 0)
        ]
        real = sum(self.hits[key] for key in chosen)
        return sum(self.expected[key] for key in chosen) / real if real else math.nan


def retrieval_map(
    probabilities: ArrayLike,
    targets: TargetsLike,
    max_conditions: int = 5,
    budget_seconds: float = 60.0,
    seed: int = 0,
) -> RetrievalMap:
    r"""Return the mean average precision of queries for wanted and unwanted labels.

    A query wants $|P| \ge 1$ labels and excludes $|N|$ others, $|P| + |N| \le$ ``max_conditions``.
    Rows are ranked by $\prod_{P} p \prod_{N} (1 - p)$ in float64. A row is relevant if its truth
    has all of $P$ and none of $N$. Every query with a relevant row counts, with its exact average
    precision (equal scores as in scikit-learn). Cheng & Vasconcelos (2024), section 5.3.

    A row whose truth is unknown for a label of the query is left out of that query.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: (rows, labels), 1, 0 or −1 (unknown).
        max_conditions: the length of the longest query, from 1 to the number of labels.
        budget_seconds: limit on the total time, by a fixed estimate. If all queries with a number
            of conditions take too long, at least 200 of them are sampled with ``seed``.

    Example:
        >>> result = retrieval_map([[0.9, 0.1], [0.6, 0.7], [0.2, 0.8]], [[1, 0], [1, 1], [0, 1]])
        >>> result.by_conditions, result.counts
        ({1: 1.0, 2: 1.0}, {1: 2, 2: 3})
        >>> result.expected[2, 0].__round__(2), result.hits[2, 0]
        (0.67, 1)
    """
    values, truth = probability_pair(probabilities, targets)
    hard(truth, "retrieval_map")
    if not values.size:
        raise checks.InputError(f"there must be rows and labels; got shape {values.shape}.")
    if isinstance(max_conditions, bool) or not 1 <= max_conditions <= 10:
        raise checks.InputError(
            f"`max_conditions` must lie between 1 and 10; got {max_conditions!r}."
        )
    limit = min(int(max_conditions), values.shape[1])
    checks.positive("budget_seconds", budget_seconds)
    chances, known = values.astype(np.float64), truth >= 0
    present = np.where(known, chances, np.nan).T.copy()
    tables = present, 1.0 - present, truth.astype(np.int8).T.copy()
    generator = np.random.default_rng(seed)
    plan = _QueryPlan(tables, limit, budget_seconds, generator)
    sums, counts = np.zeros(limit + 1), np.zeros(limit + 1, np.int64)
    if plan.exhaustive:
        every_query(*tables, plan.exhaustive, sums, counts)
    means, ranked, queries, intervals = {}, {}, {}, {}
    sizes = range(1, limit + 1)
    for size in sizes:
        total, number, width = sums[size], int(counts[size]), 0.0
        queries[size] = float(number)
        if size > plan.exhaustive:
            drawn = min(plan.drawn, 10 * plan.totals[size])
            labels, wanted = _draw(len(present), size, drawn, generator)
            each = np.empty(len(labels))
            some_queries(*tables, labels, wanted, each)
            found = each[~np.isnan(each)]
            total, number = found.sum(), len(found)
            queries[size] = plan.totals[size] * number / len(each)
            spread = float(found.std(ddof=1)) if number > 1 else math.nan
            width = _NORMAL_95 * spread / math.sqrt(max(number, 1))
        mean = float(total / number) if number else math.nan
        means[size], ranked[size] = mean, number
        intervals[size] = (max(0.0, mean - width), min(1.0, mean + width))
    weighed = [means[size] * queries[size] for size in sizes if queries[size]]
    hits = _mass(truth * known, known, limit)
    return RetrievalMap(
        by_conditions=means,
        mean=sum(weighed) / sum(queries.values()) if weighed else math.nan,
        counts=ranked,
        queries=queries,
        intervals=intervals,
        sampled=tuple(sizes[plan.exhaustive :]),
        expected=_mass(chances, known, limit),
        hits={key: round(value) for key, value in hits.items()},
    )


class _QueryPlan:
    """The numbers of conditions whose queries all run, and the sample size of the others."""

    def __init__(
        self,
        tables: tuple[Array, Array, Array],
        deepest: int,
        budget: float,
        generator: np.random.Generator,
    ) -> None:
        num_labels, rows = tables[0].shape
        self.cost = _SECONDS_A_QUERY + _SECONDS_A_ROW * rows
        self.totals = {k: math.comb(num_labels, k) * (2**k - 1) for k in range(1, deepest + 1)}
        self.exhaustive, spent = 0, 0.0
        for size, total in self.totals.items():
            if total * self.cost > budget:  # it may still fit if few queries have relevant rows
                total *= _share_with_relevant(tables, size, generator)
            spent += total * self.cost
            if spent > budget:
                break
            self.exhaustive = size
        done = sum(self.totals[size] for size in range(1, self.exhaustive + 1)) * self.cost
        left = max(budget - done, budget / 4) / max(1, deepest - self.exhaustive)
        self.drawn = max(_FEWEST_QUERIES, int(left / self.cost))


def _draw(num_labels: int, size: int, number: int, generator: np.random.Generator):
    """Draw uniformly from all queries with ``size`` conditions, at least one of them wanted."""
    labels = np.empty((number, size), np.int64)
    for query in range(number):
        labels[query] = np.sort(generator.choice(num_labels, size, replace=False))
    pattern = generator.integers(1, 2**size, number)
    return labels, (pattern[:, None] >> np.arange(size)) & 1 == 1


def _share_with_relevant(
    tables: tuple[Array, Array, Array], size: int, generator: np.random.Generator
) -> float:
    truth = tables[2]
    labels, wanted = _draw(len(truth), size, _TRIED, generator)
    found = 0
    for chosen, signs in zip(labels, wanted, strict=True):
        found += (truth[chosen] == signs[:, None]).all(axis=0).any()
    return max(found, 1) / _TRIED


def _mass(chances: Array, known: Array, deepest: int) -> dict[tuple[int, int], float]:
    r"""Return the sum of probabilities over rows and queries, by (wanted, unwanted).

    These are the coefficients of $\prod_l (1 + p_l s + (1 - p_l) t)$, so no query is listed.
    """
    totals: dict[tuple[int, int], float] = {}
    coefficients = np.zeros((deepest + 1, deepest + 1, len(chances)))
    coefficients[0, 0] = 1.0
    for label in range(chances.shape[1]):
        one = np.where(known[:, label], chances[:, label], 0.0)
        other = np.where(known[:, label], 1.0 - chances[:, label], 0.0)
        before = coefficients.copy()
        coefficients[1:] += one * before[:-1]
        coefficients[:, 1:] += other * before[:, :-1]
    for wanted in range(1, deepest + 1):
        for unwanted in range(deepest + 1 - wanted):
            totals[wanted, unwanted] = float(coefficients[wanted, unwanted].sum())
    return totals
