"""Two processes on halves of each batch end where one process on whole batches does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from train_instances import DATA, awkward, save_npz, train_by_two

import credibly as cr
from credibly.train import fit, recipe

# 144 training rows in batches of 29: halves differ in size, and in how much of them is known.
QUICK = {"model": "linear", "epochs": 3, "batch_size": 29, "learning_rate": 0.02}
# SGD where it matters that a gradient is neither doubled nor halved: AdamW would not notice.
SGD = {"optimizer": "sgd", "learning_rate": 0.5}
RUNS = [
    ("bce", "awkward", {**QUICK, **SGD, "loss": "bce", "ema": 0.9}),
    ("spa+lpr", "awkward", {**QUICK, "loss": "spa+lpr"}),
    ("twl", "awkward", {**QUICK, **SGD, "loss": "twl", "accumulate": 2}),
    ("quasibinary", "awkward", {**QUICK, **SGD, "loss": "quasibinary"}),
    ("joint", "awkward", {**QUICK, **SGD, "loss": "joint(components=3)"}),
    ("avgk", "single", {**QUICK, "loss": "avgk", "average_size": 2.0}),
    ("role", "single", {**QUICK, "loss": "role", "average_size": 2.0}),
]


@pytest.fixture(scope="module")
def by_two(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    train_by_two(folder, RUNS)
    return folder


@pytest.mark.parametrize(("name", "kind", "settings"), RUNS, ids=[run[0] for run in RUNS])
def test_two_processes_predict_what_one_does(name, kind, settings, by_two, tmp_path):
    fit(DATA[kind](), recipe(**settings), folder=tmp_path)
    one = cr.Predictions.read(tmp_path / "predictions.parquet")
    two = cr.Predictions.read(by_two / name / "predictions.parquet")
    assert one.ids.tolist() == two.ids.tolist()
    np.testing.assert_allclose(two.probabilities, one.probabilities, atol=2e-4)
    np.testing.assert_allclose(two.scores, one.scores, atol=2e-3)


def test_torchrun_trains_one_run_on_two_processes(tmp_path):
    data = save_npz(tmp_path / "rows.npz", awkward())
    command = ["train", str(data), "--model", "linear", "--epochs", "2", "--quiet", "--json"]
    # Standalone: a port that was free a moment ago may be taken by a test beside this one.
    options = ["--standalone", "--nproc-per-node", "2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *options]
    done = subprocess.run(
        [*torchrun, "-m", "credibly", *command, "--out", str(tmp_path / "two")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count('"metrics"') == 1
    from credibly.cli import main

    assert main([*command, "--out", str(tmp_path / "one")]) == 0
    one, two = (
        cr.Predictions.read(tmp_path / name / "predictions.parquet") for name in ("one", "two")
    )
    np.testing.assert_allclose(two.probabilities, one.probabilities, atol=2e-4)
