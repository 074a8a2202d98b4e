"""NUS-WIDE: 81 concepts, each with a file of 0 and 1, in the order of the image lists."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np

from credibly.checks import InputError, choice
from credibly.data.class_folders import image_rows
from credibly.data.images import ImageFiles
from credibly.data.rows import Data
from credibly.data.splits import TEST, TRAIN
from credibly.papers.datasets.folders import first_folder, holding
from credibly.types import Array
from credibly.untrusted.documents import read_lines

GONG = 150_000 / 209_347
"""Share of the images with a concept that train in Gong et al. (2014)."""


def read_nuswide(
    path: Path, *, drop_empty: bool = False, split: Literal["published", "gong"] = "published"
) -> Data:
    """Read the published lists and ground truth; images are below ``Flickr``.

    Args:
        path: the folder of the data set.
        drop_empty: leave out images without any concept, as papers do.
        split: ``"published"``, the lists of the data set; or ``"gong"``, the protocol of Gong et
            al. (2014): images without a concept are left out, and 150,000 of the 209,347 that
            remain train, the others test. They published no lists, so ours are drawn: the first
            150,000 (that share, if there are fewer images) of
            ``numpy.random.default_rng(0).permutation``.

    ``skip_bad_images=True`` drops photos that Flickr no longer has.
    """
    choice("split", split, ("published", "gong"))
    path = holding(path, "ConceptsList/Concepts81.txt", "Concepts81.txt")
    labels = read_lines(first_folder(path, "ConceptsList", ".") / "Concepts81.txt")
    truth = first_folder(path, "Groundtruth/TrainTestLabels", "TrainTestLabels")
    lists = first_folder(path, "ImageList", "Imagelist", ".")
    names, parts, targets = [], [], []
    for part, code in (("Train", TRAIN), ("Test", TEST)):
        members = [line.replace("\\", "/") for line in read_lines(lists / f"{part}Imagelist.txt")]
        columns = [_column(truth / f"Labels_{label}_{part}.txt", len(members)) for label in labels]
        names += members
        parts += [code] * len(members)
        targets.append(np.stack(columns, axis=1))
    folder = first_folder(path, "Flickr", "images", "Images")
    images = ImageFiles(folder, names, source=str(folder))
    data = image_rows(images, np.concatenate(targets), parts, labels, "nuswide", names)
    if drop_empty or split == "gong":
        data = data.take(np.flatnonzero(data.dense_targets.any(axis=1)))
    return dataclasses.replace(data, split=_gong(len(data))) if split == "gong" else data


def _gong(rows: int) -> Array:
    parts = np.full(rows, TEST, dtype=np.int8)
    parts[np.random.default_rng(0).permutation(rows)[: round(GONG * rows)]] = TRAIN
    return parts


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
