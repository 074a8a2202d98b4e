"""Any scikit-learn classifier becomes calibrated, in whatever form it gives probabilities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import credibly as cr
from credibly import CalibratedMultiLabel, InputError

FOREST = RandomForestClassifier(15, max_depth=4, random_state=0)
ESTIMATORS = {
    "none": None,
    "forest": FOREST,
    "one target": GaussianNB(),
    "one-vs-rest": OneVsRestClassifier(GaussianNB()),
    "chain": ClassifierChain(GaussianNB()),
    "outputs": MultiOutputClassifier(GaussianNB()),
    "pipeline": make_pipeline(StandardScaler(), FOREST),
    "pipeline of one target": make_pipeline(StandardScaler(), GaussianNB()),
}
each = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=list(ESTIMATORS))


@pytest.fixture(scope="module")
def many():
    """Correlated features, so that naive Bayes is far too sure; rows without labels."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(900, 4))
    truth = 1 / (1 + np.exp(-(X @ generator.normal(size=(4, 4)) - 1)))
    Y = (generator.random((900, 4)) < truth).astype(int)
    return np.hstack([X, X, X]), Y


def nll(probabilities, targets):
    return float(cr.metrics.log_loss(probabilities, targets))


def uncalibrated(estimator, X, Y, rows):
    fitted = CalibratedMultiLabel(estimator, method="none", cv=2).fit(X, Y)
    return fitted.predict_proba(rows)


def test_scikit_learn_s_own_checks_pass():
    results = check_estimator(CalibratedMultiLabel(), on_fail=None, on_skip=None)
    assert len(results) > 50
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}


@each
def test_every_kind_of_estimator_gets_one_calibrated_column_per_label(estimator, many):
    X, Y = many
    fitted = CalibratedMultiLabel(estimator, cv=3, method="affine").fit(X[:600], Y[:600])
    estimates = fitted.predict_proba(X[600:])
    assert estimates.shape == (300, 4)
    plain = uncalibrated(estimator, X[:600], Y[:600], X[600:])
    assert nll(estimates, Y[600:]) < nll(plain, Y[600:]) + 0.01
    rates = np.broadcast_to(Y[:600].mean(0), estimates.shape)
    assert nll(estimates, Y[600:]) < nll(rates, Y[600:])
    np.testing.assert_array_equal(fitted.predict(X[600:]), (estimates > 0.5).astype(int))


def test_overconfident_probabilities_are_mended(many):
    X, Y = many
    estimates = CalibratedMultiLabel(GaussianNB()).fit(X[:600], Y[:600]).predict_proba(X[600:])
    plain = uncalibrated(GaussianNB(), X[:600], Y[:600], X[600:])
    assert nll(estimates, Y[600:]) < 0.85 * nll(plain, Y[600:])


@pytest.mark.parametrize("inner", [LogisticRegression(), FOREST], ids=["logistic", "forest"])
def test_balanced_class_weights_are_undone(inner, many):
    X, Y = many
    balanced = clone(inner).set_params(class_weight="balanced")
    estimates = CalibratedMultiLabel(balanced).fit(X[:600], Y[:600]).predict_proba(X[600:])
    fair = CalibratedMultiLabel(inner).fit(X[:600], Y[:600]).predict_proba(X[600:])
    plain = uncalibrated(balanced, X[:600], Y[:600], X[600:])
    assert nll(estimates, Y[600:]) < nll(plain, Y[600:])
    assert nll(estimates, Y[600:]) < nll(fair, Y[600:]) + 0.02
    assert abs(estimates.mean() - Y[600:].mean()) < 0.03


def test_a_frozen_estimator_is_calibrated_and_not_fitted_again(many):
    X, Y = many
    forest = clone(FOREST).fit(X[:400], Y[:400])
    truth = Y[400:700].astype(float)
    truth[::3, 1] = np.nan  # unknown labels are fine here
    fitted = CalibratedMultiLabel(FrozenEstimator(forest)).fit(X[400:700], truth)
    assert fitted.estimator_.estimator is forest
    assert fitted.predict_proba(X[700:]).shape == (200, 4)
    with pytest.raises(InputError, match="FrozenEstimator"):
        CalibratedMultiLabel(FOREST).fit(X[400:700], truth)


def test_a_label_that_was_never_present_has_probability_near_zero(many):
    X, Y = many
    Y = Y.copy()
    Y[:, 2] = 0
    estimates = CalibratedMultiLabel(FOREST, cv=3).fit(X, Y).predict_proba(X)
    assert estimates[:, 2].max() < 0.05


