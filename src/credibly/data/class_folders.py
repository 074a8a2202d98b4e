"""Read images from one folder per class."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from credibly.checks import InputError, nearest
from credibly.data.images import ImageFiles
from credibly.data.rows import Data, class_targets, unknown_targets
from credibly.data.splits import CALIBRATION, TEST, TRAIN
from credibly.targets import SparseTargets, as_decoded
from credibly.types import Array
from credibly.untrusted.images import EXTENSIONS

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

    Without test images, the validation images are the test images.
    """
    parts = {
        folder.name: SPLIT_NAMES[folder.name.lower()]
        for folder in subfolders(path)
        if folder.name.lower() in SPLIT_NAMES
    }
    if not parts:
        if labels is not None and not subfolders(path):
            names = images_below(path)
            if not names:
                raise InputError(f"{path} must contain images or a folder for each class.")
            unknown = unknown_targets(len(names), len(labels))
            files = ImageFiles(path, names, source=str(path))
            return image_rows(files, unknown, None, labels, "imagefolder")
        return labelled_folders(path, {"": TRAIN}, labels)
    return labelled_folders(path, published_parts(parts), labels)


def published_parts(parts: Mapping[str, int]) -> dict[str, int]:
    """Return the use of each part. Validation rows calibrate, or test if there are no test rows."""
    if TEST in parts.values():
        return dict(parts)
    return {name: TEST if part == CALIBRATION else part for name, part in parts.items()}


def labelled_folders(
    root: Path,
    parts: Mapping[str, int],
    labels: Sequence[str] | None = None,
    source: str = "imagefolder",
) -> Data:
    """Return the images of ``root/PART/CLASS`` for each part; ``parts`` gives its use."""
    found: dict[str, dict[str, list[str]]] = {
        part: {folder.name: images_below(folder) for folder in subfolders(root / part)}
        for part in parts
    }
    for part in parts:
        loose = next(filter(_is_image, os.listdir(root / part)), None)
        if loose is not None:
            raise InputError(
                f"{root / part} must hold one folder per class; it also holds images, such as "
                f"{loose}. Move each image into the folder of its class, or remove it."
            )
    trained = {name for part in parts if parts[part] == TRAIN for name in found[part]}
    known = list(labels) if labels is not None else sorted(trained or set().union(*found.values()))
    if not known:
        raise InputError(f"{root} must contain one folder per class; it has no folders.")
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
    targets = as_decoded(class_targets(np.array(classes, dtype=int), len(labels), str(root)))
    return image_rows(ImageFiles(root, names, source=str(root)), targets, split, labels, source)


def image_rows(
    files: ImageFiles,
    targets: Array | SparseTargets,
    split: Sequence[int] | None,
    labels: Sequence[str],
    source: str,
    ids: Sequence[str] | None = None,
) -> Data:
    """Return photos with their labels. By default, ``ids`` are the names of the files."""
    return Data(
        labels=list(labels),
        targets=targets,
        ids=np.array(files.names if ids is None else ids, dtype=str),
        split=None if split is None else np.array(split),  # pyright: ignore[reportArgumentType]
        images=files,
        source=source,
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
        found += [os.path.normpath(os.path.join(inside, name)) for name in files if _is_image(name)]
    return sorted(found)


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")
