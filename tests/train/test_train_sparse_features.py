"""Sparse features: the same scores as dense ones, memory by their non-zero values."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import sparse

import credibly as cr
from credibly import InputError
from credibly.data import Data
from credibly.predictions import Dataset
from credibly.targets import SparseTargets
from credibly.train import fit, recipe, resolve

ROWS, WIDTH = 240, 50


def matrix(rows=ROWS, width=WIDTH, seed=0):
    """Counts; some rows are empty, the last column never occurs."""
    generator = np.random.default_rng(seed)
    counts = generator.poisson(0.08, (rows, width)).astype(np.float32)
    counts[:3] = 0
    counts[:, -1] = 0
    return counts


def targets_of(features):
    return np.stack([features[:, k] > 0 for k in range(6)], axis=1).astype(np.float32)


def data_of(features, kind=sparse.csr_matrix, **options):
    split = np.arange(len(features)) % 4
    split[split == 3] = 0
    targets = targets_of(features)
    return Data([f"l{k}" for k in range(6)], targets, features=kind(features), split=split)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.coo_matrix, sparse.csc_array])
def test_any_sparse_matrix_is_kept_as_rows(kind):
    data = data_of(matrix(), kind)
    assert data.features is None
    assert (data.kind, data.input_shape) == ("features", (WIDTH,))
    np.testing.assert_array_equal(data.sparse_features.dense(), matrix())
    part = data.part("test")
    np.testing.assert_array_equal(part.sparse_features.dense(), matrix()[data.split == 1])
    assert data.fingerprint() == data_of(matrix()).fingerprint()
    changed = matrix()
    changed[5, 7] += 1
    assert data_of(changed).fingerprint() != data_of(matrix()).fingerprint()
    assert "(sparse)" in repr(data)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_sparse_and_dense_rows_have_the_same_scores_and_gradients(name):
    features = matrix()
    features[10, 4] = np.nan
    features[11, 4] = 1e6  # beyond the limit
    data = data_of(matrix())
    model = cr.models.build(name, data, 6, hidden=9, dropout=0.0).double()
    torch.nn.init.normal_(model.head.weight)
    batch = cr.data.SparseRows(sparse.csr_matrix(features)).batch(np.arange(ROWS))
    scores = {}
    for kind, inputs in (("sparse", batch), ("dense", torch.from_numpy(features).double())):
        model.zero_grad()
        scores[kind] = model(inputs)
        scores[kind].square().sum().backward()
        scores[f"{kind} gradients"] = [p.grad.clone() for p in model.parameters()]
    torch.testing.assert_close(scores["sparse"], scores["dense"], rtol=1e-6, atol=1e-6)
    for one, other in zip(scores["sparse gradients"], scores["dense gradients"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_columns_are_scaled_by_their_values_that_are_not_zero():
    data = data_of(matrix())
    train = matrix()[data.split == 0].astype(np.float64)
    scale = cr.models.build("linear", data, 6).standardize.scale.numpy()
    for column in range(WIDTH):
        values = train[train[:, column] != 0, column]
        expected = np.sqrt((values**2).mean()) if len(values) else 1.0
        assert scale[column] == pytest.approx(expected, rel=1e-6)


def test_columns_that_training_does_not_have_start_at_0():
    model = cr.models.build("mlp", data_of(matrix()), 6, hidden=9)
    first = model.backbone[1][1].weight
    assert (first[:, -1] == 0).all()
    assert (first[:, :5] != 0).any()


@pytest.mark.parametrize("model", ["linear", "mlp", "auto"])
def test_a_run_on_sparse_features_learns_predicts_and_is_read_again(model, tmp_path):
    data = data_of(matrix(1000))
    settings = recipe(model=model, epochs=20, batch_size=32, learning_rate=0.05, dropout=0.0)
    done = fit(data, settings, folder=tmp_path / "run")
    assert done.metrics["mAP@y"] > 0.9
    test = data.part("test")
    sparse_scores = cr.load(tmp_path / "run").predict(test).probabilities
    dense_scores = done.predict(test.sparse_features.dense()).probabilities
    np.testing.assert_allclose(sparse_scores, dense_scores, atol=1e-5)
    done.predict(data).write(tmp_path / "all.parquet")
    assert Dataset(tmp_path / "all.parquet").num_rows == len(data)


def test_a_network_is_exported_for_dense_rows(tmp_path):
    pytest.importorskip("onnxruntime")
    from credibly.train import export

    done = fit(
        data_of(matrix()), recipe(model="mlp", epochs=1, batch_size=32), folder=tmp_path / "run"
    )
    assert export(done, tmp_path / "run.onnx")["shape"] == [WIDTH]


def test_sparse_features_and_sparse_targets_train_together(tmp_path):
    features = matrix(width=80)
    lists = [np.flatnonzero(row[:70]).tolist() for row in features]
    split = np.arange(ROWS) % 3
    data = Data(
        [f"l{k}" for k in range(5000)],
        SparseTargets.from_lists(lists, 5000),
        features=sparse.csr_matrix(features),
        split=split,
    )
    settings = recipe(model="mlp", hidden=64, epochs=25, batch_size=16, learning_rate=1e-2)
    done = fit(data, settings, folder=tmp_path / "run")
    assert done.metrics["precision@1"] > 0.5
    with pytest.raises(InputError, match="Use --model mlp"):
        fit(data, recipe(model="linear", epochs=1), folder=tmp_path / "linear")


def test_workers_read_the_same_rows(tmp_path):
    settings = {"model": "mlp", "epochs": 2, "batch_size": 32, "hidden": 8}
    for workers in (0, 1):
        fit(data_of(matrix()), recipe(workers=workers, **settings), folder=tmp_path / f"{workers}")
    one, other = (cr.Predictions.read(tmp_path / f"{w}" / "predictions.parquet") for w in (0, 1))
    np.testing.assert_array_equal(one.probabilities, other.probabilities)


REFUSED = {
    "mixup": ({"model": "mlp", "mixup": 0.2}, "needs a dense matrix"),
    "forest": ({"model": "forest"}, "which `model` linear and mlp take"),
    "cnn": ({"model": "cnn"}, "which `model` linear and mlp take"),
    "ensemble": ({"model": "mlp", "ensemble": 2}, "which `model` linear and mlp take"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_needs_a_dense_matrix_says_so(case, tmp_path):
    options, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        fit(data_of(matrix()), recipe(**options), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_on_dense_features_refuses_sparse_ones(tmp_path):
    dense = data_of(matrix(), np.asarray)
    done = fit(dense, recipe(model="mlp", epochs=1, batch_size=32), folder=tmp_path / "run")
    with pytest.raises(InputError, match="trained on dense features"):
        done.predict(data_of(matrix()))


def test_infinite_values_and_columns_out_of_range_are_refused():
    features = matrix()
    features[7, 3] = np.inf
    with pytest.raises(InputError, match="row 7, column 3"):
        data_of(features)
    model = cr.models.build("mlp", data_of(matrix()), 6, hidden=4)
    wide = cr.data.SparseRows(sparse.csr_matrix(np.eye(WIDTH + 5)))
    with pytest.raises(InputError, match=f"must be below {WIDTH}; got {WIDTH + 4}"):
        model(wide.batch(np.arange(WIDTH + 5)))


@pytest.mark.parametrize(("columns", "units"), [(50, 512), (50_000, 384), (10**6, 96)])
def test_hidden_layer_narrows_as_features_grow(columns, units):
    features = sparse.csr_matrix(([1.0], ([0], [0])), shape=(40, columns))
    data = cr.data.from_arrays(features=features, targets=np.arange(40) % 2)
    assert resolve(recipe(), data).hidden == units
    assert resolve(recipe(hidden=7), data).hidden == 7


LARGE = """
import sys
import numpy as np
from scipy import sparse
from credibly.data import Data
from credibly.train import fit, recipe

rows, width, filled = 10_000, 200_000, 40
generator = np.random.default_rng(0)
columns = (generator.random((rows, filled)) ** 3 * width).astype(np.int64)
starts = np.arange(0, rows * filled + 1, filled)
values = np.ones(rows * filled, dtype=np.float32)
matrix = sparse.csr_matrix((values, columns.ravel(), starts), shape=(rows, width))
targets = np.stack([(columns % 11 == k).any(axis=1) for k in range(3)], axis=1).astype(np.float32)
split = (np.arange(rows) % 5 == 4) * 2 + (np.arange(rows) % 5 == 3)
data = Data(["a", "b", "c"], targets, features=matrix, split=split)
fit(data, recipe(model="mlp", epochs=1, batch_size=1000), folder=sys.argv[1])
# Not ru_maxrss, which begins with the memory of the process that started this one.
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) / 2**20 for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_two_hundred_thousand_features_train_within_a_gigabyte(tmp_path):
    """A dense matrix alone would take 8 GB."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path / "run")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.0
