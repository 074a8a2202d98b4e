"""PASCAL VOC devkit: the classification lists, or the annotations if the lists are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from credibly.checks import InputError, nearest
from credibly.data.class_folders import image_rows
from credibly.data.images import ImageFiles
from credibly.data.rows import Data
from credibly.data.splits import TEST, TRAIN
from credibly.papers.datasets.folders import holding
from credibly.targets import UNKNOWN, as_decoded, from_signed
from credibly.types import Array
from credibly.untrusted.documents import read_lines, read_xml

LABELS = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)


def read_voc(path: Path) -> Data:
    """Read a ``VOCYEAR`` folder, or a devkit with one; a label of only difficult objects is −1.

    If the test annotations exist (2007), ``trainval`` is for training and ``test`` for testing.
    Otherwise (2012), ``train`` is for training and ``val`` for testing.
    """
    root = holding(path, "ImageSets/Main")
    sets = root / "ImageSets" / "Main"
    lists = {"train": TRAIN, "val": TEST}
    if (sets / "test.txt").exists() and (sets / "trainval.txt").exists():
        tests = read_lines(sets / "test.txt")
        if tests and (root / "Annotations" / f"{tests[0]}.xml").exists():
            lists = {"trainval": TRAIN, "test": TEST}
    ids, split, targets = [], [], []
    for name, part in lists.items():
        members = [line.split()[0] for line in read_lines(sets / f"{name}.txt")]
        if not members:
            raise InputError(f"{sets / name}.txt must list images, one per line; it lists none.")
        ids += members
        split += [part] * len(members)
        if all((sets / f"{label}_{name}.txt").exists() for label in LABELS):
            targets.append(_from_lists(sets, name, members))
        else:
            notes = root / "Annotations"
            targets.append(np.stack([_from_annotation(notes / f"{id_}.xml") for id_ in members]))
    files = [f"JPEGImages/{name}.jpg" for name in ids]
    images, found = ImageFiles(root, files, source=str(root)), as_decoded(np.concatenate(targets))
    return image_rows(images, found, split, LABELS, root.name.lower(), ids)


def _from_lists(sets: Path, name: str, members: list[str]) -> Array:
    """Return the targets of one list per label: 1 present, −1 absent, 0 only difficult objects."""
    targets = np.zeros((len(members), len(LABELS)), dtype=np.int8)
    for column, label in enumerate(LABELS):
        file = sets / f"{label}_{name}.txt"
        lines = [line.split() for line in read_lines(file)]
        if [line[0] for line in lines] != members:
            raise InputError(f"{file} must list the images of {name}.txt, in order.")
        for row, line in enumerate(lines):
            if len(line) != 2 or line[1] not in ("1", "0", "-1"):
                raise InputError(f"{file}, row {row + 1} must be `image 1|0|-1`; got {line}.")
            targets[row, column] = int(line[1])
    return from_signed(targets)


def _from_annotation(file: Path) -> Array:
    targets = np.zeros(len(LABELS), dtype=np.int8)
    for thing in read_xml(file).iter("object"):
        label = (thing.findtext("name") or "").strip()
        if label not in LABELS:
            raise InputError(f"{file}: {label!r} is no VOC class. {nearest(label, LABELS)}")
        difficult = (thing.findtext("difficult") or "0").strip() == "1"
        column = LABELS.index(label)
        if not difficult:
            targets[column] = 1
        elif targets[column] == 0:
            targets[column] = UNKNOWN
    return targets
