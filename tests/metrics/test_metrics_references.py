"""Every metric equals another implementation where one exists, else the plainest one."""

from __future__ import annotations

import metric_cases as plain
import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from metric_cases import CASES, make_case

from credibly import metrics
from credibly.targets import Targets

each_case = pytest.mark.parametrize(("probabilities", "targets"), CASES.values(), ids=CASES.keys())
KNOWN = [(name, *CASES[name]) for name in ("plain", "ties", "one label", "many labels")]
each_known = pytest.mark.parametrize(
    ("probabilities", "targets"), [case[1:] for case in KNOWN], ids=[case[0] for case in KNOWN]
)
EXACT = {"rtol": 0, "atol": 1e-12}


def with_both(targets):
    """Rows that have a present and an absent label."""
    return (targets == 1).any(1) & (targets == 0).any(1)


@each_case
def test_label_average_precision_is_scikit_learns(probabilities, targets):
    ours = metrics.average_precision(probabilities, targets)
    for t in range(targets.shape[1]):
        known = targets[:, t] >= 0
        if (targets[known, t] == 1).any():
            theirs = sk.average_precision_score(targets[known, t], probabilities[known, t])
            np.testing.assert_allclose(ours[t], theirs, **EXACT)
        else:
            assert np.isnan(ours[t])


@each_case
def test_auroc_and_curves_are_scikit_learns(probabilities, targets):
    ours = metrics.auroc(probabilities, targets)
    curves = metrics.curves(probabilities, targets)
    for t, curve in enumerate(curves):
        known = targets[:, t] >= 0
        y, p = targets[known, t], probabilities[known, t]
        if not (y == 1).any() or not (y == 0).any():
            assert np.isnan(ours[t])
            assert np.isnan(curve.auroc.estimate)
            continue
        np.testing.assert_allclose(ours[t], sk.roc_auc_score(y, p), **EXACT)
        assert curve.auroc.estimate == pytest.approx(ours[t], abs=1e-12)
        theirs = sk.average_precision_score(y, p)
        assert curve.average_precision.estimate == pytest.approx(theirs, abs=1e-12)
        precision, recall, thresholds = sk.precision_recall_curve(y, p)
        for found, expected in [
            (curve.thresholds, thresholds),
            (curve.precision, precision[:-1]),
            (curve.recall, recall[:-1]),
        ]:
            np.testing.assert_allclose(found[::-1], expected, **EXACT)
        false, _, _ = sk.roc_curve(y, p, drop_intermediate=False)
        np.testing.assert_allclose(curve.false_positive_rate, false[1:], **EXACT)
        low, high = metrics.proportion_interval((y[p >= thresholds[0]]).sum(), len(y))
        assert curve.precision_band[0][-1] == pytest.approx(low)
        assert curve.precision_band[1][-1] == pytest.approx(high)


def test_auroc_of_soft_targets_is_that_of_weighted_rows():
    rng = np.random.default_rng(0)
    scores, votes = np.round(rng.normal(size=80), 1), rng.random(80)
    truth, weights = np.repeat([1, 0], 80), np.concatenate([votes, 1 - votes])
    theirs = sk.roc_auc_score(truth, np.tile(scores, 2), sample_weight=weights)
    assert metrics.auroc(scores, votes) == pytest.approx(theirs, abs=1e-12)
    (curve,) = metrics.curves(scores, votes)
    assert curve.auroc.estimate == pytest.approx(theirs, abs=1e-12)


def test_the_interval_of_auroc_has_the_variance_of_delong():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 150)
    p = np.round(rng.normal(y, 1.0), 1)
    order = np.sign(p[y == 1][:, None] - p[y == 0]) / 2 + 0.5
    area = order.mean()
    # Without the factor n / (n − 1) of each side: the influence of rows, not an unbiased variance.
    variance = order.mean(1).var() / (y == 1).sum() + order.mean(0).var() / (y == 0).sum()
    trials = area * (1 - area) / variance
    low, high = metrics.proportion_interval(area * trials, trials, 0.9)
    (curve,) = metrics.curves(p, y, level=0.9)
    assert curve.auroc == pytest.approx((area, low, high), abs=1e-12)
    (perfect,) = metrics.curves(y + 0.5, y)
    assert perfect.auroc.estimate == perfect.average_precision.estimate == 1
    assert perfect.auroc.low == pytest.approx(
        metrics.proportion_interval(min(y.sum(), 150 - y.sum()), min(y.sum(), 150 - y.sum()))[0]
    )


