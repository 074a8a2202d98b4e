"""Properties of ``retrieval_map``: exact, whatever is unknown; sampling agrees with listing."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from credibly import InputError
from credibly.metrics import retrieval_map


def predictions(rows, labels, seed, *, coarse=False, unknown=0.05):
    """Zero-label rows, all-unknown rows, a label without positives; ties where ``coarse``."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.05, 0.4, labels)
    truth = (rng.random((rows, labels)) < rates).astype(np.int8)
    chances = 1 / (1 + np.exp(-rng.normal(4.0 * truth - 2, 1.5)))
    truth[:, -1] = 0
    truth[: rows // 10] = 0
    truth[rng.random(truth.shape) < unknown] = -1
    truth[rows // 10 : rows // 10 + 2] = -1
    return (np.round(chances, 1) if coarse else chances.astype(np.float32)), truth


def queries(num_labels, conditions):
    for chosen in combinations(range(num_labels), conditions):
        for signs in product([0, 1], repeat=conditions):
            if any(signs):
                yield chosen, signs


def listed(chances, truth, conditions):
    """Every query by scikit-learn, and expected and real hits by number of wanted labels."""
    precisions, mass = [], {}
    for chosen, signs in queries(truth.shape[1], conditions):
        known = (truth[:, chosen] >= 0).all(axis=1)
        scores = np.ones(len(truth))
        relevant = known.copy()
        for label, sign in zip(chosen, signs, strict=True):
            column = chances[:, label].astype(float)
            scores = scores * (column if sign else 1 - column)
            relevant &= truth[:, label] == sign
        if relevant.any():
            precisions.append(average_precision_score(relevant[known], scores[known]))
        total = mass.setdefault(sum(signs), np.zeros(2))
        total += scores[known].sum(), relevant.sum()
    return precisions, mass


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(12, 60),
    labels=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    coarse=st.booleans(),
)
def test_it_equals_listing_every_query_with_scikit_learn(rows, labels, seed, coarse):
    chances, truth = predictions(rows, labels, seed, coarse=coarse)
    result = retrieval_map(chances, truth, max_conditions=4)
    assert result.sampled == ()
    everything = []
    for conditions in range(1, min(labels, 4) + 1):
        precisions, mass = listed(chances, truth, conditions)
        assert result.counts[conditions] == result.queries[conditions] == len(precisions)
        if precisions:
            mean = pytest.approx(np.mean(precisions), abs=1e-12)
            assert result.by_conditions[conditions] == mean
            assert result.intervals[conditions] == (mean, mean)
        else:
            assert np.isnan(result.by_conditions[conditions])
        everything += precisions
        for wanted, (expected, hits) in mass.items():
            key = wanted, conditions - wanted
            assert result.expected[key] == pytest.approx(expected, rel=1e-9, abs=1e-12)
            assert result.hits[key] == hits
    if everything:
        assert result.mean == pytest.approx(np.mean(everything), abs=1e-12)
    else:
        assert np.isnan(result.mean)


# Long enough for relevant rows to be sorted into buckets, crowded ones and equal scores included.
@pytest.mark.parametrize("kind", ["fine", "coarse", "tiny", "one score", "ends"])
def test_long_lists_of_relevant_rows_are_exact_too(kind):
    rng = np.random.default_rng(1)
    truth = (rng.random((3000, 3)) < 0.4).astype(np.int8)
    chances = {
        "fine": rng.random(truth.shape),
        "coarse": np.round(rng.random(truth.shape), 2),
        "tiny": rng.random(truth.shape) * 1e-300,
        "one score": np.full(truth.shape, 0.3),
        "ends": (rng.random(truth.shape) < 0.5).astype(float),
    }[kind]
    result = retrieval_map(chances, truth, max_conditions=2)
    for conditions in (1, 2):
        precisions, _ = listed(chances, truth, conditions)
        assert result.by_conditions[conditions] == pytest.approx(np.mean(precisions), abs=1e-12)


def test_perfect_probabilities_are_best():
    _, truth = predictions(80, 5, seed=3, unknown=0.0)
    truth = np.maximum(truth, 0)
    result = retrieval_map(truth.astype(float), truth)
    assert all(value == 1 for value in result.by_conditions.values())
    assert all(result.expected[key] == result.hits[key] for key in result.hits)
    assert result.mass_ratio(3) == result.mass_ratio(3, wanted=2) == 1


def test_order_of_rows_and_labels_changes_nothing():
    chances, truth = predictions(120, 6, seed=4)
    one = retrieval_map(chances, truth, max_conditions=3)
    rng = np.random.default_rng(0)
    rows, labels = rng.permutation(120), rng.permutation(6)
    other = retrieval_map(chances[rows][:, labels], truth[rows][:, labels], max_conditions=3)
    assert other.counts == one.counts
    assert other.mean == pytest.approx(one.mean, abs=1e-9)


def test_tensors_are_taken():
    chances, truth = predictions(60, 4, seed=5)
    one = retrieval_map(chances, truth)
    assert retrieval_map(torch.tensor(chances), torch.tensor(truth)) == one


def test_a_small_budget_samples_and_its_intervals_cover_the_exact_value():
    chances, truth = predictions(400, 12, seed=6)
    exact = retrieval_map(chances, truth, max_conditions=4)
    covered = []
    for seed in range(10):
        found = retrieval_map(chances, truth, max_conditions=4, budget_seconds=0.003, seed=seed)
        assert found.sampled == (3, 4)
        assert found.by_conditions[2] == exact.by_conditions[2]
        assert (found.expected, found.hits) == (exact.expected, exact.hits)
        for size in (3, 4):
            low, high = found.intervals[size]
            covered.append(low <= exact.by_conditions[size] <= high)
            assert found.queries[size] == pytest.approx(exact.queries[size], rel=0.2)
        assert found.mean == pytest.approx(exact.mean, abs=0.05)
    assert np.mean(covered) >= 0.8


def test_the_same_seed_draws_the_same_queries():
    chances, truth = predictions(200, 10, seed=7)
    budget = {"max_conditions": 4, "budget_seconds": 0.01}
    assert retrieval_map(chances, truth, **budget, seed=1) == retrieval_map(
        chances, truth, **budget, seed=1
    )
    assert retrieval_map(chances, truth, **budget, seed=1) != retrieval_map(
        chances, truth, **budget, seed=2
    )


def test_nothing_known_is_no_number():
    result = retrieval_map(np.full((3, 2), 0.5), np.full((3, 2), -1))
    assert np.isnan(result.mean)
    assert result.counts == {1: 0, 2: 0}
    assert np.isnan(result.mass_ratio(1))


@pytest.mark.parametrize(
    ("chances", "truth", "options", "reason"),
    [
        ([[np.nan]], [[1]], {}, "must not contain NaN"),
        ([[1.2]], [[1]], {}, r"must lie in \[0, 1\]"),
        ([[0.2]], [[0.5]], {}, "must be 0, 1 or −1"),
        ([[0.2]], [[1, 0]], {}, "shapes must agree"),
        (np.empty((0, 2)), np.empty((0, 2)), {}, "there must be rows and labels"),
        ([[0.2]], [[1]], {"max_conditions": 0}, "`max_conditions` must lie between 1 and 10"),
        ([[0.2]], [[1]], {"budget_seconds": 0}, "`budget_seconds` must be a finite number above"),
    ],
)
def test_bad_input_is_refused(chances, truth, options, reason):
    with pytest.raises(InputError, match=reason):
        retrieval_map(np.array(chances), np.array(truth), **options)