def test_label_names_come_from_data_frames(many):
    X, Y = many
    names = ["dog", "dining table", "cat", "fork"]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(12)], index=np.arange(900) + 1000)
    fitted = CalibratedMultiLabel(FOREST, cv=2).fit(frame, pd.DataFrame(Y, columns=names))
    assert list(fitted.classes_) == names
    assert list(fitted.feature_names_in_) == list(frame.columns)
    predictions = fitted.to_predictions(frame[:50], Y[:50])
    assert predictions.labels == names
    assert predictions.ids[0] == "1000"
    np.testing.assert_array_equal(predictions.targets, Y[:50])


def test_sparse_targets_and_features_are_taken(many):
    X, Y = many
    fitted = CalibratedMultiLabel(LogisticRegression(), cv=2, method="affine")
    dense = fitted.fit(X, Y).predict_proba(X[:5])
    fitted.fit(sparse.csr_matrix(X), sparse.csr_matrix(Y))
    np.testing.assert_allclose(fitted.predict_proba(sparse.csr_matrix(X[:5])), dense, atol=1e-3)


def test_decision_values_serve_where_there_are_no_probabilities(many):
    X, Y = many
    inner = OneVsRestClassifier(RidgeClassifier())
    fitted = CalibratedMultiLabel(inner, response="decision_function", cv=3).fit(X[:600], Y[:600])
    estimates = fitted.predict_proba(X[600:])
    peer = CalibratedMultiLabel(LogisticRegression(), cv=3).fit(X[:600], Y[:600])
    assert nll(estimates, Y[600:]) < nll(peer.predict_proba(X[600:]), Y[600:]) + 0.02


def test_a_row_of_weight_two_counts_as_two_rows(many):
    X, Y = many[0][:200], many[1][:200]
    repeated = np.concatenate([np.arange(200), np.arange(50)])
    weights = np.where(np.arange(200) < 50, 2.0, 1.0)
    halves = [(np.arange(0, 200, 2), np.arange(1, 200, 2))]
    halves += [(test, train) for train, test in halves]
    both = [tuple(np.flatnonzero(np.isin(repeated, part)) for part in fold) for fold in halves]
    inner = LogisticRegression(tol=1e-8, max_iter=1000)
    one = CalibratedMultiLabel(inner, cv=halves, method="affine").fit(X, Y, sample_weight=weights)
    two = CalibratedMultiLabel(inner, cv=both, method="affine").fit(X[repeated], Y[repeated])
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-4)


