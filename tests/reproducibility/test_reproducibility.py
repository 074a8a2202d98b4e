"""Another number of threads: the same decisions. Another seed: other weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.cli import main

TOLERANCE = 1e-5
"""By how much probabilities may differ between one thread and two: sums add up in other orders."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Wide enough for the products of matrices to be shared between threads."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(600, 200)).astype(np.float32)
    targets = (features @ generator.normal(size=(200, 12)) > 12).astype(np.int8)
    targets[:, -1] = 0
    targets[:20] = 0
    targets[20:30] = -1
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    split = np.array([0, 0, 0, 1, 2])[np.arange(600) % 5]
    np.savez(path, features=features, targets=targets, split=split)
    return path


def command(rows: Path, out: Path, seed: int = 3) -> list[str]:
    words = ["train", str(rows), "--out", str(out), "--seed", str(seed), "--quiet", "--json"]
    words += ["--model", "mlp", "--hidden", "256", "--epochs", "2", "--dropout", "0.3"]
    return [*words, "--loss", "spa+lpr", "--average-size", "3"]


def trained(rows: Path, out: Path, threads: int, seed: int = 3) -> Path:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert main(command(rows, out, seed)) == 0
    finally:
        torch.set_num_threads(before)
    return out


@pytest.fixture(scope="module")
def runs(rows, tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return {
        "first": trained(rows, place / "first", threads=1),
        "two threads": trained(rows, place / "two", threads=2),
    }


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_one_and_two_threads_give_the_same_decisions_within_the_tolerance(runs):
    one, two = (cr.load(runs[name]) for name in ("first", "two threads"))
    by_one, by_two = (cr.Predictions.read(run.folder / "predictions.parquet") for run in (one, two))
    np.testing.assert_allclose(by_one.probabilities, by_two.probabilities, rtol=0, atol=TOLERANCE)
    assert one.decision is not None
    assert two.decision is not None
    sets = one.decision.predict(by_one.probabilities)
    clear = np.abs(by_one.probabilities - one.decision.threshold) > 2 * TOLERANCE
    assert clear.mean() > 0.99
    assert (sets == two.decision.predict(by_two.probabilities))[clear].all()


def test_another_seed_gives_other_weights(runs, rows, tmp_path):
    other = trained(rows, tmp_path / "other", threads=1, seed=4)
    assert sha(other / "model.safetensors") != sha(runs["first"] / "model.safetensors")