@pytest.mark.parametrize("number", ["auroc", "average_precision"])
def test_intervals_of_curves_hold_what_was_resampled(number):
    rng = np.random.default_rng(1)
    y = (rng.random(400) < 0.3).astype(int)
    p = rng.normal(y, 1.0)
    (curve,) = metrics.curves(p, y)
    ours = getattr(curve, number)
    theirs = metrics.interval(getattr(metrics, number), p, y, resamples=400)
    assert ours.low == pytest.approx(theirs.low, abs=0.015)
    assert ours.high == pytest.approx(theirs.high, abs=0.015)


@pytest.mark.parametrize("name", ["plain", "ties"])
def test_label_metrics_are_torchmetrics(name):
    from torchmetrics.functional import classification as theirs

    probabilities, targets = (torch.from_numpy(array[:, 1:]) for array in CASES[name])
    labels = probabilities.shape[1]
    arguments = probabilities, targets.long(), labels
    sets = probabilities > 0.5
    # torchmetrics divides in float32 whatever comes in.
    for ours, other in [
        (metrics.average_precision(probabilities, targets), theirs.multilabel_average_precision),
        (metrics.auroc(probabilities, targets), theirs.multilabel_auroc),
        (metrics.jaccard(sets, targets, None), theirs.multilabel_jaccard_index),
        (metrics.f1(sets, targets, None), theirs.multilabel_f1_score),
    ]:
        expected = other(*arguments, average=None).double()
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
    pooled = theirs.multilabel_matthews_corrcoef(*arguments)
    assert metrics.mcc(sets, targets).item() == pytest.approx(pooled.item(), abs=1e-6)


@each_case
def test_average_precision_is_its_definition(probabilities, targets):
    by_label = [
        plain.average_precision(*each) for each in zip(probabilities.T, targets.T, strict=True)
    ]
    by_row = [plain.average_precision(*each) for each in zip(probabilities, targets, strict=True)]
    np.testing.assert_allclose(metrics.average_precision(probabilities, targets), by_label, **EXACT)
    rows = metrics.sample_average_precision(probabilities, targets)
    np.testing.assert_allclose(rows, by_row, **EXACT)
    for over, each in [("labels", by_label), ("samples", by_row)]:
        mean = metrics.mean_average_precision(probabilities, targets, over=over)
        assert mean == pytest.approx(np.nanmean(each), abs=1e-12)


@pytest.mark.parametrize("name", ["plain", "ties", "many labels"])
def test_sample_average_precision_is_scikit_learns(name):
    probabilities, targets = CASES[name]
    rows = (targets == 1).any(1)
    theirs = sk.label_ranking_average_precision_score(targets[rows], probabilities[rows])
    ours = metrics.mean_average_precision(probabilities, targets, over="samples")
    assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("labels", [200, 600, 1200])  # counted, both, sorted
@pytest.mark.parametrize("seed", range(3))
def test_rows_with_many_positives_have_the_same_average_precision(seed, labels):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=(6, labels)), 1)
    targets = rng.integers(-1, 2, (6, labels))
    by_row = [plain.average_precision(*each) for each in zip(scores, targets, strict=True)]
    np.testing.assert_allclose(metrics.sample_average_precision(scores, targets), by_row, **EXACT)


@pytest.mark.parametrize("name", ["plain", "ties", "many labels"])
def test_ranking_errors_are_scikit_learns(name):
    probabilities, targets = CASES[name]
    rows = with_both(targets)
    p, y = probabilities[rows], targets[rows]
    assert metrics.ranking_loss(p, y) == pytest.approx(sk.label_ranking_loss(y, p), abs=1e-12)
    assert metrics.coverage_error(p, y) == pytest.approx(sk.coverage_error(y, p), abs=1e-12)
    top = p == p.max(1, keepdims=True)
    absent = 1 - (top & (y == 1)).sum(1) / top.sum(1)
    assert metrics.one_error(p, y) == pytest.approx(absent.mean(), abs=1e-12)


