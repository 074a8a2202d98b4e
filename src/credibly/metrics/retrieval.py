"""How well probabilities rank for queries: average precision by number of conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from credibly import checks
from credibly.metrics.inputs import hard, probability_pair
from credibly.notebook import html_table
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike

# What one query costs, measured on one core: a start, and so much a row. Fixed numbers, so that
# the same seed gives the same queries on every machine.
_SECONDS_A_QUERY, _SECONDS_A_ROW = 2e-6, 2.5e-9
_FEWEST_QUERIES = 200
_TRIED = 1000
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, repr=False)
class RetrievalMap:
    """What ``retrieval_map`` found; every mapping is by number of conditions.

    Attributes:
        by_conditions: mean average precision over the queries that have a relevant row.
        mean: the same over all numbers of conditions, each query counting once.
        counts: queries that were ranked.
        queries: queries that have a relevant row: counted, or estimated where sampled.
        intervals: 95 % confidence interval of ``by_conditions``; of no width where exhaustive.
        sampled: numbers of conditions that were sampled.
        expected, hits: sum of the probabilities, and number of relevant rows, over all queries, by
            (wanted, unwanted); queries without a relevant row count here.
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
        """Expected over real hits of all queries with so many conditions (and wanted ones)."""
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
    *,
    coding: Coding | None = None,
) -> RetrievalMap:
    r"""Mean average precision of queries for wanted and unwanted labels.

    A query wants $|P| \ge 1$ labels and excludes $|N|$ others, $|P| + |N| \le$ ``max_conditions``;
    rows are ranked by $\prod_{P} p \prod_{N} (1 - p)$ in float64 and a row is relevant if its truth
    has all of $P$ and none of $N$. Every query with a relevant row counts, with its exact average
    precision (equal scores as in scikit-learn). Cheng & Vasconcelos (2024), section 5.3.

    A row whose truth is unknown for a label of the query is left out of that query.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: (rows, labels), 1, 0 or −1 (unknown).
        max_conditions: longest query, from 1 up to the number of labels.
        budget_seconds: what every query may cost in all, by a fixed estimate. Numbers of conditions
            that do not fit are sampled with ``seed``; at least 200 queries each.

    Example:
        >>> result = retrieval_map([[0.9, 0.1], [0.6, 0.7], [0.2, 0.8]], [[1, 0], [1, 1], [0, 1]])
        >>> result.by_conditions, result.counts
        ({1: 1.0, 2: 1.0}, {1: 2, 2: 3})
        >>> result.expected[2, 0].__round__(2), result.hits[2, 0]
        (0.67, 1)
    """
    chances, truth = _inputs(probabilities, targets, coding)
    num_labels = chances.shape[1]
    if isinstance(max_conditions, bool) or not 1 <= max_conditions <= 10:
        raise checks.InputError(
            f"`max_conditions` must lie between 1 and 10; got {max_conditions!r}."
        )
    deepest = min(int(max_conditions), num_labels)
    checks.positive("budget_seconds", budget_seconds)
    known = truth >= 0
    present = np.where(known, chances, np.nan).T.copy()
    tables = present, 1.0 - present, truth.T.copy()
    generator = np.random.default_rng(seed)
    plan = _Plan(tables, deepest, budget_seconds, generator)
    sums, counts = np.zeros(deepest + 1), np.zeros(deepest + 1, np.int64)
    if plan.exhaustive:
        from credibly.metrics import retrieval_kernels

        retrieval_kernels.every_query(*tables, plan.exhaustive, sums, counts)
    precisions = {
        size: _sample(tables, size, plan.number(size), generator)
        for size in range(plan.exhaustive + 1, deepest + 1)
    }
    return _result(
        sums,
        counts,
        precisions,
        plan,
        _mass(chances, known, deepest),
        _mass(truth * known, known, deepest),
    )


