"""Intervals from sums over groups of rows agree with those from single rows."""

import numpy as np
import pytest

from credibly.metrics import Summary, log_loss, summary_intervals
from credibly.metrics import interval as interval_of
from credibly.metrics.intervals import GroupSums
from credibly.targets import Targets


def rows_of(count, labels=6, seed=0, *, soft=False):
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 2, (count, labels))
    chances = (1 / (1 + np.exp(-odds))).astype(np.float32)
    truth = (rng.random(chances.shape) < 1 / (1 + np.exp(0.2 - 0.8 * odds))).astype(np.float32)
    if soft:
        truth = 0.8 * truth + 0.1
    truth[:, -1] = 0.0  # no positive
    truth[rng.random(truth.shape) < 0.05] = -1
    truth[rng.random(count) < 0.1] = 0.0
    return chances, truth if soft else truth.astype(np.int8)


def sums_of(values, truth, *, soft=False, parts=1, groups=2000):
    whole = Summary(values.shape[1], zero=not soft, ranks=True, coding="unknown")
    whole.update(values, truth)
    influence = whole.ranks.influence()

    def empty():
        return GroupSums(whole, lambda values, truth, _: influence.of_rows(values, truth), groups)

    total = empty()
    for rows in np.array_split(np.arange(len(values)), parts):
        part = empty()
        part.update(values[rows], truth[rows], first_row=int(rows[0]))
        total.merge(part.state())
    return total


@pytest.mark.parametrize("soft", [False, True])
def test_widths_are_those_of_resampled_rows(soft):
    values, truth = rows_of(6000, soft=soft)
    by_row = summary_intervals(values, Targets(truth), resamples=3000)
    estimates = {name: each.estimate for name, each in by_row.items()}
    by_group = sums_of(values, truth, soft=soft).intervals(estimates, resamples=3000)
    assert set(by_group) == set(by_row)
    for name, expected in by_row.items():
        width = by_group[name].high - by_group[name].low
        assert width == pytest.approx(expected.high - expected.low, rel=0.15), name
        middle, other = ((each.low + each.high) / 2 for each in (by_group[name], expected))
        assert middle == pytest.approx(other, abs=0.15 * width), name


@pytest.mark.parametrize("parts", [2, 7])
def test_parts_of_the_rows_add_up(parts):
    values, truth = rows_of(5001)
    whole, added = sums_of(values, truth, groups=40), sums_of(values, truth, parts=parts, groups=40)
    for name, array in whole.state().items():
        np.testing.assert_allclose(added.state()[name], array, rtol=1e-9, atol=1e-9)


def test_fewer_rows_than_groups_resample_each_row():
    values, truth = rows_of(300)
    found = sums_of(values, truth).intervals({"NLL": 0.0}, resamples=4000)["NLL"]
    exact = interval_of(log_loss, values, Targets(truth), method="analytic")
    assert found.high - found.low == pytest.approx(exact.high - exact.low, rel=0.1)


def test_an_analytic_interval_takes_no_copies_of_the_matrix():
    import tracemalloc

    values, truth = rows_of(20_000, labels=100)
    interval_of(log_loss, values[:100], Targets(truth[:100]), method="analytic")
    tracemalloc.start()
    interval_of(log_loss, values, Targets(truth), method="analytic")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Decoding checks the targets once, in masks of a byte per entry; it was 12 copies.
    assert peak < 3.5 * values.nbytes
