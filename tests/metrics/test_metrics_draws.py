"""Intervals of a summary are as wide as its metrics spread on real resamples."""

from __future__ import annotations

import numpy as np
import pytest
from metric_cases import make_case

from credibly import metrics

PROBABILITIES, TARGETS = make_case(rows=1500, labels=6, seed=3, ties=True)
SETS = PROBABILITIES > 0.4


def test_intervals_are_as_wide_as_resamples_spread():
    found = metrics.summary_intervals(PROBABILITIES, TARGETS, sets=SETS, resamples=1000)
    rng = np.random.default_rng(5)
    again = []
    for _ in range(200):
        rows = rng.integers(0, len(TARGETS), len(TARGETS))
        again.append(metrics.summary(PROBABILITIES[rows], TARGETS[rows], sets=SETS[rows]))
    whole = metrics.summary(PROBABILITIES, TARGETS, sets=SETS)
    assert {name: each.estimate for name, each in found.items()} == pytest.approx(whole)
    for name, (estimate, low, high) in found.items():
        spread = np.std([one[name] for one in again])
        assert (high - low) / 3.92 == pytest.approx(spread, rel=0.25), name
        assert (low + high) / 2 == pytest.approx(estimate, abs=0.5 * spread), name


@pytest.mark.parametrize("seed", range(3))
def test_an_interval_holds_its_estimate(seed):
    probabilities, targets = make_case(rows=300, labels=6, seed=seed)
    for name, each in metrics.summary_intervals(
        probabilities, targets, sets=probabilities > 0.5
    ).items():
        if not np.isnan(each.estimate):
            assert each.low <= each.estimate <= each.high, name
