"""Rules with a guarantee equal a search over all thresholds, on rounded probabilities with ties."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from credibly import decide

LEVELS = ("0.5", "0.6", "0.75", "0.8", "0.9")
SEEDS = range(6)


def draw(seed, rows, labels=4, digits=1):
    """Probabilities of one or two digits, and targets with unknown entries."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-0.5, 1.5, (rows, labels))
    truth = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(np.int8)
    truth[rng.random(truth.shape) < 0.05] = -1
    return np.round(1 / (1 + np.exp(-odds)), digits), truth


def rows_allow(guarantee, missed, alpha):
    """Whether the shares missed, as exact fractions, keep the promise."""
    if guarantee is None:
        return sum(missed) <= alpha * len(missed)
    return sum(missed) + 1 <= alpha * (len(missed) + 1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("guarantee", [None, "expected"])
def test_recall_takes_the_highest_threshold_that_keeps_its_promise(level, guarantee):
    alpha = 1 - Fraction(level)
    for seed in SEEDS:
        # Rows of one or two labels: shares missed add up to whole numbers, and equalities occur.
        p, y = draw(seed, 39 + 20 * (seed % 2))
        kept = (y == 1).any(axis=1)
        present = (y == 1)[kept]
        best = None
        for threshold in np.unique(p[kept][present]):
            held = (present & (p[kept] >= threshold)).sum(axis=1)
            missed = [
                1 - Fraction(int(a), int(b)) for a, b in zip(held, present.sum(axis=1), strict=True)
            ]
            if rows_allow(guarantee, missed, alpha):
                best = threshold
        assert best is not None
        found = decide.Recall(float(level), guarantee).fit(p, y)
        np.testing.assert_array_equal(found.predict(p), p >= best)


@pytest.mark.parametrize("guarantee", [None, "expected"])
@pytest.mark.parametrize(("level", "rows"), [("0.9", 19), ("0.9", 30), ("0.8", 14), ("0.7", 9)])
def test_recall_uses_up_what_it_may_miss_exactly(level, rows, guarantee):
    """One label per row: after k rows are missed, k of the rows are what may be missed."""
    p = (1 + np.arange(rows))[:, None] / 100
    y = np.ones((rows, 1), np.int8)
    alpha = 1 - Fraction(level)
    allowed = alpha * rows if guarantee is None else alpha * (rows + 1) - 1
    found = decide.Recall(float(level), guarantee).fit(p, y)
    assert int((~found.predict(p)).sum()) == math.floor(allowed)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("guarantee", [None, "expected", ("probability", 0.2)], ids=str)
@pytest.mark.parametrize("count", [5, 9, 10, 19, 20, 30])
def test_recall_of_a_label_misses_as_many_positives_as_it_may(level, guarantee, count):
    alpha = 1 - Fraction(level)
    p = (1 + np.arange(count))[:, None] / 100
    y = np.ones((count, 1), np.int8)
    found = decide.Recall(float(level), guarantee, per="label").fit(p, y)
    missed = int((~found.predict(p)).sum())
    if guarantee is None:
        assert missed == min(math.floor(alpha * count), count - 1)
    elif guarantee == "expected":
        assert missed == max(0, math.floor(alpha * (count + 1)) - 1)
    else:
        good = [m for m in range(count) if binom.cdf(m, count, float(alpha)) <= 0.2]
        assert missed == max(good, default=0)


# Average size ----------------------------------------------------------------------------------


def nested(p):
    """Every set of the family, from small to large: above a value, and the first tied labels."""
    labels = np.arange(p.shape[1])
    for value in np.unique(p)[::-1]:
        for tied in range(p.shape[1]):
            yield (p > value) | ((p == value) & (labels < tied))
    yield np.ones_like(p, dtype=bool)


def capital(sets, size, delta):
    """Log of what the gambler has who bets that the mean is below ``size``, by its definition."""
    rows, labels = sets.shape
    share, variance = size / labels, size / labels * (1 - size / labels)
    fortunes = []
    for spread in (1, 1 / 3, 1 / 9):  # down to one in five, for five labels
        stake = math.sqrt(2 * math.log(1 / delta) / (rows * variance * spread))
        factors = 1 + min(stake, 0.999 / (1 - share)) * (share - sets.sum(axis=1) / labels)
        fortunes.append(math.exp(np.log(factors).sum()))
    return math.log(sum(fortunes) / 3)


@pytest.mark.parametrize("size", [1.0, 1.5, 2.5])
@pytest.mark.parametrize("delta", [0.05, 0.3])
@pytest.mark.parametrize("digits", [1, 2])
def test_the_certified_sets_are_the_largest_of_all_that_are_certified(size, delta, digits):
    for seed in SEEDS:
        p, _ = draw(seed, 60 + 5 * seed, labels=5, digits=digits)
        good = [sets for sets in nested(p) if capital(sets, size, delta) >= -math.log(delta)]
        found = decide.AverageSize(size, ("probability", delta)).fit(p).predict(p)
        np.testing.assert_array_equal(found, good[-1])


@pytest.mark.parametrize("size", ["1", "1.5", "2.4"])
@pytest.mark.parametrize("guarantee", [None, "expected"])
def test_sets_of_an_average_size_are_the_largest_within_the_budget(size, guarantee):
    for seed in SEEDS:
        p, _ = draw(seed, 40 + seed, labels=5)
        rows, labels = p.shape
        budget = Fraction(size) * rows
        if guarantee == "expected":
            budget = Fraction(size) * (rows + 1) - labels
        good = [sets for sets in nested(p) if int(sets.sum()) <= budget]
        found = decide.AverageSize(float(size), guarantee).fit(p).predict(p)
        np.testing.assert_array_equal(found, good[-1])


@pytest.mark.parametrize("level", ["0.5", "0.8", "0.9"])
def test_coverage_is_the_conformal_quantile_with_ties(level):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        p = np.round(rng.dirichlet(np.ones(4), 39), 1)
        y = np.eye(4, dtype=np.int8)[rng.integers(0, 4, 39)]
        found = decide.Coverage(float(level)).fit(p, y)
        covered = (found.predict(p) & (y == 1)).any(axis=1)
        needed = math.ceil(Fraction(level) * (len(p) + 1))
        assert covered.sum() >= needed
        true = np.sort(p[y == 1])[::-1]
        # With one label fewer than the tie at the quantile, too few rows would be covered.
        assert (true > true[needed - 1]).sum() < needed
        np.testing.assert_array_equal(found.predict(p), p >= true[needed - 1])


@pytest.mark.parametrize("level", [0.5, 0.65])
@pytest.mark.parametrize("delta", [0.1, 0.3, None])
def test_precision_of_a_label_is_the_lowest_threshold_of_its_sequence_of_tests(level, delta):
    """Thresholds are tested from the highest on; a test that fails loses the risk saved so far."""
    grid = 1 / (1 + np.exp(-np.arange(60, -61, -1) / 10))
    chosen = set()
    for seed in SEEDS:
        p, y = draw(seed, 200, labels=2, digits=2)
        p = np.minimum(p + 0.003, 1)  # ties of rows, none with the thresholds tested
        lowest = []
        for column, truth in zip(p.T, y.T, strict=True):
            saved, best = 0.0, None
            for threshold in grid:
                taken = (column >= threshold) & (truth >= 0)
                count, wrong = int(taken.sum()), int((taken & (truth == 0)).sum())
                if delta is None:
                    passes = count > 0 and wrong <= (1 - level) * count + 1e-12
                else:
                    saved += delta / len(grid)
                    passes = count > 0 and binom.cdf(wrong, count, 1 - level) <= saved
                    saved = saved if passes else 0.0
                best = threshold if passes else best
            lowest.append(np.inf if best is None else best)
        guarantee = None if delta is None else ("probability", delta)
        found = decide.Precision(level, guarantee, per="label").fit(p, y)
        np.testing.assert_array_equal(found.predict(p), p >= np.array(lowest))
        chosen |= set(lowest)
    assert len(chosen) > 1


@pytest.mark.parametrize("level", ["0.5", "0.7", "0.8"])
@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_recall_with_probability_is_the_highest_threshold_that_a_gambler_certifies(level, delta):
    """Three stakes, each best for one spread of the shares missed, share the capital."""
    alpha = float(1 - Fraction(level))
    for seed in SEEDS:
        p, y = draw(seed, 150, digits=2)
        kept = (y == 1).any(axis=1)
        p, present = p[kept], (y == 1)[kept]
        best = None
        for threshold in np.unique(p[present]):
            missed = 1 - (present & (p >= threshold)).sum(axis=1) / present.sum(axis=1)
            capital = []
            for spread in (1, 1 / 3, 1 / 9):
                variance = alpha * (1 - alpha) * spread
                stake = math.sqrt(2 * math.log(1 / delta) / (len(p) * variance))
                stake = min(stake, 0.999 / (1 - alpha))
                capital.append(np.exp(np.log1p(stake * (alpha - missed)).sum()))
            best = threshold if np.mean(capital) >= 1 / delta else best
        found = decide.Recall(float(level), ("probability", delta)).fit(p, present.astype(int))
        np.testing.assert_array_equal(found.predict(p), p >= best)
