"""Intervals from sums over groups of rows agree with those from single rows."""

import numpy as np
import pytest

import credibly as cr
from credibly import metrics
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


def evaluated(folder, values, truth, **options):
    """Return intervals over groups of rows."""
    path, labels = folder / "p.parquet", [f"label {i}" for i in range(values.shape[1])]
    cr.Predictions.from_arrays(probabilities=values, targets=Targets(truth), labels=labels).write(
        path
    )
    return cr.evaluate(path, intervals=True, resampled_rows=1, **options).intervals


@pytest.mark.parametrize("soft", [False, True])
def test_widths_are_those_of_resampled_rows(soft, tmp_path):
    values, truth = rows_of(6000, soft=soft)
    by_row = metrics.summary_intervals(values, Targets(truth), resamples=3000)
    by_group = evaluated(tmp_path, values, truth)
    assert set(by_group) == set(by_row)
    for name, (_, low, high) in by_row.items():
        first, last = by_group[name]
        assert last - first == pytest.approx(high - low, rel=0.15), name
        assert (first + last) / 2 == pytest.approx((low + high) / 2, abs=0.15 * (high - low)), name


def test_batches_of_the_rows_add_up(tmp_path):
    values, truth = rows_of(5001)
    whole = evaluated(tmp_path, values, truth)
    for name, limits in evaluated(tmp_path, values, truth, batch_rows=613).items():
        assert limits == pytest.approx(whole[name], rel=1e-9), name


def test_fewer_rows_than_groups_resample_each_row(tmp_path):
    values, truth = rows_of(300)
    low, high = evaluated(tmp_path, values, truth)["NLL"]
    rows = [metrics.log_loss(p, Targets(y)) for p, y in zip(values, truth, strict=True)]
    counts = (truth >= 0).sum(1)
    ratio = np.nansum(rows * counts) / counts.sum()
    influence = (np.nan_to_num(rows) - ratio) * counts / counts.mean()
    assert high - low == pytest.approx(2 * 1.96 * influence.std() / np.sqrt(300), rel=0.1)