class _Plan:
    """Which numbers of conditions are exhausted, and how many queries of the others are drawn."""

    def __init__(
        self,
        tables: tuple[Array, Array, Array],
        deepest: int,
        budget: float,
        generator: np.random.Generator,
    ) -> None:
        num_labels, rows = tables[0].shape
        self.deepest = deepest
        self.cost = _SECONDS_A_QUERY + _SECONDS_A_ROW * rows
        self.totals = {k: math.comb(num_labels, k) * (2**k - 1) for k in range(1, deepest + 1)}
        self.exhaustive, spent = 0, 0.0
        for size, total in self.totals.items():
            if total * self.cost > budget:  # too many unless few of them have relevant rows
                total *= _share_with_relevant(tables, size, generator)
            spent += total * self.cost
            if spent > budget:
                break
            self.exhaustive = size
        done = sum(self.totals[size] for size in range(1, self.exhaustive + 1)) * self.cost
        left = max(budget - done, budget / 4) / max(1, deepest - self.exhaustive)
        self.drawn = max(_FEWEST_QUERIES, int(left / self.cost))

    def number(self, size: int) -> int:
        return min(self.drawn, 10 * self.totals[size])


def _inputs(
    probabilities: ArrayLike, targets: TargetsLike, coding: Coding | None
) -> tuple[Array, Array]:
    chances, truth = probability_pair(probabilities, targets, coding)
    if not chances.size:
        raise checks.InputError(f"there must be rows and labels; got shape {chances.shape}.")
    return chances.astype(np.float64), hard(truth, "retrieval_map")


def _draw(num_labels: int, size: int, number: int, generator: np.random.Generator):
    """Queries drawn evenly from all with ``size`` conditions, at least one wanted."""
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


def _sample(
    tables: tuple[Array, Array, Array], size: int, number: int, generator: np.random.Generator
) -> Array:
    """Average precision of drawn queries, NaN for those without a relevant row."""
    from credibly.metrics import retrieval_kernels

    labels, wanted = _draw(tables[0].shape[0], size, number, generator)
    precisions = np.empty(number)
    retrieval_kernels.some_queries(*tables, labels, wanted, precisions)
    return precisions


def _mass(chances: Array, known: Array, deepest: int) -> dict[tuple[int, int], float]:
    r"""Sum over rows and queries of a query's probability, by (wanted, unwanted).

    The coefficients of $\prod_l (1 + p_l s + (1 - p_l) t)$: no query is ever listed.
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


def _result(
    sums: Array,
    counts: Array,
    precisions: dict[int, Array],
    plan: _Plan,
    expected: dict[tuple[int, int], float],
    hits: dict[tuple[int, int], float],
) -> RetrievalMap:
    by_conditions, ranked, queries, intervals = {}, {}, {}, {}
    for size in range(1, plan.deepest + 1):
        if size in precisions:
            found = precisions[size][~np.isnan(precisions[size])]
            ranked[size] = len(found)
            queries[size] = plan.totals[size] * len(found) / len(precisions[size])
            mean = float(found.mean()) if len(found) else math.nan
            spread = float(found.std(ddof=1)) if len(found) > 1 else math.nan
            width = _NORMAL_95 * spread / math.sqrt(max(len(found), 1))
        else:
            ranked[size], queries[size] = int(counts[size]), float(counts[size])
            mean = float(sums[size] / counts[size]) if counts[size] else math.nan
            width = 0.0
        by_conditions[size] = mean
        intervals[size] = (max(0.0, mean - width), min(1.0, mean + width))
    weights = {size: queries[size] for size in queries if queries[size] > 0}
    total = sum(by_conditions[size] * weight for size, weight in weights.items())
    return RetrievalMap(
        by_conditions=by_conditions,
        mean=total / sum(weights.values()) if weights else math.nan,
        counts=ranked,
        queries=queries,
        intervals=intervals,
        sampled=tuple(precisions),
        expected=expected,
        hits={key: round(value) for key, value in hits.items()},
    )
