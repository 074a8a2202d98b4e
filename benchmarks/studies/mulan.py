"""Mulan's published tables as files of the study of the default.

    python -m benchmarks.studies.mulan FOLDER OUT

``FOLDER`` is ``data/multi-label`` of the repository tsoumakas/mulan; ``OUT`` gets ``flags.npz`` and
so on, for ``CREDIBLY_DATA=OUT python -m benchmarks.studies.default flags …``. Published test rows
stay; where there are none (cal500, foodtruck), a fifth of the rows is drawn with seed 0.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from credibly import data
from credibly.data.splits import TEST, TRAIN

SETS = {
    "flags": "flags/flags-train.arff",
    "birds": "birds/birds-train.arff",
    "foodtruck": "foodtruck/foodtruck.arff",
    "cal500": "cal500/cal500.arff",
    "genbase": "genbase/genbase-train.arff",
    "enron": "enron/enron-train.arff",
    "tmc2007": "tmc2007/tmc2007-500-train.arff",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.mulan")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, path in SETS.items():
        read = data.load(given.folder / path, seed=0)
        split = np.where(read.split == TEST, TEST, TRAIN)
        labels = np.array(read.labels)
        arrays = {"features": read.features, "targets": read.targets, "split": split}
        np.savez_compressed(given.out / f"{name}.npz", labels=labels, **arrays)
        print(name, read)


if __name__ == "__main__":
    main()
