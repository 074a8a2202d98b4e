"""Predictions of two runs, one of them with its model, images, and a decision made in the app."""

from pathlib import Path

import numpy as np

import credibly as cr

labels = predictions.labels  # noqa: F821
noise = np.random.default_rng(0)
targets = noise.integers(0, 2, (100, len(labels)))
features = noise.normal(size=(100, 3))
rows = cr.data.from_arrays(features=features, targets=targets, labels=list(labels))
cr.train.fit(rows, cr.train.recipe(model="linear", loss="spa", epochs=1), folder="runs/spa")
Path("runs/asl").mkdir()
for name in ("spa", "asl"):
    predictions.write(f"runs/{name}/predictions.parquet")  # noqa: F821
row, label = str(predictions.ids[0]), predictions.labels[0]  # noqa: F821
cr.review.ReviewLog("corrections.jsonl").append([cr.review.Review(row, label, 1)], who="Ana")
Path("photos").mkdir()
