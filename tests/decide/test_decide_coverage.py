"""Conformal sets for one label per row."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from credibly import InputError
from credibly.decide import BestF, Coverage

METHODS = ["lac", "aps", "raps"]
each_method = pytest.mark.parametrize("method", METHODS)


def draw(rows, labels=8, seed=0):
    """Softmax probabilities that are wrong (too sharp), and classes from the right ones."""
    noise = np.random.default_rng(seed)
    scores = noise.normal(0, 1.5, (rows, labels))
    classes = (scores + noise.gumbel(size=scores.shape)).argmax(axis=1)
    sharp = np.exp(2 * scores)
    return sharp / sharp.sum(axis=1, keepdims=True), classes


def brute_force(method, probabilities, classes, level, penalty, free_size, new):
    """Sets by the definition, one row and one label at a time."""

    def score(row, label):
        if method == "lac":
            return 1 - row[label]
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        place = order.index(label) + 1
        extra = penalty * max(0, place - free_size) if method == "raps" else 0.0
        return np.cumsum(row[order])[place - 1] + extra

    true = sorted(score(row, label) for row, label in zip(probabilities, classes, strict=True))
    quantile = true[int(np.ceil((len(true) + 1) * level)) - 1]
    sets = np.array([[score(row, i) <= quantile for i in range(len(row))] for row in new])
    if method != "lac":
        sets[np.arange(len(new)), new.argmax(axis=1)] = True
    return sets


@each_method
@pytest.mark.parametrize("level", [0.55, 0.9])
def test_sets_equal_the_definition(method, level):
    probabilities, classes = draw(60)
    new, _ = draw(40, seed=1)
    decision = Coverage(level, method, penalty=0.02, free_size=2).fit(probabilities, classes)
    expected = brute_force(method, probabilities, classes, level, 0.02, 2, new)
    assert_array_equal(decision.predict(new), expected)


@each_method
@pytest.mark.parametrize("rows", [30, 500])
def test_the_true_label_is_covered_as_often_as_guaranteed(method, rows):
    covered = []
    for seed in range(200):
        decision = Coverage(0.8, method).fit(*draw(rows, seed=seed))
        probabilities, classes = draw(200, seed=seed + 10_000)
        covered.append(decision.predict(probabilities)[np.arange(200), classes].mean())
    error = np.std(covered, ddof=1) / np.sqrt(len(covered))
    assert np.mean(covered) >= 0.8 - 2 * error
    if method == "lac":  # the other two always hold the top label, which can cover more
        assert np.mean(covered) <= 0.8 + 1 / (rows + 1) + 2 * error


@each_method
def test_sets_grow_with_the_level(method):
    probabilities, classes = draw(300)
    before = np.zeros(probabilities.shape, dtype=bool)
    for level in (0.3, 0.6, 0.9, 0.99):
        sets = Coverage(level, method).fit(probabilities, classes).predict(probabilities)
        assert (sets | ~before).all()
        before = sets


@pytest.mark.parametrize("method", ["aps", "raps"])
def test_adaptive_sets_hold_the_most_probable_label(method):
    probabilities, classes = draw(300)
    sets = Coverage(0.5, method).fit(probabilities, classes).predict(probabilities)
    assert sets[np.arange(300), probabilities.argmax(axis=1)].all()


def test_a_matrix_of_single_labels_equals_class_indices_and_unknown_rows_are_left_out():
    probabilities, classes = draw(100)
    matrix = np.eye(8, dtype=int)[classes]
    matrix[::9] = -1
    indices = np.where(np.arange(100) % 9 == 0, -1, classes)
    first = Coverage(0.9).fit(probabilities, matrix).state()
    assert Coverage(0.9).fit(probabilities, indices).state() == first
    keep = indices >= 0
    assert Coverage(0.9).fit(probabilities[keep], classes[keep]).state() == first


@pytest.mark.parametrize(("level", "needed"), [(0.9, 9), (0.95, 19), (0.5, 1)])
def test_too_few_rows_says_how_many(level, needed):
    probabilities, classes = draw(needed)
    Coverage(level).fit(probabilities, classes)
    with pytest.raises(InputError, match=f"needs at least {needed} held-out rows"):
        Coverage(level).fit(probabilities[1:], classes[1:])


def test_several_labels_per_row_are_refused():
    probabilities, classes = draw(20)
    matrix = np.eye(8, dtype=int)[classes]
    matrix[3, :2] = 1
    with pytest.raises(InputError, match="exactly one true label per row; row 3 has"):
        Coverage().fit(probabilities, matrix)
    with pytest.raises(InputError, match=r"class indices .* must lie in \[0, 7\]"):
        Coverage().fit(probabilities, np.full(20, 8))
    with pytest.raises(InputError, match="shapes must agree"):
        Coverage().fit(probabilities, classes[:5])


def test_targets_of_only_plus_and_minus_one_say_what_they_mean():
    probabilities = np.tile([[0.9, 0.1], [0.2, 0.8]], (10, 1))
    signed = np.tile([[1, -1], [-1, 1]], (10, 1))
    for decision in (Coverage(0.5), BestF()):
        with pytest.raises(InputError, match='coding="signed"'):
            decision.fit(probabilities, signed)
        found = decision.fit(probabilities, signed, coding="signed").state()
        assert found == decision.fit(probabilities, (signed > 0).astype(int)).state()
