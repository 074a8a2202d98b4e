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


def on_samples(scores, targets):
    return metrics.mean_average_precision(scores, targets, over="samples")


METHODS = {
    "mAP@y bootstrap": (metrics.mean_average_precision, {"method": "bootstrap"}),
    "mAP@x bootstrap": (on_samples, {"method": "bootstrap"}),
    "mAP@x analytic": (metrics.mean_average_precision, {"method": "analytic", "over": "samples"}),
    "NLL bootstrap": (metrics.log_loss, {"method": "bootstrap"}),
    "NLL analytic": (metrics.log_loss, {"method": "analytic"}),
    "Brier analytic": (metrics.brier, {"method": "analytic"}),
    "ACE basic": (metrics.calibration_error, {"method": "basic"}),
}


@pytest.mark.parametrize(("metric", "options"), METHODS.values(), ids=METHODS.keys())
def test_intervals_cover_the_truth_about_as_often_as_they_say(metric, options):
    rng = np.random.default_rng(7)
    rest = {name: value for name, value in options.items() if name != "method"}
    truth = float(metric(*draw(100_000, rng), **rest))
    trials, inside = 80, 0
    for seed in range(trials):
        _, low, high = metrics.interval(
            metric, *draw(300, rng), level=0.9, resamples=60, seed=seed, **options
        )
        inside += low <= truth <= high
    # Binomial(80, 0.9) leaves [62, 79] once in two thousand; the bootstrap is a little short.
    assert 62 <= inside <= 79


SET_METRICS = [
    metrics.set_coverage,
    metrics.hamming,
    metrics.exact_match,
]


@pytest.mark.parametrize("metric", SET_METRICS, ids=lambda metric: metric.__name__)
def test_analytic_and_bootstrap_agree_on_large_samples(metric):
    probabilities, targets = draw(3000, np.random.default_rng(0))
    targets[::7] = -1
    sets = probabilities > 0.4
    one = metrics.interval(metric, sets, targets, method="analytic")
    other = metrics.interval(metric, sets, targets, resamples=400)
    assert one.estimate == pytest.approx(other.estimate, abs=1e-12)
    assert one.estimate == pytest.approx(float(metric(sets, targets)), abs=1e-12)
    width = other.high - other.low
    assert one.low == pytest.approx(other.low, abs=0.2 * width)
    assert one.high == pytest.approx(other.high, abs=0.2 * width)


def test_sizes_have_analytic_intervals():
    probabilities, _ = draw(500, np.random.default_rng(0))
    for metric, array in [
        (metrics.set_size, probabilities > 0.4),
    ]:
        one = metrics.interval(metric, array, method="analytic")
        assert one.estimate == pytest.approx(float(metric(array)))
        sizes = array.sum(1)
        assert one.high - one.estimate == pytest.approx(
            1.96 * sizes.std(ddof=1) / np.sqrt(500), rel=0.01
        )


def test_coverage_of_single_labels_is_exactly_binomial():
    rng = np.random.default_rng(0)
    sets, classes = rng.random((40, 3)) < 0.6, rng.integers(0, 3, 40)
    estimate, low, high = metrics.interval(metrics.set_coverage, sets, classes, method="analytic")
    hits = round(estimate * 40)
    assert (low, high) == metrics.proportion_interval(hits, 40, method="clopper-pearson")


@pytest.mark.parametrize("method", ["bootstrap", "analytic"])
def test_a_paired_difference_is_narrower_than_two_intervals(method):
    rng = np.random.default_rng(0)
    first, targets = draw(800, rng)
    second = np.clip(first + rng.normal(0, 0.02, first.shape), 0.001, 0.999)
    paired = metrics.paired_interval(metrics.log_loss, first, second, targets, method=method)
    one = metrics.interval(metrics.log_loss, first, targets, method=method)
    assert paired.estimate == pytest.approx(
        metrics.log_loss(first, targets) - metrics.log_loss(second, targets)
    )
    assert paired.high - paired.low < 0.5 * (one.high - one.low)
    same = metrics.paired_interval(metrics.log_loss, first, first, targets, method=method)
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
    alone = metrics.interval(metrics.brier, probabilities, targets, method="analytic")
    width, expected = (one.high - one.low for one in (ends["Brier"], alone))
    assert width == pytest.approx(expected, rel=0.4)


def test_what_cannot_have_an_interval_is_refused():
    probabilities, targets = CASES["unknown"]
    with pytest.raises(InputError, match="must return one number"):
        metrics.interval(metrics.average_precision, probabilities, targets)
    with pytest.raises(InputError, match=r"analytic interval exists for .*log_loss"):
        metrics.interval(metrics.calibration_error, probabilities, targets, method="analytic")
    with pytest.raises(InputError, match="needs average='pooled'"):
        metrics.interval(
            metrics.log_loss, probabilities, targets, method="analytic", average="macro"
        )
    with pytest.raises(InputError, match="not a mean over rows"):
        metrics.interval(metrics.mean_average_precision, probabilities, targets, method="analytic")
    with pytest.raises(InputError, match="same number of rows"):
        metrics.interval(metrics.log_loss, probabilities, targets[1:])
    with pytest.raises(InputError, match="`level` must lie in"):
        metrics.interval(metrics.log_loss, probabilities, targets, level=95)
    with pytest.raises(InputError, match="one of 'bootstrap'"):
        metrics.interval(metrics.log_loss, probabilities, targets, method="jackknife")
