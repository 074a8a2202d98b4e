"""The estimator with trees, or a choice of models, passes scikit-learn's own checks.

They train hundreds of forests, minutes of CPU time: part of ``make test-frameworks`` alone, whose
environment has XGBoost. ``linear`` and ``mlp`` are checked by the other tests.
"""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import check_estimator

from credibly import CredibleClassifier

pytest.importorskip("xgboost", reason="runs in make test-frameworks")

NEEDS_MORE = {
    "check_array_api_input",  # SCIPY_ARRAY_API set
    "check_classifiers_multilabel_output_format_decision_function",  # probabilities are the output
}


@pytest.mark.parametrize("model", ["forest", "boosting", "auto"])
def test_scikit_learn_s_own_checks_pass(model):
    results = check_estimator(CredibleClassifier(model=model), on_fail=None, on_skip=None)
    assert len(results) > 50
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= NEEDS_MORE
