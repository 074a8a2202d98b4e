"""How often a label was right at a probability: against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credibly.app.statistics.labels import observed_share
from credibly.metrics import proportion_interval


def by_hand(p, y, value, near, most):
    rows = sorted((abs(float(a) - value), float(b)) for a, b in zip(p, y, strict=True) if b >= 0)
    inside = [(d, b) for d, b in rows if d <= near]
    if len(inside) > most:
        inside = [(d, b) for d, b in inside if d <= inside[most - 1][0]]
    return len(inside), sum(b for _, b in inside)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from([-1, 0, 1])), max_size=60),
    st.floats(0, 1),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.integers(1, 10),
)
def test_the_share_is_that_of_the_nearest_known_rows(rows, value, near, most):
    p = np.array([place / 20 for place, _ in rows])
    y = np.array([truth for _, truth in rows], dtype=np.int8)
    found = observed_share(p, y, value, near=near, most=most)
    count, present = by_hand(p, y, value, near, most)
    assert found.rows == count
    if count:
        low, high = proportion_interval(present, count)
        assert (found.share, found.low, found.high) == pytest.approx((present / count, low, high))
        assert abs(found.lowest - value) <= near
        assert abs(found.highest - value) <= near
    order = np.random.default_rng(0).permutation(len(p))
    again = observed_share(p[order], y[order], value, near=near, most=most)
    assert (again.rows, again.low, again.high) == (found.rows, found.low, found.high)


def test_a_calibrated_label_is_right_as_often_as_it_says():
    rng = np.random.default_rng(0)
    p = rng.random(40_000)
    y = (rng.random(p.shape) < p).astype(np.int8)
    inside = 0
    for value in np.linspace(0.02, 0.98, 60):
        found = observed_share(p, y, value)
        assert found.rows == 200
        assert found.enough
        inside += found.low <= value <= found.high
    assert inside >= 52  # 95 % of 60 are 57


def test_without_near_rows_nothing_is_claimed():
    found = observed_share(np.array([0.1, 0.2]), np.array([1, -1]), 0.9)
    assert found.rows == 0
    assert not found.enough
    assert np.isnan(found.share)
