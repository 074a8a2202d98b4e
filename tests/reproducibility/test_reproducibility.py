"""Same seed, same machine: the same bytes. Another number of threads: the same decisions."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
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


def trained_elsewhere(rows: Path, out: Path) -> Path:
    """In a process of its own, where hashes of strings are others."""
    subprocess.run(
        [sys.executable, "-m", "credibly", *command(rows, out)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return out


@pytest.fixture(scope="module")
def runs(rows, tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return {
        "first": trained(rows, place / "first", threads=1),
        "again": trained_elsewhere(rows, place / "again"),
        "two threads": trained(rows, place / "two", threads=2),
    }


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


NAMES = ["config.toml", "model.safetensors", "calibration.json", "predictions.parquet"]


@pytest.mark.parametrize("name", [*NAMES, "log.jsonl", "metrics.json"])
def test_the_same_seed_gives_the_same_bytes(name, runs):
    assert sha(runs["first"] / name) == sha(runs["again"] / name)


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


def test_predictions_are_the_same_bytes_again(runs, rows, tmp_path):
    run, data = cr.load(runs["first"]), cr.data.load(str(rows))
    for name in ("a", "b"):
        run.predict(data).write(tmp_path / f"{name}.parquet")
    assert sha(tmp_path / "a.parquet") == sha(tmp_path / "b.parquet")


def test_a_report_is_the_same_bytes_again(runs, tmp_path):
    predictions = str(runs["first"] / "predictions.parquet")
    pages = [tmp_path / "a" / "report.html", tmp_path / "b" / "report.html"]
    for page in pages:
        assert main(["report", predictions, "--resamples", "5", "--out", str(page), "--quiet"]) == 0
    assert sha(pages[0]) == sha(pages[1])


def test_another_seed_gives_other_weights(runs, rows, tmp_path):
    other = trained(rows, tmp_path / "other", threads=1, seed=4)
    assert sha(other / "model.safetensors") != sha(runs["first"] / "model.safetensors")
