"""The peers of the study of the default are scikit-learn's."""

import numpy as np
import pytest
from benchmarks.studies import default_peers as peers
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def rows_of(number, width, *, labels=3, seed=0):
    """Rows whose labels follow their features, half of them for testing."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(2 * number, width)).astype(np.float32)
    weights = 2 * random.normal(size=(width, labels)) / np.sqrt(width)
    targets = (features @ weights > random.logistic(size=(2 * number, labels))).astype(np.float32)
    return features[:number], targets[:number], features[number:], targets[number:]


def chosen(model, seed):
    folds = StratifiedKFold(peers.FOLDS, shuffle=True, random_state=seed)
    return CalibratedClassifierCV(model, cv=folds, ensemble=False)


@pytest.mark.parametrize("seed", [0, 1])
def test_calibrated_boosting_is_that_of_scikit_learn(seed):
    rows = rows_of(200, 5, seed=seed)
    plain, calibrated = peers.boosting(rows, [seed])
    for label in range(3):
        model = HistGradientBoostingClassifier(random_state=seed)
        truth = rows[1][:, label] > 0.5
        expected = model.fit(rows[0], truth).predict_proba(rows[2])[:, 1]
        np.testing.assert_array_equal(plain[:, label], expected)
        expected = chosen(model, seed).fit(rows[0], truth).predict_proba(rows[2])[:, 1]
        np.testing.assert_allclose(calibrated[:, label], expected, atol=1e-4)


def test_a_regression_is_calibrated_with_the_c_it_chose():
    rows = rows_of(200, 5)
    plain, calibrated = peers.logistic(rows, [0])
    for label in range(3):
        truth = rows[1][:, label] > 0.5
        tried = [
            make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=300))
            for c in np.logspace(-4, 1, 6)
        ]
        same = [
            np.allclose(model.fit(rows[0], truth).predict_proba(rows[2])[:, 1], plain[:, label])
            for model in tried
        ]
        assert sum(same) == 1
        model = chosen(tried[same.index(True)], 0).fit(rows[0], truth)
        expected = model.predict_proba(rows[2])[:, 1]
        np.testing.assert_allclose(calibrated[:, label], expected, atol=1e-4)


def test_with_many_rows_one_fold_gives_the_scores(monkeypatch):
    rows = rows_of(300, 4, labels=1)
    monkeypatch.setattr(peers, "MANY_ROWS", 300)
    _, one = peers.boosting(rows, [0])
    monkeypatch.setattr(peers, "MANY_ROWS", 301)
    _, five = peers.boosting(rows, [0])
    assert 1e-4 < np.abs(one - five).max() < 0.2


def test_a_forest_with_a_label_that_never_varies():
    features, targets, test, truth = rows_of(150, 4)
    for place, value in ((0, 0.0), (2, 1.0)):
        given = np.insert(targets, place, value, axis=1)
        plain, calibrated = peers.forest((features, given, test, truth), [3])
        for found in (plain, calibrated):
            assert found[:, place] == pytest.approx(value, abs=1 / 599)
        model = RandomForestClassifier(300, random_state=3).fit(features, targets > 0.5)
        expected = np.stack([vote[:, 1] for vote in model.predict_proba(test)], axis=1)
        varied = np.delete(plain, place, axis=1)
        np.testing.assert_allclose(varied, np.clip(expected, 1 / 600, 1 - 1 / 600))
        assert np.abs(calibrated - plain).max() > 0.01


def test_a_forest_of_rows_with_one_label_is_one_of_classes():
    features, scores, test, _ = rows_of(150, 4)
    kinds = scores.argmax(axis=1) + (features[:, 0] > 0.5)
    targets = np.eye(5, dtype=np.float32)[kinds]  # class 4 has no row
    plain, calibrated = peers.forest((features, targets, test, test), [2])
    model = RandomForestClassifier(300, random_state=2).fit(features, kinds)
    expected = np.pad(model.predict_proba(test), ((0, 0), (0, 5 - len(model.classes_))))
    np.testing.assert_allclose(plain, np.clip(expected, 1 / 600, 1 - 1 / 600))
    assert np.abs(calibrated - plain).max() > 0.01


@pytest.mark.parametrize("peer", [peers.boosting, peers.logistic])
def test_models_are_trained_once_for_the_calibration_of_all_seeds(peer):
    rows = rows_of(150, 4, labels=2)
    plain, *several = peer(rows, [0, 3])
    assert len(several) == 2
    np.testing.assert_array_equal(several[0], list(peer(rows, [0]))[1])
    assert np.abs(several[0] - several[1]).max() > 1e-4
    if peer is peers.boosting:  # whose models do not depend on the seed
        np.testing.assert_array_equal(plain, next(peer(rows, [3])))
        np.testing.assert_array_equal(several[1], list(peer(rows, [3]))[1])


def test_rare_and_unknown_labels_keep_what_is_known():
    features, targets, test, truth = rows_of(120, 3)
    targets[:, 0] = 0
    targets[:, 1] = np.arange(120) < 3
    targets[60:, 2] = -1
    plain, calibrated = peers.boosting((features, targets, test, truth), [0])
    assert plain[:, 0] == pytest.approx(0.5 / 121)
    np.testing.assert_array_equal(calibrated[:, :2], plain[:, :2])
    half = peers.boosting((features[:60], targets[:60], test, truth), [0])
    for found, expected in zip((plain, calibrated), half, strict=True):
        np.testing.assert_array_equal(found[:, 2], expected[:, 2])
