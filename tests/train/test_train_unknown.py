"""Nothing can be learned from targets that are all unknown; every way to train says so."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import credibly as cr
from credibly.targets import SparseTargets
from credibly.train import recipe

ROWS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
NOTHING = np.full((60, 3), -1, dtype=np.int8)
SPLIT = np.repeat([0, 1, 2], [40, 10, 10])
HELD_OUT = np.where(SPLIT[:, None] > 0, np.arange(180).reshape(60, 3) % 2, NOTHING)
"""Known only where nothing is trained."""

SETTINGS = {
    "auto": {},
    "linear": {"model": "linear"},
    "trees": {"model": "forest"},
    "network": {"model": "mlp", "epochs": 1},
    "uncalibrated": {"model": "mlp", "epochs": 1, "calibrate": "none", "select": "last"},
}
MESSAGE = "must hold known labels.*unknown"


def data(targets):
    return cr.data.Data(["a", "b", "c"], targets, features=ROWS, split=SPLIT)


@pytest.mark.parametrize("targets", [NOTHING, HELD_OUT], ids=["everywhere", "in training"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_run_needs_known_targets_to_train_on(tmp_path, settings, targets):
    with pytest.raises(cr.InputError, match=MESSAGE):
        cr.train.fit(data(targets), recipe(**SETTINGS[settings]), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_needs_known_sparse_targets(tmp_path):
    empty = np.zeros(61, dtype=np.int64)
    targets = SparseTargets(empty, empty[:0], num_labels=3, known=np.zeros(60, dtype=bool))
    with pytest.raises(cr.InputError, match=MESSAGE):
        cr.train.fit(data(targets), recipe(model="mlp"), folder=tmp_path / "run")


def test_the_command_says_so(tmp_path):
    np.savez(tmp_path / "x.npz", features=ROWS, targets=HELD_OUT, split=SPLIT)
    arguments = ["train", "x.npz", "--out", "run", "--coding", "unknown", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "credibly", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "known labels" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("calibrate", ["auto", "none"])
@pytest.mark.parametrize("model", ["auto", "linear", "forest", "mlp"])
def test_the_classifier_needs_known_targets(model, calibrate):
    classifier = cr.CredibleClassifier(model=model, calibrate=calibrate, coding="unknown")
    with pytest.raises(cr.InputError, match=MESSAGE):
        classifier.fit(ROWS, NOTHING)


def test_calibration_around_an_estimator_needs_known_targets():
    fitted = LogisticRegression().fit(ROWS, np.arange(60) % 3)
    for estimator in (LogisticRegression(), FrozenEstimator(fitted)):
        calibrated = cr.CalibratedMultiLabel(estimator, coding="unknown")
        with pytest.raises(cr.InputError, match="known"):
            calibrated.fit(ROWS, NOTHING)


@pytest.mark.parametrize("method", ["affine", "auto"])
def test_calibrating_scores_needs_known_targets(method):
    with pytest.raises(cr.InputError, match="known"):
        cr.calibrate_scores(ROWS[:, :3], NOTHING, loss="bce", method=method, coding="unknown")


def test_one_known_row_is_trained_on_wherever_it_is_held_out():
    for row in range(60):
        targets = NOTHING.copy()
        targets[row] = [0, 1, 0]
        classifier = cr.CredibleClassifier(model="mlp", coding="unknown", epochs=1)
        assert np.isfinite(classifier.fit(ROWS, targets).predict_proba(ROWS)).all()


@pytest.mark.parametrize("settings", ["auto", "linear", "network"])
def test_a_label_without_known_targets_keeps_the_others(tmp_path, settings):
    """One label that is nowhere known is trained on nothing; the others are trained as before."""
    targets = (np.random.default_rng(1).random((60, 3)) < 0.5).astype(np.int8)
    targets[:, 1] = -1
    run = cr.train.fit(data(targets), recipe(**SETTINGS[settings]), folder=tmp_path / "run")
    assert np.isfinite(run.predict(ROWS).probabilities).all()
    json.loads((tmp_path / "run" / "metrics.json").read_text("utf-8"))
