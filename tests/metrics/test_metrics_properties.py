"""Properties of every metric, whatever it measures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_cases import CASES, make_case

from credibly import metrics
from credibly.targets import Targets


def of_sets(metric, **options):
    """A metric of label sets, on the sets of probabilities above 0.4."""

    def measured(probabilities, targets):
        return metric(probabilities > 0.4, targets, **options)

    return measured


def with_options(metric, **options):
    return lambda probabilities, targets: metric(probabilities, targets, **options)


# name: (metric of probabilities and targets, its value for perfect predictions)
SCALARS = {
    "mAP@y": (metrics.mean_average_precision, 1),
    "mAP@x": (with_options(metrics.mean_average_precision, over="samples"), 1),
    "ranking loss": (metrics.ranking_loss, 0),
    "one-error": (metrics.one_error, 0),
    "ECE": (with_options(metrics.calibration_error, kind="ece"), 0),
    "ACE": (metrics.calibration_error, 0),
    "MCE": (with_options(metrics.calibration_error, kind="mce"), 0),
    "macro ACE": (with_options(metrics.calibration_error, average="macro"), 0),
    "ECE-top-2": (with_options(metrics.top_k_calibration_error, k=2), 0),
    "NLL": (metrics.log_loss, 0),
    "macro NLL": (with_options(metrics.log_loss, average="macro"), 0),
    "Brier": (metrics.brier, 0),
    "KL": (metrics.kl_to_truth, 0),
    "F1": (of_sets(metrics.f1), 1),
    "samples F1": (of_sets(metrics.f1, average="samples"), 1),
    "mean of F1s": (of_sets(metrics.f1, average="mean_of_f1s"), 1),
    "F1 of means": (of_sets(metrics.f1, average="f1_of_means"), 1),
    "precision": (of_sets(metrics.precision), 1),
    "recall": (of_sets(metrics.recall), 1),
    "hamming": (of_sets(metrics.hamming), 0),
    "exact match": (of_sets(metrics.exact_match), 1),
    "coverage": (of_sets(metrics.set_coverage), 1),
    "macro coverage": (of_sets(metrics.set_coverage, average="macro"), 1),
    "IN accuracy": (lambda p, y: metrics.zero_label(p, y).accuracy, 1),
    "OUT MMC": (lambda p, y: metrics.zero_label(p, y).mean_confidence_out, 0),
    "AUROC": (lambda p, y: metrics.zero_label(p, y).auroc, 1),
}
PER_LABEL = {
    "AP": metrics.average_precision,
    "ACE": with_options(metrics.calibration_error, average=None),
    "NLL": with_options(metrics.log_loss, average=None),
    "Brier": with_options(metrics.brier, average=None),
    "F1": of_sets(metrics.f1, average=None),
    "precision": of_sets(metrics.precision, average=None),
    "coverage": of_sets(metrics.set_coverage, average=None),
}
METRICS = {name: metric for name, (metric, _) in SCALARS.items()}
each_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
each_label_metric = pytest.mark.parametrize("metric", PER_LABEL.values(), ids=PER_LABEL.keys())


def same(one, other):
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12, atol=1e-12)


@each_metric
def test_the_order_of_rows_and_labels_changes_nothing(metric):
    probabilities, targets = CASES["unknown"]  # no ties at the top k, where order decides
    rng = np.random.default_rng(0)
    rows, labels = rng.permutation(len(targets)), rng.permutation(targets.shape[1])
    at = np.ix_(rows, labels)
    same(metric(probabilities[at], targets[at]), metric(probabilities, targets))


@each_label_metric
def test_each_label_is_measured_on_its_own(metric):
    probabilities, targets = CASES["unknown, ties"]
    whole = metric(probabilities, targets)
    for t in range(targets.shape[1]):
        same(metric(probabilities[:, t : t + 1], targets[:, t : t + 1])[0], whole[t])
        known = targets[:, t] >= 0
        same(metric(probabilities[known, t : t + 1], targets[known, t : t + 1])[0], whole[t])


@pytest.mark.parametrize("name", SCALARS)
def test_perfect_is_best(name):
    metric, best = SCALARS[name]
    probabilities, targets = CASES["unknown"]
    if name in ("samples F1", "mean of F1s", "F1 of means"):  # 0 where nothing is present
        rows, labels = ((targets > 0).any(axis) for axis in (1, 0))
        probabilities, targets = (each[rows][:, labels] for each in (probabilities, targets))
    perfect = np.where(targets < 0, 0.5, targets)
    assert metric(perfect, targets) == pytest.approx(best, abs=1e-12)
    assert abs(metric(probabilities, targets) - best) > 0.01


@each_metric
def test_what_stands_at_unknown_entries_changes_nothing(metric):
    probabilities, targets = CASES["unknown"]
    other = np.where(targets < 0, np.random.default_rng(0).random(targets.shape), probabilities)
    assert (other != probabilities).any()
    same(metric(other, targets), metric(probabilities, targets))


@each_metric
def test_rows_and_labels_of_which_nothing_is_known_change_nothing(metric):
    probabilities, targets = CASES["unknown"]
    rows, labels = (targets >= 0).any(1), (targets >= 0).any(0)
    assert not rows.all()
    assert not labels.all()
    at = np.ix_(rows, labels)
    same(metric(probabilities[at], targets[at]), metric(probabilities, targets))


@each_metric
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tensors_give_tensors_with_the_same_value(metric, dtype):
    probabilities, targets = (torch.from_numpy(array) for array in CASES["unknown"])
    rounded = probabilities.to(dtype)
    result = metric(rounded, targets)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float64
    wide = rounded.double() if dtype == torch.float64 else rounded.float()
    same(result, metric(wide.numpy(), targets.numpy()))


@each_metric
def test_layout_and_types_of_targets_change_nothing(metric):
    probabilities, targets = CASES["unknown, ties"]
    expected = metric(probabilities, targets)
    same(metric(np.asfortranarray(probabilities), np.asfortranarray(targets)), expected)
    same(metric(np.repeat(probabilities, 2, 0)[::2], targets.astype(np.int64)), expected)
    same(metric(probabilities, targets.astype(np.float32)), expected)


@each_metric
def test_inputs_stay_as_they_were(metric):
    probabilities, targets = (array.copy() for array in CASES["unknown"])
    before = probabilities.copy(), targets.copy()
    probabilities.setflags(write=False)
    targets.setflags(write=False)
    metric(probabilities, targets)
    np.testing.assert_array_equal(probabilities, before[0])
    np.testing.assert_array_equal(targets, before[1])


@each_metric
def test_nothing_known_is_nan_or_undefined_without_a_warning(metric):
    probabilities = np.full((5, 3), 0.5)
    result = metric(probabilities, np.full((5, 3), -1))
    assert np.isnan(result) or result in (0, 1)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_average_precision_depends_on_order_alone(data):
    n = data.draw(st.integers(1, 12))
    scores = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)), float)
    targets = np.array(data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=n, max_size=n)))
    expected = metrics.average_precision(scores, Targets(targets))
    for rescaled in (scores * 1e300, scores**3 - 7, np.where(scores == 4, np.inf, scores)):
        same(metrics.average_precision(rescaled, Targets(targets)), expected)
    assert np.isnan(expected) or 0 < expected <= 1


def test_infinite_scores_rank_first_and_last():
    scores = np.array([np.inf, -np.inf, 0.0, np.inf])
    assert metrics.average_precision(scores, np.array([1, 0, 0, 0])) == 0.5
    assert metrics.average_precision(scores, np.array([0, 1, 0, 0])) == 0.25


def test_class_indices_are_one_label_a_row():
    probabilities, _ = make_case(rows=40, labels=5, seed=3)
    classes = np.random.default_rng(0).integers(-1, 5, 40)
    matrix = np.where(classes[:, None] < 0, -1, np.eye(5, dtype=int)[classes])
    for metric in (metrics.mean_average_precision, metrics.log_loss, metrics.calibration_error):
        same(metric(probabilities, classes), metric(probabilities, matrix))


def test_log_loss_meets_a_sure_mistake_at_the_floor():
    wrong, right = np.array([[0.0, 1.0]]), np.array([[1, 0]])
    assert metrics.log_loss(wrong, right, floor=0) == np.inf
    eps = np.finfo(np.float32).eps
    assert metrics.log_loss(wrong.astype(np.float32), right) == pytest.approx(-np.log(eps))
    assert metrics.log_loss(wrong, 1 - right) == 0


def test_few_bytes_are_needed_beyond_the_scores():
    import tracemalloc

    probabilities, targets = make_case(rows=20_000, labels=64, dtype=np.float32)
    metrics.average_precision(probabilities[:100], targets[:100])
    metrics.calibration_error(probabilities[:100], targets[:100])
    for metric in (metrics.average_precision, metrics.calibration_error):
        tracemalloc.start()
        metric(probabilities, targets)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 0.6 * probabilities.nbytes
