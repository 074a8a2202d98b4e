"""Label budgets: met on the fitted rows, guaranteed for new ones."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from credibly import InputError
from credibly.decide import AverageSize


def draw(rows, labels=20, seed=0, dtype=np.float32):
    noise = np.random.default_rng(seed)
    shift = np.linspace(-1, -5, labels)
    return (1 / (1 + np.exp(-noise.normal(shift, 2, (rows, labels))))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0.3, 1, 1.37, 2.5, 20])
def test_algorithm_1_without_ties_uses_the_whole_budget(dtype, size):
    probabilities = draw(150, dtype=dtype)
    decision = AverageSize(size).fit(probabilities)
    assert decision.predict(probabilities).sum() == int(size * 150)
    assert decision.fitted_size == int(size * 150) / 150


@pytest.mark.parametrize("size", [1.5, 3])
def test_the_threshold_lies_midway(size):
    probabilities = draw(100, dtype=np.float64)
    ordered = np.sort(probabilities, axis=None)[::-1]
    last = int(size * 100)
    found = AverageSize(size).fit(probabilities).threshold
    assert found == (ordered[last - 1] + ordered[last]) / 2


@pytest.mark.parametrize("guarantee", [None, "expected", ("probability", 0.2)])
@pytest.mark.parametrize("digits", [0, 1, 2])
def test_ties_never_exceed_the_budget_and_fill_it_label_by_label(guarantee, digits):
    probabilities = np.round(draw(400), digits)
    decision = AverageSize(4, guarantee).fit(probabilities)
    taken = decision.predict(probabilities).sum()
    assert decision.fitted_size == taken / 400
    allowed = {None: 1600, "expected": 4 * 401 - 20}.get(guarantee, 1600)
    assert 0 < taken <= allowed
    if not isinstance(guarantee, tuple):
        tied = (probabilities == np.float64(decision.threshold)).sum(axis=0)
        if decision.tied_labels < 20 and tied.sum():
            assert taken + tied[decision.tied_labels] > allowed


def test_equal_probabilities_everywhere_give_the_first_labels():
    sets = AverageSize(2).fit(np.full((10, 5), 0.5)).predict(np.full((3, 5), 0.5))
    assert_array_equal(sets, [[True, True, False, False, False]] * 3)


def test_sets_grow_with_the_budget():
    probabilities = np.round(draw(200), 2)
    for guarantee in (None, "expected", ("probability", 0.1)):
        before = np.zeros(probabilities.shape, dtype=bool)
        for size in (2, 2.5, 4, 9, 20):
            sets = AverageSize(size, guarantee).fit(probabilities).predict(probabilities)
            assert (sets | ~before).all()
            before = sets


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adjacent_floats_are_told_apart(dtype):
    high = dtype(0.3)
    for _ in range(4):  # of two neighbours, one has the even last bit that rounding prefers
        low = np.nextafter(high, dtype(0))
        probabilities = np.array([[high, low], [high, low]])
        sets = AverageSize(1).fit(probabilities).predict(probabilities)
        assert_array_equal(sets, [[True, False]] * 2)
        high = low


def test_stronger_guarantees_give_smaller_sets():
    probabilities = draw(500)
    guarantees = (None, "expected", ("probability", 0.3), ("probability", 0.01))
    sizes = [AverageSize(3, guarantee).fit(probabilities).fitted_size for guarantee in guarantees]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= 3


def test_rows_are_needed():
    with pytest.raises(InputError, match="at least one row"):
        AverageSize(2).fit(np.zeros((0, 3)))


@pytest.mark.parametrize(("rows", "needed"), [(3, 10), (9, 10)])
def test_too_few_rows_for_the_expectation_says_how_many(rows, needed):
    with pytest.raises(InputError, match=f"needs at least {needed} held-out rows"):
        AverageSize(2, "expected").fit(draw(rows))
    AverageSize(2, "expected").fit(draw(needed))


def test_too_few_rows_for_the_probability_says_how_many():
    decision = AverageSize(2, ("probability", 0.1))
    with pytest.raises(InputError, match=r"needs at least 22 held-out rows; got 21"):
        decision.fit(draw(21))
    decision.fit(draw(22))


# Simulation: what is guaranteed for new rows ----------------------------------------------------


def mean_sizes(guarantee, rows, trials, size=2.0, labels=20):
    """Mean set size on fresh rows, for many draws of the fitted rows."""
    fresh = draw(20_000, labels, seed=10**6)
    sizes = []
    for seed in range(trials):
        decision = AverageSize(size, guarantee).fit(draw(rows, labels, seed=seed))
        sizes.append((fresh > np.float64(decision.threshold)).sum(axis=1).mean())
    return np.array(sizes)


@pytest.mark.parametrize("rows", [50, 400])
def test_the_expected_size_stays_within_the_budget(rows):
    sizes = mean_sizes("expected", rows, trials=200)
    error = sizes.std(ddof=1) / np.sqrt(len(sizes))
    assert sizes.mean() <= 2 + 2 * error
    # and is not far below it: L / n is all that the guarantee costs
    assert sizes.mean() >= 2 - 1.5 * 20 / rows


@pytest.mark.parametrize("rows", [100, 1000])
@pytest.mark.parametrize("delta", [0.3, 0.05])
def test_the_budget_is_exceeded_in_at_most_a_share_delta_of_draws(rows, delta):
    sizes = mean_sizes(("probability", delta), rows, trials=100)
    assert (sizes > 2).mean() <= delta


def test_the_plain_threshold_exceeds_the_budget_about_half_of_the_time():
    assert 0.35 < (mean_sizes(None, 200, trials=200) > 2).mean() < 0.65


@pytest.mark.parametrize("seed", range(3))
def test_the_probability_version_holds_in_the_worst_case(seed):
    """Sets that are full or empty have the largest variance there is."""
    noise = np.random.default_rng(seed)
    violations = 0
    for _ in range(100):
        level = noise.random((300, 1))
        decision = AverageSize(4, ("probability", 0.1)).fit(np.tile(level, (1, 10)))
        # a fresh row has all 10 labels with probability 1 − threshold
        violations += 10 * (1 - decision.threshold) > 4
    assert violations <= 10
