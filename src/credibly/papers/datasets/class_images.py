"""One class per image: Tiny-ImageNet and Pl@ntNet-300K."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from credibly.checks import InputError, nearest
from credibly.data.class_folders import class_images, images_below, labelled_folders
from credibly.data.rows import Data
from credibly.data.splits import CALIBRATION, TEST, TRAIN
from credibly.papers.datasets.folders import holding
from credibly.untrusted.documents import field, read_json, read_lines

SPECIES_FILES = ("plantnet300K_species_id_2_name.json", "plantnet300K_species_names.json")


def read_plantnet(path: Path) -> Data:
    """Read Pl@ntNet-300K: ``images/{train,val,test}/SPECIES_ID/image``; val rows calibrate."""
    path = holding(path, "images", "images_train", "train")
    root = path / "images" if (path / "images").is_dir() else path
    layouts = {"train": TRAIN, "val": CALIBRATION, "test": TEST}
    prefix = "" if (root / "train").is_dir() else "images_"
    for name in layouts:
        if not (root / f"{prefix}{name}").is_dir():
            raise InputError(
                f"{path} must contain images/train, images/val and images/test (or images_train "
                f"…), a folder for each species in them; {root / f'{prefix}{name}'} is missing."
            )
    data = labelled_folders(
        root, {f"{prefix}{name}": part for name, part in layouts.items()}, source="plantnet"
    )
    names = next(
        (path / file for file in SPECIES_FILES if (path / file).exists()),
        None,
    )
    return data if names is None else _renamed(data, read_json(names), str(names))


def read_tinyimagenet(path: Path) -> Data:
    """Read ``train/WNID/images/*.JPEG``, and ``val/images`` with ``val_annotations.txt``."""
    path = holding(path, "wnids.txt")
    wnids = read_lines(path / "wnids.txt")
    column = {wnid: index for index, wnid in enumerate(wnids)}
    names, classes, split = [], [], []
    for wnid in wnids:
        folder = path / "train" / wnid / "images"
        files = images_below(folder) if folder.is_dir() else []
        if not files:
            raise InputError(f"{folder} must hold the training images of {wnid}; it has no images.")
        names += [f"train/{wnid}/images/{name}" for name in files]
        classes += [column[wnid]] * len(files)
        split += [TRAIN] * len(files)
    annotations = path / "val" / "val_annotations.txt"
    for row, line in enumerate(read_lines(annotations)):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in column:
            raise InputError(
                f"{annotations}, row {row + 1}: {wnid!r} is not in {path / 'wnids.txt'}. "
                f"{nearest(wnid, wnids)}"
            )
        names.append(f"val/images/{name}")
        classes.append(column[wnid])
        split.append(TEST)
    data = class_images(path, names, classes, split, wnids, "tinyimagenet")
    data = dataclasses.replace(data, augmentation="shift+flip")
    words = path / "words.txt"
    if not words.exists():
        return data
    lines = [line.partition("\t") for line in read_lines(words)]
    return _renamed(data, {wnid: name for wnid, _, name in lines if wnid in column}, str(words))


def _renamed(data: Data, names: Mapping[str, str], where: str) -> Data:
    """Return ``data`` with readable label names; duplicate names get the class id as a suffix."""
    found = [str(field(names, label, where)) for label in data.labels]
    labels = [
        name if found.count(name) == 1 else f"{name} ({label})"
        for label, name in zip(data.labels, found, strict=True)
    ]
    return dataclasses.replace(data, labels=labels)
