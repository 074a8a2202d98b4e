"""What cannot be measured is refused with a sentence that says what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from metric_cases import make_case

from credibly import InputError, metrics
from credibly.targets import Targets

PROBABILITIES, TARGETS = make_case(rows=12, labels=4)
KNOWN = (np.random.default_rng(1).random((12, 4)) < PROBABILITIES).astype(np.int8)
OF_PROBABILITIES = [
    metrics.calibration_error,
    metrics.top_k_calibration_error,
    metrics.reliability,
    metrics.log_loss,
    metrics.brier,
    metrics.kl_to_truth,
    metrics.zero_label,
    metrics.summary,
]
OF_SCORES = [
    metrics.auroc,
    metrics.average_precision,
    metrics.curves,
    metrics.sample_average_precision,
    metrics.mean_average_precision,
    metrics.ranking_loss,
    metrics.one_error,
    metrics.coverage_error,
    metrics.top_k_f1,
]
OF_SETS = [
    metrics.precision,
    metrics.recall,
    metrics.f1,
    metrics.jaccard,
    metrics.mcc,
    metrics.confusion,
    metrics.hamming,
    metrics.exact_match,
    metrics.set_coverage,
]


def name_of(metric):
    return metric.__name__


of_probabilities = pytest.mark.parametrize("metric", OF_PROBABILITIES, ids=name_of)
of_scores = pytest.mark.parametrize("metric", OF_SCORES, ids=name_of)
of_sets = pytest.mark.parametrize("metric", OF_SETS, ids=name_of)
of_all = pytest.mark.parametrize("metric", OF_PROBABILITIES + OF_SCORES, ids=name_of)


@of_probabilities
def test_scores_are_not_probabilities(metric):
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]; got .*loss\.probabilities"):
        metric(PROBABILITIES * 4 - 2, TARGETS)


@of_all
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_nan_is_refused_with_its_place(metric, kind):
    broken = PROBABILITIES.copy()
    broken[3, 2] = np.nan
    with pytest.raises(InputError, match=r"must not contain NaN; got 1, the first at \(3, 2\)"):
        metric(kind(broken), kind(TARGETS))


@of_all
def test_shapes_must_agree(metric):
    with pytest.raises(InputError, match=r"shapes must agree; got .*\(12, 4\).*\(11, 4\)"):
        metric(PROBABILITIES, TARGETS[1:])
    with pytest.raises(InputError, match=r"must have shape \(rows, labels\)"):
        metric(PROBABILITIES[None], TARGETS[None])


@of_all
@pytest.mark.parametrize("value", [2, -2, 300, np.inf])
def test_targets_must_be_targets(metric, value):
    targets = TARGETS.astype(np.float64)
    targets[5, 1] = value
    with pytest.raises(InputError, match=r"`targets` must be .* at \(5, 1\)"):
        metric(PROBABILITIES, targets)


NOT_SOFT = [metrics.ranking_loss, metrics.one_error, metrics.coverage_error, metrics.zero_label]
NOT_SOFT += [metrics.retrieval_map]


@pytest.mark.parametrize("metric", NOT_SOFT, ids=name_of)
def test_metrics_without_a_soft_meaning_say_so(metric):
    message = rf"must be 0, 1 or −1 .* for {name_of(metric)}, which has no meaning for soft"
    with pytest.raises(InputError, match=message):
        metric(PROBABILITIES, np.full(TARGETS.shape, 0.5))


def test_sets_without_a_soft_meaning_say_so():
    sets, soft = PROBABILITIES > 0.5, np.full(TARGETS.shape, 0.5)
    with pytest.raises(InputError, match="for exact_match, which has no meaning for soft"):
        metrics.exact_match(sets, soft)
    with pytest.raises(InputError, match='"samples", which has no meaning for soft'):
        metrics.f1(sets, soft, average="samples")


@pytest.mark.parametrize(
    "metric", [*OF_PROBABILITIES, *OF_SCORES, metrics.retrieval_map], ids=name_of
)
def test_targets_of_only_minus_and_plus_one_need_a_coding(metric):
    signed = np.where(KNOWN > 0, 1, -1)
    with pytest.raises(InputError, match=r"only −1 and \+1.*signed.*unknown"):
        metric(PROBABILITIES, signed)
    told = Targets.of(signed, coding="signed")
    assert repr(metric(PROBABILITIES, told)) == repr(metric(PROBABILITIES, KNOWN))
    metric(PROBABILITIES, Targets.of(signed, coding="unknown"))


@of_sets
def test_sets_against_minus_and_plus_one_need_a_coding(metric):
    signed, sets = np.where(KNOWN > 0, 1, -1), PROBABILITIES > 0.5
    with pytest.raises(InputError, match=r"only −1 and \+1.*signed.*unknown"):
        metric(sets, signed)
    assert np.array_equal(metric(sets, Targets.of(signed, coding="signed")), metric(sets, KNOWN))


@of_all
def test_nan_and_minus_100_are_unknown(metric):
    targets = TARGETS.astype(np.float64)
    for unknown in (np.nan, -100):
        other = np.where(targets < 0, unknown, targets)
        assert repr(metric(PROBABILITIES, other)) == repr(metric(PROBABILITIES, TARGETS))


@of_sets
def test_sets_must_be_decided(metric):
    with pytest.raises(InputError, match=r"must be a bool matrix.*Threshold"):
        metric(PROBABILITIES, TARGETS)
    with pytest.raises(InputError, match="shapes must agree"):
        metric(PROBABILITIES[1:] > 0.5, TARGETS)


def test_class_indices_must_fit():
    with pytest.raises(InputError, match=r"class indices .* must lie in \[0, 3\].*got 4 in row 4"):
        metrics.log_loss(PROBABILITIES, np.arange(12) % 5)
    with pytest.raises(InputError, match="one per row, 12; got 11"):
        metrics.log_loss(PROBABILITIES, np.zeros(11, int))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "eace"}, "`kind` must be one of 'ace'"),
        ({"bins": 0}, "`bins` must be a finite number of at least 1"),
        ({"bins": 2.5}, "`bins` must be a whole number"),
        ({"average": "micro"}, "`average` must be one of 'pooled'"),
        ({"min_count": -1}, "`min_count` must be"),
    ],
)
def test_options_of_calibration_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        metrics.calibration_error(PROBABILITIES, TARGETS, **options)


def test_other_options_are_checked():
    with pytest.raises(InputError, match="two meanings"):
        metrics.f1(PROBABILITIES > 0.5, TARGETS, average="macro")
    with pytest.raises(InputError, match=r"`k` must be a whole number between 1 and .* 4; got 5"):
        metrics.top_k_f1(PROBABILITIES, TARGETS, k=5)
    with pytest.raises(InputError, match="`over` must be one of"):
        metrics.mean_average_precision(PROBABILITIES, TARGETS, over="rows")
    with pytest.raises(InputError, match="one count per label"):
        metrics.coverage_by_frequency(PROBABILITIES > 0.5, TARGETS, np.array([1, 2]))
    with pytest.raises(InputError, match="between 0 and `trials`"):
        metrics.proportion_interval(5, 4)
    with pytest.raises(InputError, match="`floor` must lie in"):
        metrics.log_loss(PROBABILITIES, TARGETS, floor=1)


def test_nothing_at_all_is_nan():
    nothing = np.empty((0, 3))
    assert np.isnan(metrics.average_precision(nothing, nothing.astype(int))).all()
    assert np.isnan(metrics.calibration_error(nothing, nothing))
    assert np.isnan(metrics.log_loss(nothing, nothing))
    assert np.isnan(metrics.set_size(nothing.astype(bool)))
