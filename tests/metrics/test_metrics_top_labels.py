"""Metrics of the most probable labels against plain loops over the published definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from credibly import InputError, metrics
from credibly.targets import SparseTargets

ROWS, LABELS, K = 40, 25, 5


def instance(seed):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(ROWS, LABELS))
    truth = (generator.random((ROWS, LABELS)) < 0.15).astype(int)
    truth[0] = 0
    truth[1, :9] = 1
    return np.argsort(-scores, axis=1)[:, : K + 2], truth


def by_hand(top, truth, weights, k):
    """One row after the other, as the repository's evaluation does; rows without labels are 0."""
    sums = dict.fromkeys(("p", "n", "r", "best p", "best n", "best r"), 0.0)
    for labels, present in zip(top, truth, strict=True):
        count = present.sum()
        gain = [present[label] * weights[label] for label in labels[:k]]
        best = sorted((w for w, y in zip(weights, present, strict=True) if y), reverse=True)[:k]
        ideal = sum(1 / math.log2(i + 2) for i in range(min(k, count) if count else k))
        for prefix, flags in (("", gain), ("best ", best)):
            sums[prefix + "p"] += sum(flags) / k
            sums[prefix + "n"] += sum(g / math.log2(i + 2) for i, g in enumerate(flags)) / ideal
            sums[prefix + "r"] += sum(flags) / max(count, 1)
    return sums


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 3, 5])
def test_figures_are_those_of_the_definition(seed, k):
    top, truth = instance(seed)
    sums = by_hand(top, truth, np.ones(LABELS), k)
    for function, name in FIGURES.items():
        assert function(top, truth, K)[k - 1] == pytest.approx(sums[name] / ROWS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 3, 5])
def test_propensity_scored_figures_are_divided_by_the_best_possible(seed, k):
    top, truth = instance(seed)
    weights = metrics.inverse_propensities(truth.sum(0), ROWS)
    sums = by_hand(top, truth, weights, k)
    for function, name in FIGURES.items():
        expected = sums[name] / sums["best " + name]
        assert function(top, truth, K, weights)[k - 1] == pytest.approx(expected)


FIGURES = {metrics.precision_at_k: "p", metrics.ndcg_at_k: "n", metrics.recall_at_k: "r"}


def test_rows_not_known_are_left_out_and_short_rows_are_filled_up():
    truth = SparseTargets([0, 1, 1], [3], 5, known=[True, False])
    np.testing.assert_allclose(metrics.precision_at_k([[3, -1], [1, 2]], truth, 2), [1, 0.5])


def test_the_inverse_propensity_of_a_frequent_label_is_near_one():
    weights = metrics.inverse_propensities([0, 10, 10_000], 10_000)
    assert (np.diff(weights) < 0).all()
    assert 1 < weights[-1] < 1.2


@pytest.mark.parametrize("top", [[[0.5]], [[9]], [[1], [2]]])
def test_bad_tops_are_refused(top):
    with pytest.raises(InputError, match="`top`"):
        metrics.precision_at_k(top, SparseTargets.from_lists([[1]], 5))
