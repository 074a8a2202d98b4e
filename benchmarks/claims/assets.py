"""Write the image sets of the networks study that come from public repositories.

    python -m benchmarks.claims.assets cifar100 FOLDER $CREDIBLY_ASSETS/cifar100.npz
    python -m benchmarks.claims.assets flowers102 FOLDER $CREDIBLY_ASSETS/flowers102.npz

FOLDER is a copy of the repository, with one folder of images per class under ``train`` and ``test``
(and ``valid``, which counts as ``train``). benchmarks/results/networks.md names the repositories.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from credibly.data.splits import TEST, TRAIN
from credibly.types import Array

SIZES = {"cifar100": 32, "flowers102": 96}
PARTS = {"train": TRAIN, "valid": TRAIN, "test": TEST}
ENDINGS = (".png", ".jpg", ".jpeg")


def read(folder: Path, size: int) -> dict[str, Array]:
    """Return the images, squashed to squares of ``size`` pixels, one label per row."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    files = [path for path in found if path.parent.parent.name in PARTS]
    if not files:
        raise SystemExit(f"{folder} has no images in folders such as train/CLASS.")
    labels = sorted({path.parent.name for path in files})
    place = {name: number for number, name in enumerate(labels)}
    return {
        "images": np.stack([_pixels(path, size) for path in files]),
        "targets": np.array([place[path.parent.name] for path in files]),
        "labels": np.array(labels),
        "ids": np.array([path.relative_to(path.parents[2]).as_posix() for path in files]),
        "split": np.array([PARTS[path.parent.parent.name] for path in files], np.int8),
    }


def _pixels(path: Path, size: int) -> Array:
    with Image.open(path) as image:
        image.draft("RGB", (2 * size, 2 * size))  # a JPEG is read at a smaller scale
        small = image.convert("RGB").resize((size, size), Image.Resampling.BOX)
        return np.asarray(small)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims.assets", description=__doc__)
    parser.add_argument("name", choices=sorted(SIZES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    np.savez(arguments.out, **read(arguments.folder, SIZES[arguments.name]))


if __name__ == "__main__":
    main()
