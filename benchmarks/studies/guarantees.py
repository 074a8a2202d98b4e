"""Do recall and precision hold? 500 draws of the fitted rows, beside MAPIE.

``python -m benchmarks.studies.guarantees --peers PYTHON``, where PYTHON has MAPIE installed
(``pip install mapie`` into an environment of its own); without ``--peers`` only our own rules run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable

import numpy as np

from benchmarks.studies.guarantee_draws import (
    DELTA,
    LEVEL,
    PRECISION,
    ROWS,
    TRIALS,
    draw,
)
from benchmarks.studies.training import markdown
from credibly.decide import Precision, Recall

RULES: dict[str, Callable[[], Recall | Precision]] = {
    "recall, expected": lambda: Recall(LEVEL),
    "recall, probability": lambda: Recall(LEVEL, ("probability", DELTA)),
    "precision, probability": lambda: Precision(PRECISION, ("probability", DELTA)),
}
GRID = np.concatenate([[0.0], np.geomspace(1e-6, 1, 500)])


class Population:
    """Recall, precision and size as functions of the threshold, on many rows."""

    def __init__(self, *, zero_labels: bool) -> None:
        probabilities, truth = draw(30_000, 10**9, zero_labels=zero_labels)
        present = truth.sum(axis=1)
        rows = np.empty((len(GRID), 3))
        for place, threshold in enumerate(GRID):
            sets = probabilities > threshold
            sizes = sets.sum(axis=1)
            hits = (sets & (truth == 1)).sum(axis=1)
            some = sizes > 0
            precision = (hits[some] / sizes[some]).mean() if some.any() else 1.0
            rows[place] = (hits[present > 0] / present[present > 0]).mean(), precision, sizes.mean()
        self.curves = rows

    def at(self, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        recall, precision, size = (np.interp(thresholds, GRID, curve) for curve in self.curves.T)
        return recall, precision, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="a Python with MAPIE")
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    table = []
    peers: dict[str, list[float] | str] = {}
    if options.peers:
        peers = _peers(options.peers, options.trials)
    for zero_labels in (False, True):
        population = Population(zero_labels=zero_labels)
        rules: dict[str, np.ndarray | str] = {}
        for name, rule in RULES.items():
            draws = (draw(ROWS, seed, zero_labels=zero_labels) for seed in range(options.trials))
            found = np.array([rule().fit(*each).thresholds[0] for each in draws])
            rules[f"credibly|{name}"] = found
        for key, values in peers.items():
            name, zero = key.rsplit("|", 1)
            if zero == str(zero_labels):
                rules[f"MAPIE|{name}"] = values if isinstance(values, str) else np.array(values)
        for key, thresholds in sorted(rules.items(), key=lambda each: each[0].split("|")[1]):
            table.append(_line(key, thresholds, population, zero_labels))
    header = ["rows without labels", "rule", "by", "mean", "share of draws below", "labels per row"]
    print(markdown(header, table))


def _line(
    key: str, thresholds: np.ndarray | str, population: Population, zero_labels: bool
) -> list[str]:
    library, name = key.split("|")
    first = ["yes" if zero_labels else "no", name, library]
    if isinstance(thresholds, str):
        return [*first, thresholds[:90], "–", "–"]
    if (thresholds >= 1).all():
        return [*first, f"no threshold certified in {len(thresholds)} draws", "–", "–"]
    recall, precision, size = population.at(thresholds)
    values, level = (recall, LEVEL) if name.startswith("recall") else (precision, PRECISION)
    error = values.std(ddof=1) / len(values) ** 0.5
    below = f"{(values < level).mean():.3f}"
    return [*first, f"{values.mean():.4f} ± {error:.4f}", below, f"{size.mean():.2f}"]


def _peers(python: str, trials: int) -> dict[str, list[float] | str]:
    command = [python, "-m", "benchmarks.studies.peer_mapie", str(trials)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    document = json.loads(answer.splitlines()[-1])
    print(f"MAPIE {document['version']}\n")
    return document["thresholds"]


if __name__ == "__main__":
    main()
