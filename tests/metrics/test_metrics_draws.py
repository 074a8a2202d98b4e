"""Draws of a summary spread as the numbers do on real resamples."""

from __future__ import annotations

import numpy as np
import pytest
from metric_cases import make_case

from credibly import metrics
from credibly.metrics.intervals import summary_draws

PROBABILITIES, TARGETS = make_case(rows=1500, labels=6, seed=3, ties=True)
SETS = PROBABILITIES > 0.4


def test_draws_spread_as_resamples_do():
    found = summary_draws(PROBABILITIES, TARGETS, sets=SETS, resamples=400)
    rng = np.random.default_rng(5)
    again = []
    for _ in range(200):
        rows = rng.integers(0, len(TARGETS), len(TARGETS))
        again.append(metrics.summary(PROBABILITIES[rows], TARGETS[rows], sets=SETS[rows]))
    whole = metrics.summary(PROBABILITIES, TARGETS, sets=SETS)
    assert found.estimates == pytest.approx(whole)
    assert set(found.draws) == set(whole)
    for name, draws in found.draws.items():
        spread = np.std([one[name] for one in again])
        assert np.std(draws) == pytest.approx(spread, rel=0.25), name
        assert np.mean(draws) == pytest.approx(whole[name], abs=0.25 * spread), name


def test_the_influence_on_the_ranking_is_its_derivative():
    from credibly.metrics.ranking import rank_influence

    def numbers(scores, targets):
        each = metrics.average_precision(scores, targets), metrics.auroc(scores, targets)
        return np.nanmean(each, axis=1)

    scores, targets = make_case(rows=40, labels=5, seed=1, ties=True)
    found = rank_influence(scores, targets)
    np.testing.assert_allclose(found.sum(0), 0, atol=1e-12)
    limits = 2e-3 * np.abs(found).max(0) + 1e-9
    for row in range(0, 40, 2):
        # A row of weight 1 + ε is a row repeated in one of 1/ε copies of the data.
        copies = 400
        more = [
            np.concatenate([np.tile(a, (copies, 1)), a[row : row + 1]]) for a in (scores, targets)
        ]
        change = numbers(*more) - numbers(scores, targets)
        assert (np.abs(change * copies - found[row]) < limits).all()


@pytest.mark.parametrize("seed", range(3))
def test_an_interval_holds_its_estimate(seed):
    probabilities, targets = make_case(rows=300, labels=6, seed=seed)
    for name, each in metrics.summary_intervals(
        probabilities, targets, sets=probabilities > 0.5
    ).items():
        if not np.isnan(each.estimate):
            assert each.low <= each.estimate <= each.high, name
