"""XGBoost and LightGBM behind scikit-learn's interface, and their margins."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification

import credibly as cr

xgboost = pytest.importorskip("xgboost", reason="runs in make test-frameworks")
lightgbm = pytest.importorskip("lightgbm", reason="runs in make test-frameworks")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, not ours

X, Y = make_multilabel_classification(900, n_features=12, n_classes=4, random_state=0)
MODELS = {
    "xgboost": xgboost.XGBClassifier(n_estimators=40, n_jobs=1),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=150, n_jobs=1, verbose=-1),
}
each = pytest.mark.parametrize("name", MODELS)


def nll(model):
    return -cr.metrics.scorer("nll")(model, X[600:], Y[600:])


@each
def test_boosted_models_are_calibrated_in_one_line(name):
    calibrated = cr.CalibratedMultiLabel(MODELS[name], cv=3).fit(X[:600], Y[:600])
    plain = cr.CalibratedMultiLabel(MODELS[name], cv=3, method="none").fit(X[:600], Y[:600])
    assert calibrated.predict_proba(X[600:]).shape == (300, 4)
    assert nll(calibrated) < nll(plain) - 0.02


def test_margins_are_log_odds():
    model = MODELS["xgboost"].fit(X[:600], Y[:600])
    margins = model.predict(X[600:], output_margin=True)
    result = cr.calibrate_scores(margins, Y[600:], loss="bce")
    np.testing.assert_allclose(
        cr.losses.BCE().probabilities(margins), model.predict_proba(X[600:]), atol=1e-5
    )
    assert result.change.high < 0
