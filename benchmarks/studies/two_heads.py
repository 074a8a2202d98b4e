"""Why the two-head loss leads in print: the printed optimizer against cross-entropy with chosen L2.

    CREDIBLY_DATA=FOLDER python -m benchmarks.studies.two_heads [--table]

Linear heads on the Tiny-ImageNet features, three seeds, K = 2, 3, 5 and 10, a tenth of the training
rows held out. All train as the preset avgk-cifar100 says (SGD at 0.1, Nesterov, decay 1e-4, steps
at half and three quarters, best epoch by held-out average-K accuracy), for 6 epochs and not 300.
``two heads`` (ML head) is trained for each K, ``cross-entropy`` once with epochs chosen at K = 5.
``cross-entropy, L2 chosen`` is the same with the weight decay of a grid that has the best held-out
average-5 accuracy. Accuracy is that of the test rows with the threshold at which their sets have K
labels on average. Each finished run is a line of ``two_heads.jsonl``; the same command continues
where it stopped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import credibly as cr
from benchmarks.studies.training import data_file, markdown

RECORDS = Path(__file__).with_suffix(".jsonl")
PRESET, EPOCHS = "avgk-cifar100", 6
SIZES, SEEDS = (2, 3, 5, 10), (0, 1, 2)
DECAYS = (1e-3, 3e-3, 1e-2)
HEADS, PLAIN, CHOSEN = "two heads", "cross-entropy", "cross-entropy, L2 chosen"


def runs() -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield every run: method, the K that it is for, seed."""
    for seed in SEEDS:
        for size in SIZES:
            yield HEADS, (size,), seed
        yield PLAIN, SIZES, seed
        yield CHOSEN, SIZES, seed


def records() -> list[dict[str, Any]]:
    """Return the runs that are finished."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def measured(method: str, sizes: tuple[int, ...], seed: int) -> list[float]:
    """Train one head; return its average-K accuracy on test rows at the exact sizes."""
    size = sizes[0] if len(sizes) == 1 else 5
    preset = cr.papers.preset(PRESET)
    rows = cr.data.load(data_file("tinyimagenet.npz"), seed=seed, calibration=0.1)
    loss = preset.loss("avgk" if method == HEADS else "softmax")
    own = {"model": "linear", "average_size": float(size), "epochs": EPOCHS, "loss": loss}
    decays = DECAYS if method == CHOSEN else (preset.settings["weight_decay"],)
    recipes = [
        cr.train.recipe(**{**preset.settings, **own, "weight_decay": decay}) for decay in decays
    ]
    test, held = rows.part("test"), rows.part("calibration")
    found = [cr.train.fit(rows, recipe, seed=seed) for recipe in recipes]
    best = max(found, key=lambda run: _accuracies(run.predict(held), held, (size,))[0])
    return _accuracies(best.predict(test), test, sizes)


def _accuracies(
    predictions: cr.Predictions, rows: cr.data.Data, sizes: tuple[int, ...]
) -> list[float]:
    """Return average-K accuracies, thresholds at exact sizes."""
    probabilities = predictions.probabilities
    rules = [cr.decide.AverageSize(float(size)).fit(probabilities) for size in sizes]
    return [
        float(cr.metrics.set_coverage(rule.predict(probabilities), rows.dense_targets))
        for rule in rules
    ]


def lead(lines: list[dict[str, Any]], method: str, other: str, size: int) -> tuple[float, float]:
    """Return the mean difference in points, paired by seed, and half of its interval."""
    found = {
        (line["method"], line["seed"]): line["accuracy"] for line in lines if line["K"] == size
    }
    gaps = [100 * (found[method, seed] - found[other, seed]) for seed in SEEDS]
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps))
    return float(np.mean(gaps)), half


HEADER = ["", *(f"K = {size}" for size in SIZES)]


def rows_of(lines: list[dict[str, Any]]) -> list[list[str]]:
    """Return accuracies and leads by K, in the columns of ``HEADER``."""
    rows = []
    for method in (HEADS, PLAIN, CHOSEN):
        means = [
            np.mean([r["accuracy"] for r in lines if (r["method"], r["K"]) == (method, size)])
            for size in SIZES
        ]
        rows.append([f"{method}, %", *(f"{100 * mean:.1f}" for mean in means)])
    for other in (PLAIN, CHOSEN):
        leads = [lead(lines, HEADS, other, size) for size in SIZES]
        rows.append([f"two heads minus {other}", *(f"{m:+.1f} ± {h:.1f}" for m, h in leads)])
    return rows


def main() -> None:
    """Run what is left, and print the table."""
    if "--table" not in sys.argv:
        done = {(line["method"], line["K"], line["seed"]) for line in records()}
        for method, sizes, seed in runs():
            if (method, sizes[0], seed) in done:
                continue
            with RECORDS.open("a", encoding="utf-8") as file:
                for size, accuracy in zip(sizes, measured(method, sizes, seed), strict=True):
                    line = {"method": method, "K": size, "seed": seed, "accuracy": accuracy}
                    file.write(json.dumps(line) + "\n")
                    print(json.dumps(line), flush=True)
    print(markdown(HEADER, rows_of(records())))


if __name__ == "__main__":
    main()