def test_weights_reach_a_pipeline_by_metadata_routing(many):
    X, Y = many[0][:300], many[1][:300]
    weights = np.where(np.arange(300) < 100, 3.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        step = clone(FOREST).set_fit_request(sample_weight=True)
        routed = CalibratedMultiLabel(make_pipeline(step), cv=2, method="affine")
        routed.set_fit_request(sample_weight=True)
        estimates = routed.fit(X, Y, sample_weight=weights).predict_proba(X)
    direct = CalibratedMultiLabel(FOREST, cv=2, method="affine").fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(estimates, direct.predict_proba(X))


def test_sets_keep_their_average_size(many):
    X, Y = many
    fitted = CalibratedMultiLabel(FOREST, cv=3).fit(X[:600], Y[:600])
    assert fitted.predict_sets(X[600:], 1.5).sum(1).mean() == pytest.approx(1.5, abs=0.2)


def test_other_labels_are_refused(many):
    X, Y = many
    forest = clone(FOREST).fit(X, Y[:, :3])
    with pytest.raises(InputError, match="one column per label, 4; got 3"):
        CalibratedMultiLabel(FrozenEstimator(forest)).fit(X, Y)


# Scorers -------------------------------------------------------------------------------------

NAMES = ["nll", "brier", "ace", "mce", "ece", "map", "map_rows"]


@pytest.mark.parametrize("name", NAMES)
def test_a_scorer_gives_the_metric_with_its_sign(name, many):
    X, Y = many
    forest = clone(FOREST).fit(X[:600], Y[:600])
    estimates = np.stack([p[:, 1] for p in forest.predict_proba(X[600:])], axis=1)
    numbers = cr.metrics.scorers.measure(estimates, estimates, Y[600:])
    sign = 1 if name.startswith("map") else -1
    score = cr.metrics.scorer(name)(forest, X[600:], Y[600:])
    assert score == pytest.approx(sign * numbers[name])
    peer = CalibratedMultiLabel(FOREST, cv=2, method="none").fit(X[:600], Y[:600])
    assert cr.metrics.scorer(name)(peer, X[600:], Y[600:]) == pytest.approx(score)


@pytest.mark.parametrize("name", ["nll", "brier"])
def test_weights_of_a_scorer_count_rows(name, many):
    X, Y = many
    model = CalibratedMultiLabel(LogisticRegression(), cv=2, method="affine").fit(X, Y)
    score, soft = cr.metrics.scorer(name), np.clip(Y * 0.7 + 0.1, 0, 1)
    assert score(model, X, soft, np.ones(900)) == pytest.approx(score(model, X, soft))
    repeated = np.repeat(np.arange(100), 1 + np.arange(100) % 3)
    weighted = score(model, X[:100], Y[:100], 1 + np.arange(100) % 3)
    assert weighted == pytest.approx(score(model, X[repeated], Y[repeated]))
    with pytest.raises(InputError, match="nll, brier"):
        cr.metrics.scorer("map")(model, X, Y, np.ones(900))


def test_scorers_work_in_cross_validation_with_routed_weights(many):
    X, Y = many[0][:200], many[1][:200]
    options = {"scoring": cr.metrics.scorer("nll"), "cv": cr.data.StratifiedFolds(3)}
    plain = cross_val_score(FOREST, X, Y, **options)
    assert plain.shape == (3,)
    assert (plain < 0).all()
    with sklearn.config_context(enable_metadata_routing=True):
        options["scoring"] = cr.metrics.scorer("nll").set_score_request(sample_weight=True)
        model = clone(FOREST).set_fit_request(sample_weight=False)
        weights = np.ones(200)
        routed = cross_val_score(model, X, Y, params={"sample_weight": weights}, **options)
    np.testing.assert_allclose(routed, plain)


def test_an_unknown_score_names_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'brier'"):
        cr.metrics.scorer("brierr")


# Folds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folds", [2, 5])
def test_folds_are_disjoint_cover_all_rows_and_share_every_label(folds):
    generator = np.random.default_rng(1)
    Y = (generator.random((500, 8)) < np.array([0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.0])).astype(
        int
    )
    tests = [test for _, test in cr.data.StratifiedFolds(folds).split(Y, Y)]
    np.testing.assert_array_equal(np.sort(np.concatenate(tests)), np.arange(500))
    counts = np.array([Y[test].sum(0) for test in tests])
    sizes = np.array([len(test) for test in tests])
    assert np.ptp(sizes) <= 2 + folds
    ours = np.abs(counts - counts.mean(0)).max()
    plain = [Y[test].sum(0) for _, test in KFold(folds, shuffle=True, random_state=0).split(Y)]
    assert ours < np.abs(np.array(plain) - counts.mean(0)).max()
    assert (np.ptp(counts, axis=0)[4:] <= 2).all()  # the rare ones


def test_folds_of_single_labels_are_those_of_a_stratified_split():
    y = np.repeat(["a", "b", "c"], [50, 30, 20])
    for train, test in cr.data.StratifiedFolds(5).split(y, y):
        assert np.unique(y[test], return_counts=True)[1].tolist() == [10, 6, 4]
        assert len(train) + len(test) == 100


def test_folds_ignore_unknown_labels_and_repeat_with_their_seed():
    Y = np.where(np.arange(60).reshape(30, 2) % 7 == 0, np.nan, np.arange(60).reshape(30, 2) % 2)
    splitter = cr.data.StratifiedFolds(3, random_state=4)
    one, two = ([test.tolist() for _, test in splitter.split(Y, Y)] for _ in range(2))
    assert one == two
    with pytest.raises(InputError, match="at most the number of rows, 2"):
        next(splitter.split(Y[:2], Y[:2]))


@pytest.mark.parametrize("inner", [LinearSVC(), LogisticRegression()], ids=["svc", "logistic"])
def test_labels_that_hardly_vary_get_their_rate(many, inner):
    X, Y = many[0][:300], many[1][:300].copy()
    Y[:, 1], Y[:, 2], Y[:, 3] = 0, np.arange(300) == 7, 1
    response = "decision_function" if isinstance(inner, LinearSVC) else "predict_proba"
    fitted = CalibratedMultiLabel(inner, response=response, cv=3).fit(X, Y)
    estimates = fitted.predict_proba(X)
    assert estimates[:, 1:3].max() < 0.1
    assert estimates[:, 3].min() > 0.9
    assert nll(estimates[:, :1], Y[:, :1]) < nll(np.full((300, 1), Y[:, 0].mean()), Y[:, :1])


def test_a_data_frame_of_one_column_is_one_label(many):
    X, Y = many[0][:300], pd.DataFrame({"fork": many[1][:300, 0]})
    for estimator in (CalibratedMultiLabel(cv=3), cr.CredibleClassifier(model="linear")):
        fitted = estimator.fit(X, Y)
        assert list(fitted.classes_) == ["fork"]
        assert getattr(fitted, "run_", None) is None or fitted.run_.labels == ["fork"]
        assert fitted.predict_proba(X).shape == fitted.predict(X).shape == (300, 1)
        assert nll(fitted.predict_proba(X), Y.to_numpy()) < 0.6
