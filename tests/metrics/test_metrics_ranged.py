"""Average precision by ranges of values equals that of all values at once."""

from __future__ import annotations

import numpy as np
import pytest

from credibly import InputError, metrics
from credibly.metrics.ranking import RankCounts, RankPlan, aurocs, precisions
from credibly.metrics.summaries import ZeroLabels
from credibly.targets import Targets

VALUES = {
    "probabilities": lambda g: g.random(2000),
    "rare probabilities": lambda g: g.random(2000) ** 8,
    "scores": lambda g: 5 * g.normal(size=2000),
    "few values": lambda g: g.integers(-3, 4, 2000) / 4,
    "one value": lambda g: np.full(2000, 0.25),
    "both zeros and infinities": lambda g: g.choice([-0.0, 0.0, np.inf, -np.inf, 1.0], 2000),
}


def ranked(plan, values, targets):
    """Average precision and AUROC of each label, range after range."""
    totals = np.zeros((values.shape[1], 4))
    for label in range(values.shape[1]):
        for part in range(plan.num_ranges(label)):
            some = plan.select(label, part, values[:, label], targets[:, label])
            totals[label] += plan.totals(label, part, *(each[:, None] for each in some))[0]
    return np.stack([precisions(totals), aurocs(totals)])


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("limit", [1, 37, 500, 10_000])
def test_ranges_give_the_ranking_of_the_whole(kind, limit, soft):
    generator = np.random.default_rng(0)
    values = np.stack([VALUES[kind](generator) for _ in range(3)], 1).astype(np.float32)
    targets = generator.choice([0, 0, 0, 1, -1], values.shape).astype(np.int8)
    targets[:, 2] = np.minimum(targets[:, 2], 0)  # no positive
    if soft:
        targets = np.where(targets == 1, 0.7, targets)
    counts = RankCounts(3)
    for rows in np.array_split(np.arange(2000), 7):
        some = RankCounts(3)
        some.update(values[rows], targets[rows])
        counts.merge(some.state())
    plan = counts.plan(limit)
    assert (plan.num_ranges(0) > 1) == (limit < 1000 and kind != "one value")
    numbers = metrics.average_precision, metrics.auroc
    expected = np.stack([each(values, Targets(targets)) for each in numbers])
    np.testing.assert_allclose(ranked(plan, values, targets), expected, rtol=1e-12)
    np.testing.assert_allclose(ranked(RankPlan.whole(3), values, targets), expected, rtol=1e-12)


def test_values_without_an_order_are_refused():
    with pytest.raises(InputError, match="must not be NaN"):
        RankCounts(1).update(np.float32([[np.nan]]), np.array([[1]]))


def test_the_influence_of_cells_is_that_of_values_where_cells_hold_one_value_each():
    from credibly.metrics.ranking import rank_influence

    generator = np.random.default_rng(0)
    values = (generator.integers(0, 60, (400, 3)) / 64).astype(np.float32)
    targets = generator.choice([0, 0, 1, -1, 0.5], values.shape)
    targets[:, 2] = np.minimum(targets[:, 2], 0)  # no positive: a label that adds nothing
    counts = RankCounts(3)
    counts.update(values, targets)
    found = counts.influence().of_rows(values, targets)
    np.testing.assert_allclose(found, rank_influence(values, targets), atol=1e-12)
    assert np.abs(found).max() > 1e-4


@pytest.mark.parametrize("exact", [300, 2**20])
def test_confidences_past_a_limit_count_as_ties_and_change_the_auroc_alone(exact):
    generator = np.random.default_rng(0)
    values = generator.random((5000, 3)).astype(np.float32)
    targets = (generator.random(values.shape) < values**3).astype(np.int8)
    targets[generator.random(values.shape) < 0.05] = -1
    whole, merged = ZeroLabels(3), ZeroLabels(3, exact)
    whole.update(values, targets)
    for rows in np.array_split(np.arange(5000), 7):
        part = ZeroLabels(3, exact)
        part.update(values[rows], targets[rows])
        merged.merge(part.state())
    found, expected = merged.compute(), whole.compute()
    assert len(merged.state()["keys"]) <= exact
    assert found.auroc == pytest.approx(expected.auroc, rel=1e-12 if exact > 5000 else 1e-2)
    for name in ("accuracy", "mean_confidence_in", "mean_confidence_out", "rows_in", "rows_out"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)
    assert expected.rows_out > 100
