"""Runs with sparse targets, from file to search, without the scores of all labels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import credibly as cr
from credibly import InputError
from credibly.cli import main
from credibly.data import Data
from credibly.predictions import Dataset, Predictions
from credibly.retrieve import search
from credibly.targets import SparseTargets
from credibly.train import fit, recipe

SETTINGS = recipe(loss="spa", model="mlp", hidden=16, epochs=8, learning_rate=0.02)
LABELS = 60


def rows(seed=0, count=400):
    """Rows whose labels follow from their features; made, with rare labels and empty rows."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(count, 8)).astype(np.float32)
    directions = np.random.default_rng(9).normal(size=(8, LABELS))
    targets = (features @ directions - 4.5 + generator.normal(size=(count, LABELS)) > 0) * 1.0
    targets[:3] = 0
    return cr.data.from_arrays(features=features, targets=SparseTargets.from_dense(targets))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(rows(), SETTINGS, folder=tmp_path_factory.mktemp("runs") / "spa")


def test_a_run_learns_calibrates_and_writes_the_most_probable_labels(run):
    dataset = Dataset(run.folder / "predictions.parquet")
    assert dataset.top
    numbers = cr.evaluate(run.folder / "predictions.parquet").numbers
    assert numbers["precision@1"] == pytest.approx(run.metrics["precision@1"])
    frequent = rows().part("test").targets.label_counts().max() / dataset.num_rows
    assert numbers["precision@1"] > frequent + 0.1
    assert run.calibrator is not None
    label = dataset.labels[int(next(dataset.batches()).top[0, 0])]
    assert search(run.folder / "predictions.parquet", f"+{label}").hits


@pytest.mark.parametrize("loss", ["bce", "softmax", "softmax(zero_label=none_class)", "twl"])
def test_sparse_and_dense_targets_train_the_same_model(loss, tmp_path):
    settings = dataclasses.replace(SETTINGS, loss=loss, epochs=2, select="last", calibrate="none")
    if loss == "twl":
        settings = dataclasses.replace(settings, calibrate="affine")
    sparse = rows(count=200)
    dense = Data(sparse.labels, sparse.dense_targets, split=sparse.split, features=sparse.features)
    one, two = (
        fit(sparse, settings, folder=tmp_path / "sparse"),
        fit(dense, settings, folder=tmp_path / "dense"),
    )
    for name, weights in two.model.state_dict().items():
        own = one.model.state_dict()[name].to(weights.dtype)
        torch.testing.assert_close(own, weights, rtol=1e-3, atol=1e-4)
    if loss == "twl":
        return
    wide = Predictions.read(two.folder / "predictions.parquet")
    (top,) = Dataset(one.folder / "predictions.parquet").batches()
    expected = np.take_along_axis(wide.probabilities, top.top.astype(int), 1)
    np.testing.assert_allclose(top.probabilities, expected, rtol=2e-3, atol=1e-5)


def test_a_run_predicts_new_rows_after_loading(run, tmp_path):
    loaded = cr.load(run.folder)
    new = rows(seed=5, count=40)
    truth = new.dense_targets
    labels = np.array(new.labels)
    np.savez(tmp_path / "new.npz", features=new.features, targets=truth, labels=labels)
    command = ["predict", str(run.folder), str(tmp_path / "new.npz"), "--quiet"]
    assert main([*command, "--out", str(tmp_path / "parts"), "--shards", "2"]) == 0
    dataset = Dataset(tmp_path / "parts")
    assert (dataset.num_rows, dataset.top) == (40, True)
    again = np.concatenate([batch.probabilities for batch in dataset.batches()])
    np.testing.assert_array_equal(again, run.predict(new).probabilities)
    alone = loaded.predict(new.features)
    assert alone.targets is None
    np.testing.assert_array_equal(alone.probabilities, again)


def test_a_resumed_run_goes_on(tmp_path):
    class Stop(cr.train.Callback):
        def on_epoch(self, figures):
            raise KeyboardInterrupt

    settings = dataclasses.replace(SETTINGS, checkpoint_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        fit(rows(), settings, folder=tmp_path / "run", callback=Stop())
    resumed = fit(rows(), settings, folder=tmp_path / "run", resume=True)
    assert resumed.metrics["precision@5"] > 0


def test_the_largest_scores_do_not_depend_on_chunks(monkeypatch):
    done = fit(rows(), dataclasses.replace(SETTINGS, loss="softmax", epochs=2))
    whole = done.predict(rows(seed=5))
    monkeypatch.setattr("credibly.train.extreme_classification.ENTRIES", 48)
    parts = done.predict(rows(seed=5))
    np.testing.assert_array_equal(parts.top, whole.top)
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, rtol=1e-5)


BAD = {
    "a loss of pairs": ({"loss": "spa+lpr"}, "loss of single entries"),
    "mixup": ({"mixup": 0.2}, "cannot be combined with `mixup`"),
    "a budget of labels": ({"average_size": 2.0}, "cannot be combined with `average_size`"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_needs_all_scores_is_refused(case, tmp_path):
    changes, message = BAD[case]
    with pytest.raises(InputError, match=message):
        fit(rows(), dataclasses.replace(SETTINGS, **changes), folder=tmp_path / "run")
    assert not (tmp_path / "run" / "config.toml").exists()


def test_compare_refuses_sparse_targets_before_it_trains(tmp_path):
    lines = ["20 3 5000", *(f"{row},{4000 + row} 0:1.0 2:0.5" for row in range(20))]
    (tmp_path / "rows.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"5,000 labels as sparse targets; .*`credibly train"):
        cr.compare(f"xc:{tmp_path / 'rows.txt'}", tmp_path / "out", ["bce", "spa"])
    assert not (tmp_path / "out").exists()
