"""Intervals contain the truth as often as they say, and agree with each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from metric_cases import CASES

from credibly import InputError, metrics


def draw(rows, rng, labels=4):
    """Dependent labels: estimates that are off, and targets from the true rates."""
    log_odds = rng.normal(size=(rows, 1)) + 1.5 * rng.normal(size=(rows, labels)) - 1
    targets = (rng.random((rows, labels)) < 1 / (1 + np.exp(-log_odds))).astype(np.int8)
    return 1 / (1 + np.exp(-1.4 * log_odds - 0.3)), targets


CASES_COVERED = {
    "mAP@y": (metrics.mean_average_precision, {}),
    "mAP@x": (metrics.mean_average_precision, {"over": "samples"}),
    "NLL": (metrics.log_loss, {}),
}


@pytest.mark.parametrize(("metric", "options"), CASES_COVERED.values(), ids=CASES_COVERED.keys())
def test_intervals_cover_the_truth_about_as_often_as_they_say(metric, options):
    rng = np.random.default_rng(7)
    truth = float(metric(*draw(100_000, rng), **options))
    trials, inside = 80, 0
    for seed in range(trials):
        _, low, high = metrics.interval(
            metric, *draw(300, rng), level=0.9, resamples=60, seed=seed, **options
        )
        inside += low <= truth <= high
    # Binomial(80, 0.9) leaves [62, 79] once in two thousand; the bootstrap is a little short.
    assert 62 <= inside <= 79


def test_a_paired_difference_is_narrower_than_two_intervals():
    rng = np.random.default_rng(0)
    first, targets = draw(800, rng)
    second = np.clip(first + rng.normal(0, 0.02, first.shape), 0.001, 0.999)
    paired = metrics.paired_interval(metrics.log_loss, first, second, targets)
    one = metrics.interval(metrics.log_loss, first, targets)
    assert paired.estimate == pytest.approx(
        metrics.log_loss(first, targets) - metrics.log_loss(second, targets)
    )
    assert paired.high - paired.low < 0.5 * (one.high - one.low)
    same = metrics.paired_interval(metrics.log_loss, first, first, targets)
    assert same == (0, 0, 0)


def test_the_seed_decides_and_tensors_change_nothing():
    probabilities, targets = CASES["unknown"]
    one = metrics.interval(metrics.mean_average_precision, probabilities, targets, seed=3)
    again = metrics.interval(
        metrics.mean_average_precision,
        torch.from_numpy(probabilities),
        torch.from_numpy(targets),
        seed=3,
    )
    assert one == again
    assert one != metrics.interval(metrics.mean_average_precision, probabilities, targets, seed=4)
    assert one.low < one.estimate < one.high


def test_the_summary_has_an_interval_for_every_number():
    probabilities, targets = draw(400, np.random.default_rng(1))
    sets = probabilities > 0.5
    numbers = metrics.summary(probabilities, targets, sets=sets)
    ends = metrics.summary_intervals(probabilities, targets, sets=sets, resamples=40)
    assert list(ends) == list(numbers)
    for name, number in numbers.items():
        assert ends[name].estimate == number
        assert ends[name].low <= ends[name].high or np.isnan(number)
    alone = metrics.interval(metrics.brier, probabilities, targets)
    width, expected = (one.high - one.low for one in (ends["Brier"], alone))
    assert width == pytest.approx(expected, rel=0.4)


def test_what_cannot_have_an_interval_is_refused():
    probabilities, targets = CASES["unknown"]
    with pytest.raises(InputError, match="must return one number"):
        metrics.interval(metrics.average_precision, probabilities, targets)
    with pytest.raises(InputError, match="same number of rows"):
        metrics.interval(metrics.log_loss, probabilities, targets[1:])
    with pytest.raises(InputError, match="`level` must lie in"):
        metrics.interval(metrics.log_loss, probabilities, targets, level=95)
