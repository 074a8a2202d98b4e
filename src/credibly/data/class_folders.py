"""A folder for each class: plain, Tiny-ImageNet and Pl@ntNet-300K."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from credibly.checks import InputError, nearest
from credibly.data.image_files import EXTENSIONS
from credibly.data.images import ImageFiles
from credibly.data.parsing import field, read_json, read_lines
from credibly.data.rows import Data
from credibly.data.splits import CALIBRATION, TEST, TRAIN
from credibly.data.target_columns import class_targets, unknown_targets

SPLIT_NAMES = {
    "train": TRAIN,
    "training": TRAIN,
    "trainval": TRAIN,
    "test": TEST,
    "testing": TEST,
    "calibration": CALIBRATION,
    "val": CALIBRATION,
    "valid": CALIBRATION,
    "validation": CALIBRATION,
    "dev": CALIBRATION,
}


def read_imagefolder(path: Path, *, labels: Sequence[str] | None = None) -> Data:
    """Read ``CLASS/image`` or ``train|val|test/CLASS/image``; with ``labels``, also loose images.

    Without test images, those for validation are the test images.
    """
    parts = {
        folder.name: SPLIT_NAMES[folder.name.lower()]
        for folder in subfolders(path)
        if folder.name.lower() in SPLIT_NAMES
    }
    if not parts:
        if labels is not None and not subfolders(path):
            return _unlabelled(path, labels)
        return _classes(path, {"": TRAIN}, labels)
    return _classes(path, published_parts(parts), labels)


def read_plantnet(path: Path) -> Data:
    """Read Pl@ntNet-300K: ``images/{train,val,test}/SPECIES_ID/image``; val calibrates."""
    root = path / "images" if (path / "images").is_dir() else path
    layouts = {"train": TRAIN, "val": CALIBRATION, "test": TEST}
    prefix = "" if (root / "train").is_dir() else "images_"
    for name in layouts:
        if not (root / f"{prefix}{name}").is_dir():
            raise InputError(
                f"{path} must contain images/train, images/val and images/test (or images_train "
                f"…), a folder for each species in them; {root / f'{prefix}{name}'} is missing."
            )
    data = _classes(
        root, {f"{prefix}{name}": part for name, part in layouts.items()}, source="plantnet"
    )
    names = next(
        (path / file for file in SPECIES_FILES if (path / file).exists()),
        None,
    )
    return data if names is None else renamed(data, read_json(names), str(names))


SPECIES_FILES = ("plantnet300K_species_id_2_name.json", "plantnet300K_species_names.json")


def read_tinyimagenet(path: Path) -> Data:
    """Read ``train/WNID/images/*.JPEG``, and ``val/images`` with ``val_annotations.txt``."""
    wnids = read_lines(path / "wnids.txt")
    column = {wnid: index for index, wnid in enumerate(wnids)}
    names, classes, split = [], [], []
    for wnid in wnids:
        folder = path / "train" / wnid / "images"
        files = images_below(folder) if folder.is_dir() else []
        if not files:
            raise InputError(f"{folder} must hold the training images of {wnid}; none are there.")
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
    return renamed(data, {wnid: name for wnid, _, name in lines if wnid in column}, str(words))


def published_parts(parts: Mapping[str, int]) -> dict[str, int]:
    """Return the parts where validation rows calibrate, or test if there are no test rows."""
    if TEST in parts.values():
        return dict(parts)
    return {name: TEST if part == CALIBRATION else part for name, part in parts.items()}


def renamed(data: Data, names: Mapping[str, str], where: str) -> Data:
    """Return ``data`` with readable label names; the class id is added where two are the same."""
    found = [str(field(names, label, where)) for label in data.labels]
    labels = [
        name if found.count(name) == 1 else f"{name} ({label})"
        for label, name in zip(data.labels, found, strict=True)
    ]
    return data.relabelled(labels)


def _classes(
    root: Path,
    parts: Mapping[str, int],
    labels: Sequence[str] | None = None,
    source: str = "imagefolder",
) -> Data:
    found: dict[str, dict[str, list[str]]] = {
        part: {folder.name: images_below(folder) for folder in subfolders(root / part)}
        for part in parts
    }
    trained = {name for part in parts if parts[part] == TRAIN for name in found[part]}
    known = list(labels) if labels is not None else sorted(trained or set().union(*found.values()))
    if not known:
        raise InputError(f"{root} must contain a folder for each class; none are there.")
    names, classes, split = [], [], []
    for part, folders in found.items():
        for folder, images in sorted(folders.items()):
            where = root / part / folder
            if folder not in known:
                raise InputError(
                    f"{where}: class {folder!r} is not among the {len(known)} classes of the "
                    f"training images. {nearest(folder, known)}"
                )
            if not images:
                raise InputError(f"{where} is empty; remove the folder or add its images.")
            names += [str(Path(part, folder, image)) for image in images]
            classes += [known.index(folder)] * len(images)
            split += [parts[part]] * len(images)
    return class_images(root, names, classes, split, known, source)


def class_images(
    root: Path,
    names: list[str],
    classes: list[int],
    split: list[int],
    labels: list[str],
    source: str,
) -> Data:
    """Return images with one class each."""
    files = ImageFiles(root, names, source=str(root))
    return Data(
        labels=labels,
        targets=class_targets(np.array(classes, dtype=int), len(labels), str(root)),
        ids=np.array(files.names),
        split=np.array(split),
        images=files,
        source=source,
        augmentation="crop+flip",
        coding="unknown",
    )


def _unlabelled(path: Path, labels: Sequence[str]) -> Data:
    names = images_below(path)
    if not names:
        raise InputError(f"{path} must contain images or a folder for each class.")
    return Data(
        labels=list(labels),
        targets=unknown_targets(len(names), len(labels)),
        ids=np.array(names),
        images=ImageFiles(path, names, source=str(path)),
        source="imagefolder",
        augmentation="crop+flip",
    )


def subfolders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise InputError(f"{path} must be a folder.")
    return sorted(
        Path(entry.path)
        for entry in os.scandir(path)
        if entry.is_dir() and not entry.name.startswith(".")
    )


def images_below(folder: Path) -> list[str]:
    """Return the paths of all images below ``folder``, relative to it, in a fixed order."""
    found = []
    for parent, _, files in os.walk(folder):
        inside = os.path.relpath(parent, folder)
        found += [
            os.path.normpath(os.path.join(inside, name))
            for name in files
            if name.lower().endswith(EXTENSIONS) and not name.startswith(".")
        ]
    return sorted(found)
