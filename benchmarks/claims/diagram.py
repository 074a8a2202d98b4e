"""Reliability of rows with several labels: binary, softmax, quasibinary (paper 001, Fig. 3).

VOC 2012, linear heads as the calibrated study chose them, seed 1; the four most probable labels of
each test row in ten bins, as in the paper.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from benchmarks.claims import calibrated, sets
from benchmarks.claims.plan import chosen
from benchmarks.claims.runner import Book
from credibly import metrics
from credibly.train import fit
from credibly.train.recipes import from_table

FILE = "diagram.json"
SETUP, SEED, TOP, BINS = "voc2012, linear", 1, 4, 10
CURVES = {
    "binary": "bce",
    "binary, prior bias": "bce, prior",
    "softmax": "softmax",
    "quasibinary": "quasibinary",
}


def measure(book: Book) -> None:
    """Write the bins, unless they are there or the study was not run."""
    methods = calibrated.methods([SETUP])
    if (book.folder / FILE).exists():
        return
    data = sets.rows(calibrated.SETUPS[SETUP][0], SEED)
    test = data.part("test")
    curves: dict[str, Any] = {}
    for name, method in CURVES.items():
        own = next(m for m in methods if m.name == method)
        table = {**chosen(own, methods, book), "split_seed": SEED}
        recipe, _ = from_table(table, name)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            with torch.enable_grad():
                run = fit(data, recipe, folder=folder, seed=SEED)
            odds = run.criterion.log_odds(run.scores(test).double())
        probabilities = expit(odds.numpy())
        lowest = np.sort(probabilities, axis=1)[:, -TOP]
        targets = np.where(probabilities >= lowest[:, None], test.targets, -1)
        found = metrics.reliability(probabilities, targets, bins=BINS)
        curves[name] = {
            "counts": found.counts.tolist(),
            "confidence": [round(float(value), 5) for value in found.confidence],
            "frequency": [round(float(value), 5) for value in found.frequency],
        }
    (book.folder / FILE).write_text(json.dumps(curves, indent=1), encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
