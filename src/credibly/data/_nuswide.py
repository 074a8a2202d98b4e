"""NUS-WIDE: 81 concepts, one file of 0 and 1 for each, in the order of the image lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from credibly.checks import InputError
from credibly.data._images import ImageFiles
from credibly.data._parse import first_folder, read_lines
from credibly.data._rows import Data
from credibly.data._split import TEST, TRAIN
from credibly.types import Array


def read_nuswide(path: Path, *, drop_empty: bool = False) -> Data:
    """The published lists and ground truth; images below ``Flickr``.

    ``drop_empty`` leaves out images without any concept, as papers do. Photos that Flickr no
    longer has are dropped by ``skip_bad_images=True``.
    """
    concepts = next(
        (
            file
            for file in (path / "ConceptsList" / "Concepts81.txt", path / "Concepts81.txt")
            if file.exists()
        ),
        None,
    )
    if concepts is None:
        raise InputError(f"{path} must contain ConceptsList/Concepts81.txt.")
    labels = read_lines(concepts)
    truth = first_folder(path, "Groundtruth/TrainTestLabels", "TrainTestLabels")
    lists = first_folder(path, "ImageList", "Imagelist", ".")
    names, split, targets = [], [], []
    for part, code in (("Train", TRAIN), ("Test", TEST)):
        members = [line.replace("\\", "/") for line in read_lines(lists / f"{part}Imagelist.txt")]
        columns = [_column(truth / f"Labels_{label}_{part}.txt", len(members)) for label in labels]
        names += members
        split += [code] * len(members)
        targets.append(np.stack(columns, axis=1))
    folder = first_folder(path, "Flickr", "images", "Images")
    data = Data(
        labels=labels,
        targets=np.concatenate(targets),
        ids=np.array(names),
        split=np.array(split),
        images=ImageFiles(folder, names, source=str(folder)),
        source="nuswide",
        augmentation="crop+flip",
    )
    return data.take(np.flatnonzero(data.targets.any(axis=1))) if drop_empty else data


def _column(file: Path, rows: int) -> Array:
    lines = read_lines(file)
    if len(lines) != rows:
        raise InputError(
            f"{file} must have a line for each of the {rows} images; got {len(lines)}."
        )
    for row, line in enumerate(lines):
        if line not in ("0", "1"):
            raise InputError(f"{file}, row {row + 1} must be 0 or 1; got {line!r}.")
    return np.array([line == "1" for line in lines], dtype=np.float32)