@each_case
@pytest.mark.parametrize("kind", ["ece", "ace", "mce"])
@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("min_count", [0, 8])
def test_calibration_error_is_its_definition(probabilities, targets, kind, bins, min_count):
    if probabilities.dtype == np.float32:
        probabilities = probabilities.astype(np.float64)
    ours = metrics.calibration_error(probabilities, targets, kind, bins, min_count)
    theirs = plain.calibration_error(probabilities, targets, kind, bins, min_count)
    assert ours == pytest.approx(theirs, abs=1e-12, nan_ok=True)
    each = metrics.calibration_error(probabilities, targets, kind, bins, min_count, average=None)
    by_label = [
        plain.calibration_error(p, y, kind, bins, min_count)
        for p, y in zip(probabilities.T, targets.T, strict=True)
    ]
    np.testing.assert_allclose(each, by_label, **EXACT)


def on_edges(bins):
    """All values k/bins but the last, often and among others."""
    rng = np.random.default_rng(bins)
    values = np.concatenate([np.tile(np.arange(bins) / bins, 4), rng.random(50)])
    return values, (rng.random(values.shape) < values).astype(np.int8)


@pytest.mark.parametrize("bins", [8, 16])
@pytest.mark.parametrize(("kind", "norm"), [("ece", "l1"), ("mce", "max")])
def test_calibration_error_is_torchmetrics_on_edges_too(bins, kind, norm):
    from torchmetrics.functional.classification import binary_calibration_error

    values, targets = on_edges(bins)
    theirs = binary_calibration_error(
        torch.from_numpy(values), torch.from_numpy(targets), n_bins=bins, norm=norm
    )
    ours = metrics.calibration_error(values, targets, kind, bins)
    assert ours == pytest.approx(theirs.item(), abs=1e-12)


