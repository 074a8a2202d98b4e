"""``.npz`` files: features or images, targets, labels; optional ids, split, truth."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from credibly._checks import InputError, nearest
from credibly.data._rows import Data
from credibly.data._targets import class_targets, unknown_targets
from credibly.types import Array

KEYS = ("features", "images", "targets", "labels", "ids", "split", "truth", "human_probabilities")


def read_npz(path: Path, *, labels: Sequence[str] | None = None) -> Data:
    """The layout of docs/data.md; nothing in the file is executed (no pickled objects)."""
    arrays = _arrays(path)
    names = arrays.get("labels", labels)
    inputs = arrays.get("features", arrays.get("images"))
    if inputs is None:
        raise InputError(f"{path} must hold `features` or `images`; it holds {sorted(arrays)}.")
    targets = arrays.get("targets")
    if targets is None:
        if names is None:
            raise InputError(f"{path} must hold `targets`, or at least `labels` to predict.")
        targets = unknown_targets(len(inputs), len(names))
    if targets.ndim == 1:
        count = len(names) if names is not None else int(targets.max(initial=0)) + 1
        targets = class_targets(targets, count, str(path))
    if names is None:
        width = len(str(targets.shape[1] - 1))
        names = [f"label-{label:0{width}d}" for label in range(targets.shape[1])]
    images = arrays.get("images")
    return Data(
        labels=list(names),
        targets=targets,
        ids=arrays.get("ids"),  # pyright: ignore[reportArgumentType]
        split=arrays.get("split"),  # pyright: ignore[reportArgumentType]
        features=arrays.get("features"),
        images=images,
        truth=arrays.get("truth", arrays.get("human_probabilities")),
        source=path.name,
        # Flips are left out: nothing says that a mirrored image keeps its labels.
        augmentation="none" if images is None else "shift",
    )


def _arrays(path: Path) -> dict[str, Array]:
    try:
        # Opened here: numpy leaves its own handle open when the file is damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            strange = [key for key in archive.files if key not in KEYS]
            if strange:
                raise InputError(
                    f"{path}: unknown array {strange[0]!r}. {nearest(strange[0], KEYS)}"
                )
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        if isinstance(error, (FileNotFoundError, InputError)):
            raise
        raise InputError(
            f"{path} must be an .npz file of plain arrays (numpy.savez); {error}."
        ) from error
