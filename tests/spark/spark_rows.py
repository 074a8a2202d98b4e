"""Predictions in several files, for tests on a cluster."""

from pathlib import Path

import numpy as np

from credibly import Predictions

LABELS = ["fork", "apple", "knife", "dining table", 'q"q', "never"]


def rows_of(count: int, seed: int = 0) -> dict:
    """Return arrays with rows without labels, unknown rows and a label without positives."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.5, 2, (count, len(LABELS)))
    chances = 1 / (1 + np.exp(-odds))
    truth = (rng.random(chances.shape) < 1 / (1 + np.exp(-0.7 * odds + 0.3))).astype(np.int8)
    truth[:, -1] = 0
    truth[rng.random(truth.shape) < 0.05] = -1
    truth[::50] = -1
    chances = np.round(chances, 3)  # ties
    return {
        "probabilities": chances.astype(np.float32),
        "targets": truth,
        "labels": LABELS,
        "ids": [f"{seed}-{row}" for row in range(count)],
    }


def write_parts(folder: Path, parts: int = 18, count: int = 180) -> Path:
    folder.mkdir(exist_ok=True)
    for part in range(parts):
        rows = Predictions.from_arrays(**rows_of(count + part, seed=part))
        rows.write(folder / f"part {part} [x].parquet")
    return folder