@pytest.mark.parametrize("bins", [8, 15])
@pytest.mark.parametrize("kind", ["ece", "ace", "mce"])
def test_calibration_error_is_netcals_on_edges_too(bins, kind):
    import netcal.metrics as netcal

    values, targets = on_edges(bins)
    values = np.append(values, [1.0, 1.0])  # netcal too has 1 in the last bin
    targets = np.append(targets, [1, 0])
    measure = getattr(netcal, kind.upper())(bins=bins, detection=True)
    theirs = measure.measure(values[:, None], targets)
    ours = metrics.calibration_error(values, targets, kind, bins)
    assert ours == pytest.approx(float(theirs), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bins", [5, 10, 15, 20, 33, 100])
def test_every_edge_opens_its_bin(bins, dtype):
    edges = (np.arange(bins + 1) / bins).astype(dtype)
    below = np.nextafter(edges[1:-1], dtype(0))
    for values, first in [(edges[:-1], 0), (below, 0), (edges[-1:], bins - 1)]:
        counts = metrics.reliability(values, np.zeros(len(values)), bins).counts
        expected = np.zeros(bins, int)
        expected[first : first + len(values)] = 1
        np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_k_metrics_are_those_of_the_k_highest_labels(k):
    probabilities, targets = make_case(unknown=False, seed=8)
    order = np.argsort(-probabilities, axis=1)[:, :k]
    chosen = np.zeros(targets.shape, bool)
    np.put_along_axis(chosen, order, True, axis=1)
    ours = metrics.top_k_calibration_error(probabilities, targets, k)
    theirs = plain.calibration_error(probabilities[chosen], targets[chosen], "ece", 15)
    assert ours == pytest.approx(theirs, abs=1e-12)
    theirs = sk.f1_score(targets, chosen, average="macro", zero_division=0)
    assert metrics.top_k_f1(probabilities, targets, k) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("k", [1, 4, 16, 17, 30])
@pytest.mark.parametrize("unknown", [0.0, 0.3, 0.95])
def test_top_labels_are_the_first_of_a_stable_sort_of_known_labels(k, unknown):
    rng = np.random.default_rng(k)
    values = np.round(rng.random((200, 30)), 1).astype(np.float32)
    truth = np.where(rng.random(values.shape) < unknown, -1, rng.integers(0, 2, values.shape))
    expected = np.zeros(values.shape, bool)
    for row, known in enumerate(truth >= 0):
        places = np.flatnonzero(known)
        expected[row, places[np.argsort(-values[row, places], kind="stable")][:k]] = True
    known = Targets(truth.astype(np.int8))
    found = metrics.top_k_f1(values, known, k, average=None)
    np.testing.assert_array_equal(found, metrics.f1(expected, known, average=None))


@each_known
def test_set_metrics_are_scikit_learns(probabilities, targets):
    sets = probabilities > 0.4
    for average in ["micro", "macro", "samples", None]:
        if average == "samples" and targets.shape[1] == 1:
            continue
        kind = {None: None, "macro": "mean_of_f1s"}.get(average, average)
        for ours, theirs in [
            (metrics.precision(sets, targets, average), sk.precision_score),
            (metrics.recall(sets, targets, average), sk.recall_score),
            (metrics.f1(sets, targets, kind), sk.f1_score),
            (metrics.jaccard(sets, targets, average), sk.jaccard_score),
        ]:
            if targets.shape[1] == 1:
                expected = theirs(targets[:, 0], sets[:, 0], zero_division=0)
            else:
                expected = theirs(targets, sets, average=average, zero_division=0)
            np.testing.assert_allclose(ours, expected, **EXACT)
    p = metrics.precision(sets, targets, "macro")
    r = metrics.recall(sets, targets, "macro")
    both = 2 * p * r / (p + r) if p + r else 0.0
    assert metrics.f1(sets, targets, "f1_of_means") == pytest.approx(both, abs=1e-12)
    assert metrics.hamming(sets, targets) == pytest.approx(sk.hamming_loss(targets, sets))
    assert metrics.exact_match(sets, targets) == pytest.approx(sk.accuracy_score(targets, sets))
    by_label = [sk.matthews_corrcoef(*each) for each in zip(targets.T, sets.T, strict=True)]
    np.testing.assert_allclose(metrics.mcc(sets, targets, None), by_label, **EXACT)
    assert metrics.mcc(sets, targets, "macro") == pytest.approx(np.mean(by_label), abs=1e-12)
    pooled = sk.matthews_corrcoef(targets.ravel(), sets.ravel())
    assert metrics.mcc(sets, targets) == pytest.approx(pooled, abs=1e-12)
    if targets.shape[1] > 1:
        expected = sk.multilabel_confusion_matrix(targets, sets)
        np.testing.assert_array_equal(metrics.confusion(sets, targets), expected)


@pytest.mark.parametrize("seed", range(3))
def test_coverage_and_size_of_sets_are_their_definitions(seed):
    rng = np.random.default_rng(seed)
    sets = rng.random((80, 6)) < 0.4
    classes = rng.integers(0, 5, 80)  # the last label never occurs
    inside = sets[np.arange(80), classes]
    assert metrics.set_coverage(sets, classes) == inside.mean()
    by_label = [inside[classes == t].mean() for t in range(5)]
    np.testing.assert_allclose(
        metrics.set_coverage(sets, classes, average=None), [*by_label, np.nan]
    )
    assert metrics.set_coverage(sets, classes, "macro") == pytest.approx(np.mean(by_label))
    counts = np.array([5, 20, 100, 101, 19, 0])
    groups = metrics.coverage_by_frequency(sets, classes, counts)
    assert groups["few"] == pytest.approx((by_label[0] + by_label[4]) / 2)
    assert groups["medium"] == pytest.approx((by_label[1] + by_label[2]) / 2)
    assert groups["many"] == pytest.approx(by_label[3])
    assert metrics.set_size(sets) == pytest.approx(sets.sum() / 80)


@each_known
def test_proper_scores_are_scikit_learns(probabilities, targets):
    inside = np.clip(probabilities, 0.01, 0.99)
    theirs = sk.log_loss(targets.ravel(), inside.ravel(), labels=[0, 1])
    assert metrics.log_loss(inside, targets) == pytest.approx(theirs, abs=1e-12)
    theirs = sk.brier_score_loss(targets.ravel(), inside.ravel())
    assert metrics.brier(inside, targets) == pytest.approx(theirs, abs=1e-12)
    each = [sk.log_loss(y, p, labels=[0, 1]) for p, y in zip(inside.T, targets.T, strict=True)]
    np.testing.assert_allclose(metrics.log_loss(inside, targets, average=None), each, **EXACT)
    assert metrics.log_loss(inside, targets, "macro") == pytest.approx(np.mean(each), abs=1e-12)


def test_divergence_is_log_loss_beyond_the_entropy():
    rng = np.random.default_rng(0)
    truth, estimate = rng.random((50, 4)), rng.random((50, 4))
    beyond = metrics.log_loss(estimate, truth) - metrics.log_loss(truth, truth)
    assert metrics.kl_to_truth(estimate, truth) == pytest.approx(beyond, abs=1e-12)
    assert metrics.kl_to_truth(truth, truth) == 0


def test_divergence_of_exclusive_labels_is_scipys():
    from scipy.stats import entropy

    rng = np.random.default_rng(0)
    truth, estimate = rng.dirichlet(np.ones(5), 30), rng.dirichlet(np.ones(5), 30)
    theirs = entropy(truth, estimate, axis=1).mean()
    ours = metrics.kl_to_truth(estimate, truth, exclusive=True)
    assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_zero_label_numbers_are_their_definitions(ties):
    probabilities, targets = make_case(rows=200, unknown=False, ties=ties, seed=9)
    targets[:30] = 0
    result = metrics.zero_label(probabilities, targets)
    inside, confidence = targets.any(1), probabilities.max(1)
    assert (result.rows_in, result.rows_out) == (inside.sum(), (~inside).sum())
    assert result.auroc == pytest.approx(sk.roc_auc_score(inside, confidence), abs=1e-12)
    assert result.mean_confidence_out == pytest.approx(confidence[~inside].mean())
    assert result.mean_confidence_in == pytest.approx(confidence[inside].mean())
    if not ties:
        top = targets[np.arange(200), probabilities.argmax(1)]
        assert result.accuracy == pytest.approx(top[inside].mean())


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_bands_of_proportions_are_scipys(level):
    from scipy.stats import binomtest

    for trials in (1, 7, 400):
        for successes in {0, 1, trials // 3, trials}:
            expected = binomtest(successes, trials).proportion_ci(level, "wilson")
            ours = metrics.proportion_interval(successes, trials, level)
            np.testing.assert_allclose(ours, [expected.low, expected.high], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("per_label", [False, True])
def test_reliability_is_its_definition(per_label):
    probabilities, targets = CASES["unknown"]
    diagram = metrics.reliability(probabilities, targets, bins=6, per_label=per_label)
    columns = range(targets.shape[1]) if per_label else [slice(None)]
    for i, t in enumerate(columns):
        p, y = probabilities[:, t], targets[:, t]
        place = np.where(y >= 0, plain.bins_of(p, 6), -1)
        for k in range(6):
            at = (i, k) if per_label else k
            inside = place == k
            assert diagram.counts[at] == inside.sum()
            if inside.any():
                assert diagram.confidence[at] == pytest.approx(p[inside].mean(), abs=1e-12)
                assert diagram.frequency[at] == pytest.approx(y[inside].mean(), abs=1e-12)
                assert diagram.lower[at] <= diagram.frequency[at] <= diagram.upper[at]
            else:
                assert np.isnan(diagram.frequency[at])
                assert (diagram.lower[at], diagram.upper[at]) == (0, 1)


def test_soft_targets_are_the_frequency():
    rng = np.random.default_rng(0)
    truth = rng.random((200, 3))
    votes = rng.binomial(50, truth) / 50
    diagram = metrics.reliability(truth, votes, bins=5)
    place = plain.bins_of(truth, 5)
    expected = [votes[place == k].mean() for k in range(5)]
    np.testing.assert_allclose(diagram.frequency, expected, **EXACT)
    assert metrics.calibration_error(truth, votes) < 0.02


def tenfold(values, soft):
    """Each row ten times; a soft target of k/10 is present in k of them."""
    present = np.arange(10)[None, :, None] < np.round(10 * soft)[:, None]
    hard = np.where(soft[:, None] < 0, -1, present).reshape(-1, soft.shape[1])
    return np.repeat(values, 10, axis=0), hard.astype(np.int8)


SOFT_CASES = {
    name: (
        probabilities,
        np.where(
            targets < 0,
            -1.0,
            np.random.default_rng(7).integers(0, 11, targets.shape) / 10 * (targets > -2),
        ),
    )
    for name, (probabilities, targets) in plain.CASES.items()
}
each_soft_case = pytest.mark.parametrize(
    ("probabilities", "soft"), SOFT_CASES.values(), ids=SOFT_CASES.keys()
)


@each_soft_case
def test_soft_average_precision_is_that_of_repeated_rows(probabilities, soft):
    expected = metrics.average_precision(*tenfold(probabilities, soft))
    np.testing.assert_allclose(metrics.average_precision(probabilities, soft), expected, **EXACT)
    for t in range(soft.shape[1]):
        known = soft[:, t] >= 0
        s, y = probabilities[known, t], soft[known, t]
        if y.sum():
            twice = sk.average_precision_score(
                np.repeat([1, 0], len(y)), np.tile(s, 2), sample_weight=np.r_[y, 1 - y]
            )
            np.testing.assert_allclose(twice, expected[t], **EXACT)
    rows = metrics.sample_average_precision(probabilities, soft)
    columns = metrics.average_precision(probabilities.T, soft.T)
    np.testing.assert_allclose(rows, columns, **EXACT)


@each_soft_case
def test_soft_targets_measure_as_repeated_rows(probabilities, soft):
    repeated = tenfold(probabilities, soft)
    sets = probabilities > 0.4, repeated[0] > 0.4
    for metric in (metrics.log_loss, metrics.calibration_error):
        for average in ("pooled", "macro", None):
            mine, theirs = (
                metric(probabilities, soft, average=average),
                metric(*repeated, average=average),
            )
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    for metric in (
        metrics.precision,
        metrics.recall,
        metrics.f1,
        metrics.set_coverage,
        metrics.hamming,
    ):
        np.testing.assert_allclose(metric(sets[0], soft), metric(sets[1], repeated[1]), **EXACT)
    k = min(4, soft.shape[1])
    for metric in (metrics.top_k_f1, metrics.top_k_calibration_error):
        np.testing.assert_allclose(
            metric(probabilities, soft, k), metric(*repeated, k), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize(("probabilities", "targets"), plain.CASES.values(), ids=plain.CASES.keys())
def test_soft_average_precision_of_hard_targets_is_the_hard_one(probabilities, targets):
    # One soft entry in a label of its own makes every label take the soft path.
    extra = np.r_[0.5, np.zeros(len(targets) - 1)][:, None]
    soft = np.hstack([targets, extra])
    wide = np.hstack([probabilities, extra.astype(probabilities.dtype)])
    np.testing.assert_allclose(
        metrics.average_precision(wide, soft)[:-1],
        metrics.average_precision(probabilities, targets),
        **EXACT,
    )
    rows = metrics.sample_average_precision(probabilities, targets)
    soft[0, -1] = -1
    soft[:, -1] = -1
    half = np.vstack([soft, np.full(soft.shape[1], 0.5)])
    taller = np.vstack([wide, wide[:1]])
    np.testing.assert_allclose(metrics.sample_average_precision(taller, half)[:-1], rows, **EXACT)


def test_a_summary_of_soft_targets_has_every_number_but_those_of_whole_rows():
    probabilities, soft = SOFT_CASES["unknown"]
    sets = probabilities > 0.5
    numbers = metrics.summary(probabilities, soft, sets=sets, min_count=5)
    hard = metrics.summary(probabilities, np.round(soft), sets=sets, min_count=5)
    zero = {"IN accuracy", "OUT MMC", "zero-label AUROC"}
    assert set(numbers) == set(hard) - {"exact match"} - zero
    assert np.isfinite(list(numbers.values())).all()
    found = metrics.summary_intervals(probabilities, soft, min_count=5, resamples=20)
    assert found["mAP@y"].low <= found["mAP@y"].estimate <= found["mAP@y"].high


@pytest.mark.parametrize("min_count", [0, 5, 30])
@pytest.mark.parametrize(("probabilities", "targets"), plain.CASES.values(), ids=plain.CASES.keys())
def test_the_largest_gap_is_never_below_the_mean_gap(probabilities, targets, min_count):
    numbers = metrics.summary(probabilities, targets, min_count=min_count)
    if not np.isnan(numbers["MCE"]):
        assert numbers["ACE"] <= numbers["MCE"]
    if min_count == 0:
        assert numbers["ECE"] <= numbers["MCE"]
    for name, kind in (("ACE", "ace"), ("MCE", "mce"), ("ECE", "ece")):
        whole = metrics.calibration_error(probabilities, targets, kind, min_count=min_count)
        assert numbers[name] == pytest.approx(whole, nan_ok=True)


@pytest.mark.parametrize(("probabilities", "targets"), plain.CASES.values(), ids=plain.CASES.keys())
def test_ece_counts_every_bin_whatever_min_count(probabilities, targets):
    many = targets.size + 1  # more than any bin has
    numbers = metrics.summary(probabilities, targets, min_count=many)
    names = [name for name in ("ECE", "ECE-top-4") if name in numbers]
    assert np.isnan([numbers["ACE"], numbers["MCE"]]).all()
    usual = metrics.summary(probabilities, targets, min_count=0)
    assert [numbers[name] for name in names] == [usual[name] for name in names]
    spread = metrics.summary_intervals(probabilities, targets, min_count=many, resamples=20)
    for name in names:
        assert spread[name].estimate == pytest.approx(numbers[name])
        assert spread[name].low <= spread[name].high
    assert np.isnan([spread["ACE"].low, spread["MCE"].high]).all()


@pytest.mark.parametrize(("probabilities", "targets"), plain.CASES.values(), ids=plain.CASES.keys())
def test_top_4_numbers_of_a_summary_are_those_of_the_functions(probabilities, targets):
    numbers = metrics.summary(probabilities, targets, min_count=3)
    if targets.shape[1] <= 4:
        assert "F1-top-4" not in numbers
        return
    expected = metrics.top_k_calibration_error(probabilities, targets, 4)
    assert numbers["ECE-top-4"] == pytest.approx(expected)
    assert numbers["F1-top-4"] == pytest.approx(metrics.top_k_f1(probabilities, targets, 4))


@pytest.mark.parametrize("average", ["pooled", "macro"])
def test_the_noise_is_the_error_of_probabilities_that_are_right(average):
    rng = np.random.default_rng(0)
    errors, noises = [], []
    for seed in range(60):
        rates = rng.beta(0.5, 2, (100, 4))
        targets = (rng.random(rates.shape) < rates).astype(np.int8)
        targets[::9] = -1
        errors.append(metrics.calibration_error(rates, targets, average=average))
        noises.append(
            metrics.calibration_noise(rates, targets, average=average, repeats=5, seed=seed)
        )
    spread = np.std(errors) / np.sqrt(60)
    assert np.mean(noises) == pytest.approx(np.mean(errors), abs=4 * spread)
    assert np.mean(noises) > 5 * spread


def test_curves_of_soft_targets_reach_every_positive_at_the_average_precision():
    probabilities, targets = make_case(rows=500, labels=9, unknown=False)
    soft = np.where(targets == 1, 0.7, 0.1)
    expected = metrics.average_precision(probabilities, soft)
    for curve, precision in zip(metrics.curves(probabilities, soft), expected, strict=True):
        assert curve.recall[-1] == curve.false_positive_rate[-1] == 1
        assert curve.average_precision.estimate == pytest.approx(precision, rel=1e-12)
