"""The small data sets of the golden record, made on the fly from seeds."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

LABELS = ["dog", "cat", "fork", "apple", "beach"]
WORDS = ["sun", "sand", "ball", "knife", "plate", "tree", "river", "stone", "cloud", "paw"]
WORDS += ["tail", "milk", "seed", "wave", "salt"]


def table(folder: Path, rows: int = 300) -> Path:
    """A CSV file of eight features and five labels, with a split and some unknown labels."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(rows, 8))
    log_odds = 2 * features @ rng.normal(size=(8, 5)) / np.sqrt(8) - np.linspace(0.2, 1.8, 5)
    truth = (rng.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))).astype(int)
    truth[rng.random(truth.shape) < 0.03] = -1
    path = folder / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{i}" for i in range(8)), *(f"y:{name}" for name in LABELS), "split"])
        for row in range(rows):
            numbers = [f"{value:.6f}" for value in features[row]]
            writer.writerow([*numbers, *truth[row], (0, 0, 0, 1, 2)[row % 5]])
    return path


def scores(folder: Path, rows: int = 400) -> Path:
    """Scores of a model trained elsewhere, too sharp and shifted, with truth."""
    rng = np.random.default_rng(5)
    log_odds = rng.normal(-1, 2, (rows, len(LABELS)))
    truth = (rng.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))).astype(np.int8)
    truth[::9, 2], truth[4::31] = -1, -1
    path = folder / "scores.npz"
    arrays = {"scores": (1.7 * log_odds + 0.6).astype(np.float32), "targets": truth}
    np.savez(path, labels=np.array(LABELS), **arrays)  # pyright: ignore
    return path


def predictions(rows: int = 500, seed: int = 7, dependence: float = 0.8):
    """Predictions whose labels depend on each other, with ties, unknowns and rows of no label."""
    import credibly as cr

    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-1, 1.5, (rows, len(LABELS)))
    shared = dependence * rng.normal(size=(rows, 1)) + rng.normal(size=log_odds.shape)
    rates = 1 / (1 + np.exp(-log_odds))
    truth = (shared < np.quantile(shared, 0.3) + log_odds / 2).astype(np.int8)
    truth[::7], truth[1::19], truth[::11, 1] = 0, -1, -1
    rates = np.where(rng.random(rates.shape) < 0.3, rates.round(1), rates)
    return cr.Predictions.from_arrays(
        probabilities=rates.astype(np.float32),
        scores=log_odds.astype(np.float32),
        targets=truth,
        labels=LABELS,
        ids=[f"{seed}-{row:04d}" for row in range(rows)],
        metadata={"loss": "bce", "created_by": "the golden record"},
    )


def texts(folder: Path, rows: int = 240) -> Path:
    """A file of short texts whose words depend on their labels."""
    rng = np.random.default_rng(11)
    path = folder / "texts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for row in range(rows):
            present = rng.random(5) < (0.5, 0.4, 0.3, 0.3, 0.2)
            words = [str(word) for word in rng.choice(WORDS, 6)]
            words += [
                WORDS[3 * i + int(rng.integers(3))] for i in np.flatnonzero(present) for _ in "ab"
            ]
            line = {
                "text": " ".join(rng.permutation(words)),
                "labels": [LABELS[i] for i in np.flatnonzero(present)],
                "split": (0, 0, 0, 1, 2)[row % 5],
            }
            file.write(json.dumps(line) + "\n")
    return path


def many_labels(folder: Path, rows: int = 300, labels: int = 120) -> Path:
    """Sparse features and many labels in the layout of the extreme-classification repository."""
    rng = np.random.default_rng(13)
    path = folder / "many.txt"
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{rows} 40 {labels}\n")
        for _ in range(rows):
            present = np.unique((labels * rng.random(rng.integers(1, 5)) ** 2).astype(int))
            features = np.unique(np.concatenate([present % 40, rng.integers(0, 40, 4)]))
            numbers = " ".join(f"{i}:{1 + rng.random():.4f}" for i in features)
            file.write(",".join(map(str, present)) + " " + numbers + "\n")
    return path


def top_labels(rows: int = 300, labels: int = 60, k: int = 8):
    """Predictions of the most probable labels of each row alone."""
    from credibly.predictions import Predictions
    from credibly.targets import SparseTargets

    rng = np.random.default_rng(17)
    rates = rng.random((rows, labels)).astype(np.float32) ** 4
    truth = (rng.random(rates.shape) < rates).astype(np.int8)
    truth[:5] = 0
    top = np.argsort(-rates, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(rates, top, 1)
    return Predictions.from_arrays(
        top=top,
        probabilities=kept,
        scores=np.log(kept / (1 - kept)),
        labels=[f"label-{i}" for i in range(labels)],
        targets=SparseTargets.from_dense(truth),
        ids=[f"row-{row:04d}" for row in range(rows)],
        metadata={"loss": "bce", "created_by": "the golden record"},
    )
