"""Attributes of people and of images: WIDER-Attribute and VISPR."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from credibly.checks import InputError
from credibly.data.class_folders import image_rows
from credibly.data.images import ImageFiles
from credibly.data.rows import Data, listed_targets
from credibly.data.splits import CALIBRATION, TEST, TRAIN
from credibly.papers.datasets.folders import first_folder, holding
from credibly.targets import as_decoded, from_signed
from credibly.types import Array
from credibly.untrusted.documents import field, read_json, read_lines
from credibly.untrusted.images import EXTENSIONS

WIDER_IMAGES = ("Image", "image", "images")


def read_wider(path: Path) -> Data:
    """Read WIDER-Attribute: one row per person, cut out by its box; train and val both train.

    The files ``wider_attribute_trainval.json`` and ``wider_attribute_test.json`` are in the folder
    or in ``Anno``, and the images are below ``Image``.
    """
    name = "wider_attribute_{}.json"
    notes = holding(path, name.format("trainval"))
    root = notes if any((notes / folder).is_dir() for folder in WIDER_IMAGES) else notes.parent
    folder = first_folder(root, *WIDER_IMAGES)
    labels: list[str] = []
    names, ids, boxes, targets, split = [], [], [], [], []
    for part, code in (("trainval", TRAIN), ("test", TEST)):
        file = notes / name.format(part)
        content = read_json(file)
        known = field(content, "attribute_id_map", str(file))
        labels = labels or [str(known[key]) for key in sorted(known, key=int)]
        for n, image in enumerate(field(content, "images", str(file))):
            image_name = str(field(image, "file_name", f"{file}, image {n}"))
            for k, person in enumerate(field(image, "targets", f"{file}, image {n}")):
                where = f"{file}, image {n}, person {k}"
                names.append(image_name)
                ids.append(f"{image_name}#{k}")
                boxes.append(_box(field(person, "bbox", where), where))
                targets.append(_wider_targets(person, len(labels), where))
                split.append(code)
    # In the files, 1 is present, −1 absent and 0 unspecified.
    signed = np.array(targets, dtype=np.int8).reshape(-1, len(labels))
    images = _People(folder, names, np.array(boxes))
    return image_rows(images, as_decoded(from_signed(signed)), split, labels, "wider", ids)


class _People(ImageFiles):
    """Image files of which boxes (x, y, width, height) are cut out."""

    def __init__(self, folder: Path, names: Sequence[str], boxes: Array) -> None:
        super().__init__(folder, names, source=str(folder))
        self.boxes = boxes

    def pixels(self, row: int, at_least: tuple[int, int] | None = None) -> Array:
        image = super().pixels(row)  # boxes are in pixels of the whole image
        height, width = image.shape[:2]
        x, y, box_width, box_height = (float(side) for side in self.boxes[row])
        left, top = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
        right = max(min(x + box_width, width), left + 1)
        bottom = max(min(y + box_height, height), top + 1)
        return image[round(top) : round(bottom), round(left) : round(right)]

    def take(self, rows: Array) -> Self:
        chosen = super().take(rows)
        chosen.boxes = self.boxes[rows]
        return chosen


def _box(box: object, where: str) -> list[float]:
    if not isinstance(box, list) or len(box) != 4 or not all(np.isfinite(box)):
        raise InputError(f"{where}: bbox must be [x, y, width, height]; got {box!r}.")
    return [float(side) for side in box]


def _wider_targets(person: object, num_labels: int, where: str) -> list[int]:
    values = field(person, "attribute", where)
    if len(values) != num_labels or not all(value in (1, -1, 0) for value in values):
        raise InputError(
            f"{where}: attribute must hold {num_labels} of 1, -1 and 0; got {values!r}."
        )
    return [int(value) for value in values]


VISPR_PARTS = {"train2017": TRAIN, "val2017": CALIBRATION, "test2017": TEST}


def read_vispr(path: Path) -> Data:
    """Read VISPR: one JSON file per image with its ``labels``; val rows are for calibration.

    The files are in ``annotations/{train,val,test}2017``, or in the folders of the images.

    Label names and their order come from ``attributes.tsv`` if it exists, else from the training
    annotations.
    """
    path = holding(path, "annotations", "train2017")
    rows, names, split = [], [], []
    for part, code in VISPR_PARTS.items():
        folder = first_folder(path, f"annotations/{part}", part, f"images/{part}")
        images = first_folder(path, f"images/{part}", part).relative_to(path)
        files = sorted(folder.glob("*.json"))
        if not files:
            raise InputError(f"{folder} must hold one JSON file per image; none are there.")
        for file in files:
            note = read_json(file)
            rows.append([str(label) for label in field(note, "labels", str(file))])
            image = Path(str(field(note, "image_path", str(file)))).name
            if not image.lower().endswith(EXTENSIONS):
                raise InputError(f"{file}: image_path must name an image; got {image!r}.")
            names.append(f"{images.as_posix()}/{image}")
            split.append(code)
    labels = _vispr_labels(
        path, [row for row, part in zip(rows, split, strict=True) if part == TRAIN]
    )
    ids = [f"{Path(name).parent.name}/{Path(name).name}" for name in names]
    images = ImageFiles(path, names, source=str(path))
    targets = listed_targets(rows, labels, str(path))
    return image_rows(images, targets, split, labels, "vispr", ids)


def _vispr_labels(path: Path, rows: list[list[str]]) -> list[str]:
    table = path / "attributes.tsv"
    if table.exists():
        cells = [re.split(r"\t", line) for line in read_lines(table)]
        found = [cell for row in cells for cell in row if re.fullmatch(r"a\d+_\w+", cell.strip())]
        if found:
            return [label.strip() for label in found]
        raise InputError(f"{table} must name attributes like a0_safe; none are there.")
    return sorted({label for row in rows for label in row}, key=_natural)


def _natural(label: str) -> tuple[int, str]:
    """Return a sort key that puts ``a2_…`` before ``a10_…``."""
    match = re.match(r"a(\d+)", label)
    return (int(match[1]) if match else 1 << 30, label)
