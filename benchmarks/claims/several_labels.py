"""How often classifiers are sure of all labels of a row, at an equal rate of wrong ones.

    python -m benchmarks.claims.several_labels

The runs of ``SETUPS`` are trained again with the settings that their trials chose, because their
records hold these shares at a probability of one half alone, where classifiers differ in how often
a wrong label is above it. Each pair of runs is an entry of ``results/several-labels.json``; the
same command continues where it stopped.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims import calibrated
from benchmarks.claims.cells import Cell
from benchmarks.claims.plan import Method, chosen
from benchmarks.claims.runner import Book, trained
from benchmarks.long_runs.records import write
from credibly.types import Array

SETUPS = ("voc2012, linear", "voc2012, mlp", "yeast", "digits, cnn", "scene", "emotions", "medical")
"""The first four are those of the rule."""

NAMES = ("bce", "quasibinary")
FILE = "several-labels.json"


def at_equal_rate(scores: Array, targets: Array, rate: float) -> float:
    """Share of the rows with several labels whose labels are all above a threshold.

    Args:
        scores: that rank the entries of all rows, shape ``(rows, labels)``.
        targets: 1 present, 0 absent, −1 unknown.
        rate: the threshold is the one that a wrong label exceeds in this share of the rows.
    """
    labels, wrong = _margins(scores, targets)
    above = round(rate * len(wrong))
    threshold = np.inf if above == 0 else -np.inf
    if 0 < above < len(wrong):
        threshold = np.sort(wrong)[::-1][above]
    return float((labels > threshold).mean())


def _margins(scores: Array, targets: Array) -> tuple[Array, Array]:
    """The lowest score of a label and the highest of an absent one, in rows with several labels."""
    rows = (targets > 0.5).sum(axis=1) > 1
    scores, targets = scores[rows], targets[rows]
    labels = np.where(targets > 0.5, scores, np.inf).min(axis=1)
    wrong = np.where(targets == 0, scores, -np.inf).max(axis=1)
    return labels, wrong


def records(folder: Path) -> list[dict[str, Any]]:
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else []


def shares(folder: Path) -> dict[str, dict[str, dict[int, float]]]:
    """In percent, by setup, classifier and seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for record in records(folder):
        for name in NAMES:
            values = found.setdefault(record["setup"], {}).setdefault(name, {})
            values[record["seed"]] = 100 * record[f"{name}, every label"]
    return found


def measure(book: Book) -> None:
    """Train the pairs of runs that have no entry."""
    methods = calibrated.methods()
    for setup in SETUPS:
        own = {m.name: m for m in methods if m.setup == setup and m.name in NAMES}
        for seed in own["bce"].seeds:
            if not any((r["setup"], r["seed"]) == (setup, seed) for r in records(book.folder)):
                record = {"setup": setup, "seed": seed, **_pair(own, methods, book, seed)}
                lines = ",\n".join(map(json.dumps, [*records(book.folder), record]))
                write(book.folder / FILE, f"[\n{lines}\n]\n".encode())
                print(record, flush=True)


def _pair(own: dict[str, Method], methods: list[Method], book: Book, seed: int) -> dict[str, float]:
    start = time.process_time()
    scores, targets = {}, np.zeros(0)
    for name, method in own.items():
        cell = Cell.of(method.data, chosen(method, methods, book), seed)
        with tempfile.TemporaryDirectory() as folder:
            run, data = trained(cell, folder)
            test = data.part("test")
            scores[name] = run.criterion.ranking_scores(run.scores(test).double()).numpy()
            targets = test.dense_targets
    wrong = _margins(scores["bce"], targets)[1]
    rate = float((wrong > 0).mean())  # a probability above one half
    shares = {f"{name}, every label": at_equal_rate(scores[name], targets, rate) for name in NAMES}
    return {"a wrong label": rate, **shares, "seconds": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    measure(Book())
