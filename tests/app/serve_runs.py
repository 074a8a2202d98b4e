"""Run folders made for tests: configuration, log and, where asked for, predictions."""

from __future__ import annotations

import json

import numpy as np

from credibly import Predictions

CONFIG = """[credibly]
version = "0.2.0"
[settings]
loss = "{loss}"
epochs = 5
[data]
source = "made up"
fingerprint = "0"
kind = "features"
labels = ["a", "b", "c"]
shape = [4]
train_rows = 100
"""


def write_run(folder, loss="bce", epochs=0, **made):
    """Write a run folder; without predictions it is one that still trains."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.format(loss=loss))
    add_epochs(folder, epochs)
    if made:
        write_predictions(folder / "predictions.parquet", **made)
        (folder / "calibration.json").write_text("{}")
    return folder


def add_epochs(folder, count):
    lines = [
        json.dumps({"epoch": k, "loss": 1 / k, "nll": 0.5 / k, "map": 0.5, "best_epoch": k})
        for k in range(1, count + 1)
    ]
    if lines:
        (folder / "log.jsonl").write_text("\n".join(lines) + "\n")


def write_predictions(path, seed=0, noise=0.0, rows=400, first=0, labels=("a", "b", "c")):
    """Write predictions of rows whose truth depends on the id alone; ``noise`` makes them worse."""
    shape = (1000, len(labels))
    rates = np.random.default_rng(7).random(shape)
    truth = (np.random.default_rng(8).random(shape) < rates).astype(np.int8)
    odds = np.log(rates / (1 - rates)) + noise * np.random.default_rng(seed).normal(size=shape)
    kept = slice(first, first + rows)
    Predictions.from_arrays(
        probabilities=1 / (1 + np.exp(-odds[kept])),
        targets=truth[kept],
        labels=list(labels),
        ids=[f"r{i:04d}" for i in range(1000)][kept],
    ).write(path)
