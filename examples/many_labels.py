"""Train, calibrate, evaluate and search with 100,000 labels, on made data.

Features are the sum of the directions of a few labels per row, whose frequencies fall as in public
data sets of this kind: most labels have a handful of rows. Nothing of size rows × labels is ever
in memory.

    python examples/many_labels.py [--labels 100000] [--rows 20000] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import credibly as cr
from credibly.data import Data
from credibly.predictions import Dataset
from credibly.retrieve import search
from credibly.targets import SparseTargets
from credibly.train import Network, fit
from credibly.workflows import calibrate_dataset


def made_rows(rows: int, labels: int, features: int = 64, seed: int = 0) -> Data:
    """Rows whose features are the sum of their labels' directions, and noise."""
    generator = np.random.default_rng(seed)
    directions = generator.normal(size=(labels, features)).astype(np.float32)
    frequency = 1 / np.arange(1, labels + 1) ** 1.0
    sizes = generator.poisson(3, rows)
    drawn = generator.choice(labels, sizes.sum(), p=frequency / frequency.sum())
    lists = [np.unique(part) for part in np.split(drawn, np.cumsum(sizes)[:-1])]
    targets = SparseTargets.from_lists(lists, labels)
    values = generator.normal(scale=0.3, size=(rows, features)).astype(np.float32)
    np.add.at(values, targets.entry_rows(), directions[targets.indices])
    return cr.data.from_arrays(features=values, targets=targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    out = Path(options.out or tempfile.mkdtemp())

    step("make rows")
    rows = made_rows(options.rows, options.labels)
    print(rows)
    step("train")
    recipe = Network(
        loss="bce", model="mlp", hidden=128, epochs=options.epochs, batch_size=256,
        learning_rate=1e-2, calibrate="none",
    )  # fmt: skip
    run = fit(rows, recipe, folder=out / "run")
    raw, calibrated = run.folder / "predictions.parquet", out / "calibrated.parquet"
    step("calibrate")
    print(calibrate_dataset(raw, calibrated, method="affine"))
    step("evaluate")
    for path in (raw, calibrated):
        print(cr.evaluate(path))
    step("search")
    first = next(Dataset(calibrated).batches())
    label = first.labels[int(np.bincount(first.top[:, 0]).argmax())]
    print(search(calibrated, f"+{label}", top=5))
    step("done")


_last = [time.process_time()]


def step(name: str) -> None:
    """Print the CPU seconds since the last step, and the peak of memory so far."""
    now, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"[{now - _last[0]:6.1f} s CPU, peak {peak / 2**20:.2f} GB] {name}", flush=True)
    _last[0] = now


if __name__ == "__main__":
    main()
