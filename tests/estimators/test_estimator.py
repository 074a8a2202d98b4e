"""The estimator obeys scikit-learn's rules and its probabilities are calibrated."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, check_estimator_sparse_tag

import credibly as cr
from credibly import CredibleClassifier, InputError
from credibly.train import Network

MODELS = ("linear", "mlp", "forest", "boosting", "auto")

ESTIMATORS = {
    "linear": CredibleClassifier(model="linear", l2=1.0),
    "mlp": CredibleClassifier(model="mlp", hidden=16, epochs=10, learning_rate=1e-2),
}
each = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=list(ESTIMATORS))


@pytest.fixture(scope="module")
def many():
    X, Y = make_multilabel_classification(600, 12, n_classes=5, random_state=0)
    Y[:20] = 0
    Y[:, 4] = 0  # never present
    return X, Y


@pytest.mark.parametrize("model", ["linear", "mlp", "boosting"])  # others take a minute
def test_scikit_learn_s_own_checks_pass(model):
    estimator = ESTIMATORS.get(model) or CredibleClassifier(model=model)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(results) > 50
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    # One needs SCIPY_ARRAY_API set, one a decision_function: probabilities are the output here.
    assert skipped <= {
        "check_array_api_input",
        "check_classifiers_multilabel_output_format_decision_function",
    }


@pytest.mark.parametrize("model", ["linear", "forest", "boosting"])
def test_the_tag_says_whether_sparse_rows_are_taken(model):
    check_estimator_sparse_tag("classifier", CredibleClassifier(model=model))


@each
def test_probabilities_have_a_column_a_label_and_beat_the_base_rate(estimator, many):
    X, Y = many
    fitted = clone(estimator).fit(X[:400], Y[:400])
    estimates = fitted.predict_proba(X[400:])
    assert estimates.shape == (200, 5)
    rates = np.broadcast_to((Y[:400].mean(0) + 1e-3), estimates.shape)
    ours, base = (float(cr.metrics.log_loss(p, Y[400:])) for p in (estimates, rates))
    assert ours < base
    assert np.array_equal(fitted.predict(X[400:]), (estimates > 0.5).astype(Y.dtype))


def test_without_calibration_bce_is_logistic_regression():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 4))
    Y = (X @ generator.normal(size=(4, 3)) + generator.normal(size=(300, 3)) > 0).astype(int)
    X = (X - X.mean(0)) / X.std(0)
    clipped = X.clip(-3, 3)
    fitted = CredibleClassifier(model="linear", calibrate="none", l2=2.0).fit(X, Y)
    for label in range(3):
        peer = LogisticRegression(C=0.5, tol=1e-10).fit(clipped, Y[:, label])
        np.testing.assert_allclose(
            fitted.predict_proba(X)[:, label], peer.predict_proba(clipped)[:, 1], atol=1e-4
        )


def test_a_row_of_weight_two_counts_as_two_rows():
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(150, 4))
    odds = np.vstack([Z, Z]) @ generator.normal(size=(4, 3))
    X, Y = np.vstack([Z, Z]), (odds + generator.normal(size=odds.shape) > 0).astype(int)
    weights = np.repeat([1, 2], 150)
    # The second half once more leaves means and deviations of the features as they are.
    repeated = np.r_[:300, 150:300]
    for loss in ("bce", "asl"):
        model = CredibleClassifier(loss, model="linear", l2=20.0)
        weighted = clone(model).fit(X, Y, sample_weight=weights)
        twice, plain = clone(model).fit(X[repeated], Y[repeated]), clone(model).fit(X, Y)
        layers = [each.run_.model.head.weight.detach().numpy() for each in (weighted, twice, plain)]
        np.testing.assert_allclose(layers[0], layers[1], atol=2e-4)
        assert np.abs(layers[0] - layers[2]).max() > 1e-2


@pytest.mark.parametrize(
    "model", [*MODELS, Network(model="linear", epochs=20)], ids=[*MODELS, "by steps"]
)
def test_weights_make_up_for_rows_that_were_drawn_too_rarely(model):
    noise = np.random.default_rng(0)
    X = noise.normal(size=(1000, 3))
    Y = (X @ noise.normal(size=(3, 2)) + 2 * noise.normal(size=(1000, 2)) > 0).astype(int)
    drawn = np.flatnonzero((Y[:600, 0] == 0) | (np.arange(600) % 4 == 0))
    weights = np.where(Y[drawn, 0], 4.0, 1.0)
    options = {"budget": "3s"} if model == "auto" else {}
    if model == "mlp":
        options = {"epochs": 10, "learning_rate": 1e-2, "hidden": 16}

    def estimates(rows, weights=None):
        fitted = CredibleClassifier(model=model, **options)
        fitted.fit(X[rows], np.where(rows < 600, 0, 1)[:, None] ^ Y[rows], sample_weight=weights)
        return fitted.predict_proba(X[600:]), fitted.predict_sets(X[600:], average_size=1).mean()

    weighted, size = estimates(drawn, weights)
    plain, _ = estimates(drawn)
    rate = Y[600:, 0].mean()
    assert abs(weighted[:, 0].mean() - rate) < 0.07
    assert plain[:, 0].mean() < rate - 0.1
    assert size == pytest.approx(0.5, abs=0.12)
    # Rows of weight 0, which say the opposite, and a factor on all weights change no bit.
    with_others, _ = estimates(np.r_[drawn, 600:660], np.r_[4 * weights, np.zeros(60)])
    np.testing.assert_array_equal(with_others, weighted)


def test_what_weights_cannot_do_is_said(many):
    X, Y = many
    weights = np.arange(1, 601)
    for loss in ("quasibinary", "twl", "spa+twl"):
        with pytest.raises(
            InputError, match=r"`sample_weight`\) need a loss that treats rows separately"
        ):
            CredibleClassifier(loss, model="mlp").fit(X, Y, sample_weight=weights)
    with pytest.raises(ValueError, match="non-zero"):
        CredibleClassifier().fit(X, Y, sample_weight=0 * weights)
    with pytest.raises(InputError, match="got weights"):
        CredibleClassifier(model="linear").fit(X, Y, weights=weights)
    fitted = CredibleClassifier(model="linear", l2=1.0).fit(X, Y, sample_weight=weights)
    with pytest.raises(InputError, match="`guarantee` holds for rows of equal weight"):
        fitted.predict_sets(X, average_size=2, guarantee="expected")


def test_calibration_lowers_the_log_loss_of_a_loss_whose_scores_are_off(many):
    X, Y = many
    losses = {}
    for method in ("none", "affine"):
        fitted = CredibleClassifier("asl", l2=1.0, calibrate=method).fit(X[:400], Y[:400])
        losses[method] = float(cr.metrics.log_loss(fitted.predict_proba(X[400:]), Y[400:]))
    assert losses["affine"] < losses["none"]


def test_unknown_entries_take_no_part(many):
    X, Y = many
    hidden = Y.astype(float)
    hidden[100:300, 2] = -1
    kept = np.r_[0:100, 300:600]
    fitted = CredibleClassifier(model="linear", l2=1.0, calibrate="none").fit(X, hidden)
    assert np.isfinite(fitted.predict_proba(X)).all()
    scaled = ((X - X.mean(0)) / X.std(0)).clip(-3, 3)
    peer = LogisticRegression(C=1.0, tol=1e-10).fit(scaled[kept], Y[kept, 2])
    np.testing.assert_allclose(
        fitted.predict_proba(X)[:, 2], peer.predict_proba(scaled)[:, 1], atol=1e-3
    )


def test_a_label_without_known_rows_is_harmless(many):
    X, Y = many
    hidden = Y.astype(float)
    hidden[:, 3] = -1
    assert np.isfinite(
        CredibleClassifier(model="linear", l2=1.0).fit(X, hidden).predict_proba(X)
    ).all()


def test_sparse_rows_and_data_frames_give_the_same(many):
    X, Y = many
    X = np.where(np.median(X) < X, X, 0)
    rows = sparse.csr_matrix(X)
    fitted = CredibleClassifier(model="linear", l2=1.0).fit(rows, Y)
    np.testing.assert_allclose(fitted.predict_proba(rows), fitted.predict_proba(X), atol=1e-9)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(12)])
    named = CredibleClassifier(model="linear", l2=1.0).fit(frame, Y)
    assert named.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_allclose(
        named.predict_proba(frame),
        CredibleClassifier(model="linear", l2=1.0).fit(X, Y).predict_proba(X),
        atol=1e-9,
    )


@pytest.mark.parametrize("loss", ["spa", "twl", "softmax", "quasibinary", "focal"])
def test_other_losses_work_too(loss, many):
    X, Y = many
    estimates = CredibleClassifier(loss, l2=1.0).fit(X, Y).predict_proba(X)
    assert float(cr.metrics.log_loss(estimates, Y)) < 0.5


def test_sets_hold_the_budget_and_grow_with_it(many):
    X, Y = many
    fitted = CredibleClassifier(model="linear", l2=1.0).fit(X, Y)
    small, large = (fitted.predict_sets(X, average_size=size) for size in (1.0, 2.5))
    assert small.dtype == bool
    assert abs(large.sum(1).mean() - 2.5) < 0.15
    assert (small <= large).all()
    sure = fitted.predict_sets(X, average_size=2.5, guarantee="expected")
    assert (sure <= large).all()


def test_class_labels_of_any_kind_come_back():
    generator = np.random.default_rng(0)
    names = np.array(["ash", "birch", "cedar"])
    y = names[generator.integers(0, 3, 150)]
    X = (y[:, None] == names) + generator.normal(0, 0.3, (150, 3))
    fitted = CredibleClassifier(model="linear", l2=1.0).fit(X, y)
    assert fitted.score(X, y) > 0.95
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1)


def test_it_pickles_clones_searches_and_pipes(many):
    X, Y = many
    fitted = CredibleClassifier("spa").fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert clone(fitted).get_params() == fitted.get_params()
    piped = make_pipeline(StandardScaler(), CredibleClassifier(model="linear", l2=1.0))
    grid = {"credibleclassifier__l2": [0.1, 10.0]}
    assert GridSearchCV(piped, grid, cv=2).fit(X, Y).best_score_ > 0


def test_the_same_state_gives_the_same_and_global_randomness_is_left_alone(many):
    import torch

    X, Y = many
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    estimator = clone(ESTIMATORS["mlp"])
    one = estimator.fit(X, Y).predict_proba(X)
    assert torch.rand(1) == expected
    np.testing.assert_array_equal(clone(estimator).fit(X, Y).predict_proba(X), one)


@pytest.mark.parametrize(
    ("message", "settings", "targets"),
    [
        ("unknown loss", {"loss": "bse"}, None),
        ("`model` must be one of", {"model": "cnn"}, None),
        (
            "last layer cannot be solved for loss",
            {"loss": "role(average_size=2)", "model": "linear"},
            None,
        ),
        ("must be 0, 1", {}, 3.0),
        ("only through a calibrator", {"loss": "twl", "calibrate": "none"}, None),
    ],
)
def test_bad_arguments_are_explained(message, settings, targets, many):
    X, Y = many
    Y = Y if targets is None else np.full(Y.shape, targets)
    with pytest.raises(InputError, match=message):
        CredibleClassifier(**settings).fit(X, Y)


@each
def test_signed_targets_are_never_guessed(estimator, many):
    X, Y = many
    with pytest.raises(InputError, match=r'`y`.*coding="signed".*coding="unknown"'):
        clone(estimator).fit(X, 2 * Y - 1)
    signed = clone(estimator).set_params(coding="signed").fit(X, 2 * Y - 1)
    plain = clone(estimator).fit(X, Y)
    np.testing.assert_array_equal(signed.predict_proba(X), plain.predict_proba(X))


@each
def test_missing_and_ignored_targets_are_unknown(estimator, many):
    X, Y = many
    unknown = Y.astype(float)
    unknown[::3, 1] = -1
    expected = clone(estimator).fit(X, unknown).predict_proba(X)
    for value in (np.nan, -100):
        other = np.where(unknown == -1, value, unknown)
        np.testing.assert_array_equal(clone(estimator).fit(X, other).predict_proba(X), expected)


@each
def test_soft_targets_are_learned(estimator):
    noise = np.random.default_rng(0)
    X = noise.normal(size=(900, 3))
    rates = 1 / (1 + np.exp(-X @ noise.normal(size=(3, 2))))
    soft = np.round(rates * 4) / 4
    fitted = clone(estimator).fit(X[:600], soft[:600])
    assert np.abs(fitted.predict_proba(X[600:]) - rates[600:]).mean() < 0.06
    assert set(np.unique(fitted.predict(X[600:]))) <= {0, 1}


def test_the_penalty_and_the_model_are_chosen_on_rows_left_out(many):
    X, Y = many
    noise = np.random.default_rng(0).normal(size=(len(X), 60))
    wide = np.hstack([X, noise])
    chosen = CredibleClassifier(model="linear").fit(wide[:80], Y[:80])
    weak = CredibleClassifier(model="linear", l2=1.0).fit(wide[:80], Y[:80])
    assert min(row["nll"] for row in chosen.candidates_) < 1
    ours, theirs = (
        float(cr.metrics.log_loss(each.predict_proba(wide[400:]), Y[400:]))
        for each in (chosen, weak)
    )
    assert ours < theirs


def test_auto_compares_models_and_is_the_same_again(many):
    X, Y = many
    auto = CredibleClassifier(budget="3s")
    first, second = (clone(auto).fit(X[:60], Y[:60, :2]) for _ in range(2))
    tried = {row["model"] for row in first.candidates_ if "nll" in row}
    assert {"linear", "mlp"} <= tried
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("model", MODELS)
def test_few_rows_and_one_class_train(model, many):
    X, Y = many
    estimator = CredibleClassifier(model=model)
    assert np.isfinite(estimator.fit(X[20:26], Y[20:26]).predict_proba(X[:5])).all()
    with pytest.raises(ValueError, match="1 sample"):
        estimator.fit(X[:1], Y[:1])
    assert (estimator.fit(X[:30], np.zeros(30)).predict(X[:5]) == 0).all()
