"""NaN is a missing feature: the mean for networks, a branch of its own for trees."""

import numpy as np
import pytest
import torch

import credibly as cr
from credibly import InputError
from credibly.data import Data
from credibly.train import fit, recipe

NETWORKS = ("linear", "mlp")
ALL = (*NETWORKS, "forest", "boosting", "auto")
NOISE = np.random.default_rng(0)
FEATURES = NOISE.normal(3, 2, (160, 4)).astype(np.float32)
TARGETS = (FEATURES[:, :2] + NOISE.normal(size=(160, 2)) > 3).astype(float)
MISSING = NOISE.random(FEATURES.shape) < 0.2
HOLES = np.where(MISSING, np.float32(np.nan), FEATURES)


def settings(model):
    """Return a recipe by which means are those of the training rows."""
    return recipe(model, loss="bce", **({"l2": 1.0, "folds": 0} if model == "linear" else {}))


@pytest.mark.parametrize("model", ALL)
def test_missing_features_train_predict_and_load(model, tmp_path):
    rows = cr.data.from_arrays(features=HOLES, targets=TARGETS)
    run = fit(rows, settings(model), folder=tmp_path / "run")
    found = run.predict(HOLES).probabilities
    assert np.isfinite(found).all()
    assert np.array_equal(cr.load(tmp_path / "run").predict(HOLES).probabilities, found)


@pytest.mark.parametrize("model", NETWORKS)
def test_for_networks_a_missing_feature_is_the_mean_of_those_seen(model, tmp_path):
    rows = cr.data.from_arrays(features=HOLES, targets=TARGETS)
    run = fit(rows, settings(model), folder=tmp_path / "run")
    seen = rows.part("train").features
    assert np.allclose(run.model.standardize.mean, np.nanmean(seen, axis=0), atol=1e-5)
    assert np.allclose(run.model.standardize.scale, np.nanstd(seen, axis=0), atol=1e-5)
    filled = np.where(MISSING, run.model.standardize.mean.numpy(), FEATURES)
    assert np.allclose(
        run.predict(HOLES).probabilities, run.predict(filled).probabilities, atol=1e-6
    )


@pytest.mark.parametrize("model", ["forest", "boosting"])
def test_trees_learn_from_what_is_missing(model, tmp_path):
    features = NOISE.normal(size=(300, 2)).astype(np.float32)
    present = NOISE.random(300) < 0.5
    features[present, 0] = np.nan
    rows = cr.data.from_arrays(features=features, targets=present[:, None].astype(float))
    run = fit(rows, settings(model), folder=tmp_path / "run")
    found = run.predict(features).probabilities[:, 0]
    assert found[present].min() > found[~present].max()


@pytest.mark.parametrize("model", ["linear", "mlp", "auto"])
def test_the_estimator_takes_missing_features(model):
    classifier = cr.CredibleClassifier(model=model)
    found = classifier.fit(HOLES, TARGETS).predict_proba(HOLES)
    assert np.isfinite(found).all()
    assert found.std() > 0.05


def standardized(values):
    """Return the first layer of a network for these features."""
    rows = Data(["a"], np.zeros((len(values), 1)), features=values, split=np.zeros(len(values)))
    return cr.models.build("linear", rows).standardize


def test_empty_and_constant_columns_do_no_harm():
    values = np.array([[np.nan, 1, 2], [np.nan, 1, np.nan], [np.nan, 1, 4]])
    layer = standardized(values)
    assert layer.mean.tolist() == [0, 1, 3]
    assert layer.scale.tolist() == [1, 1, 1]
    found = layer(torch.tensor([[5.0, 1, 4], [np.nan, np.nan, np.nan]]))
    assert found.tolist() == [[3, 0, 1], [0, 0, 0]]


def test_huge_values_leave_the_others_of_their_column_apart():
    noise = np.random.default_rng(0)
    plain = noise.normal(5, 2, (400, 3))
    tailed = plain.copy()
    tailed[:4, 0], tailed[4, 1], tailed[6, 2] = 1e30, -1e6, np.nan
    layer = standardized(tailed)
    assert layer.mean.numpy() == pytest.approx(plain.mean(axis=0), abs=0.6)
    assert layer.scale.numpy() == pytest.approx(plain.std(axis=0), rel=0.7)
    assert layer(torch.from_numpy(tailed)).abs().max() == 3
    # A rare count is not an outlier: three quarters of its column are 0.
    counts = np.zeros((400, 1))
    counts[0] = 90
    assert float(standardized(counts).scale) == pytest.approx(counts.std())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", ["auto", "linear", "mlp"])
@pytest.mark.parametrize("huge", [np.float32(1e30), 1e300], ids=["float32", "float64"])
def test_a_feature_with_huge_values_still_counts(model, huge):
    noise = np.random.default_rng(0)
    features = noise.normal(size=(300, 3)).astype(type(huge))
    targets = (features[:, :2] > 0).astype(int)
    features[::50] *= huge
    classifier = cr.CredibleClassifier(model=model)
    found = classifier.fit(features[:200], targets[:200]).predict_proba(features[200:])
    assert ((found > 0.5) == targets[200:]).mean() > 0.85


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_features_are_refused_by_row_and_column(value):
    features = FEATURES.copy()
    features[7, 2] = value
    with pytest.raises(InputError, match="must not be infinite; 1 are, the first in row 7"):
        cr.data.from_arrays(features=features, targets=TARGETS)
