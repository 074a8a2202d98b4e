"""Properties of a query's probability when labels are independent."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_retrieve_queries import formulas_over, spelt, value

from credibly import InputError
from credibly.retrieve import Index, Query, probability

LABELS = ("a", "b", "c", "d")
formulas = formulas_over(st.sampled_from(LABELS), 10)
RNG = np.random.default_rng(0)
ROWS = np.concatenate(
    [RNG.random((20, 4)), np.eye(4), np.zeros((1, 4)), np.ones((1, 4)), RNG.random((5, 4)) * 1e-30]
).astype(np.float32)


def by_listing(formula, rows):
    """Sum over all sixteen label sets of those that satisfy the formula."""
    total = np.zeros(len(rows))
    for chosen in product([False, True], repeat=4):
        if value(formula, dict(zip(LABELS, chosen, strict=True))):
            terms = np.where(chosen, rows.astype(float), 1 - rows.astype(float))
            total += terms.prod(axis=1)
    return total


@settings(max_examples=200, deadline=None)
@given(formulas)
def test_probability_is_the_sum_over_all_label_sets_that_satisfy_it(formula):
    found = probability(spelt(formula), ROWS, LABELS)
    np.testing.assert_allclose(found, by_listing(formula, ROWS), rtol=1e-12, atol=1e-15)
    assert ((found >= 0) & (found <= 1)).all()


@settings(max_examples=100, deadline=None)
@given(formulas, formulas)
def test_formulas_that_mean_the_same_give_the_same_bits(one, other):
    one, other = spelt(one), spelt(other)
    both = probability(f"!({one} & {other})", ROWS, LABELS)
    either = probability(f"!{other} | !{one} | !{one}", ROWS, LABELS)
    assert both.tobytes() == either.tobytes()


@settings(max_examples=100, deadline=None)
@given(formulas, formulas)
def test_a_conjunction_is_never_above_a_conjunct(one, other):
    both = probability(f"{spelt(one)} & {spelt(other)}", ROWS, LABELS)
    assert (both <= probability(spelt(one), ROWS, LABELS) * (1 + 1e-14)).all()


def test_a_conjunction_is_the_product_of_its_conditions():
    a, b, c, d = ROWS.astype(float).T
    found = probability("+c +a -d -b", ROWS, LABELS)
    np.testing.assert_array_equal(found, a * ((1 - b) * (c * (1 - d))))


def test_a_plain_conjunction_is_never_above_any_of_its_conditions_not_even_by_a_bit():
    found = probability("+c +a -d", ROWS, LABELS)
    for bound in (ROWS[:, 2], ROWS[:, 0], 1 - ROWS[:, 3].astype(float)):
        assert (found <= bound).all()


def test_a_repeated_label_counts_once():
    rows = [[0.5, 0.25, 0.5, 0.5]]
    assert probability("a & (a | b)", rows, LABELS) == [0.5]
    assert probability("a | !a", rows, LABELS) == [1.0]
    assert probability("+a -a", rows, LABELS) == [0.0]
    assert Index(rows, LABELS).search("a & !a").contradiction


def test_tensors_in_tensor_out():
    rows = torch.tensor(ROWS)
    assert torch.equal(
        probability("a | b", rows, LABELS), torch.from_numpy(probability("a | b", ROWS, LABELS))
    )


def test_too_large_a_formula_is_refused_with_a_reason():
    # Every pairing of names far apart in the alphabet must be remembered at once.
    low, high = [f"a{i:02d}" for i in range(16)], [f"b{i:02d}" for i in range(16)]
    text = " | ".join(f"({x} & {y})" for x, y in zip(low, high, strict=True))
    with pytest.raises(InputError, match="must take at most 50,000 operations"):
        probability(text, np.zeros((1, 32)), low + high)
    many = [f"l{i}" for i in range(201)]
    with pytest.raises(InputError, match="200 labels at most; got 201"):
        probability(Query(tuple(many)), np.zeros((1, 201)), many)


@pytest.mark.parametrize(
    ("rows", "labels", "reason"),
    [
        ([[np.nan, 0.1]], ["a", "b"], "must not contain NaN"),
        ([[1.5, 0.1]], ["a", "b"], r"must lie in \[0, 1\]"),
        ([0.1, 0.2], ["a", "b"], r"shape \(rows, labels\)"),
        ([[0.1, 0.2]], ["a"], "must name each of the 2 columns"),
    ],
)
def test_bad_probabilities_are_refused(rows, labels, reason):
    with pytest.raises(InputError, match=reason):
        probability("a", rows, labels)
