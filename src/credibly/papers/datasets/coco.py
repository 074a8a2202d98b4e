"""COCO: ``annotations/instances_{train,val}YEAR.json`` and the images."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from credibly.checks import InputError, fits_memory
from credibly.data.class_folders import image_rows
from credibly.data.images import ImageFiles
from credibly.data.rows import Data
from credibly.data.splits import TEST, TRAIN
from credibly.papers.datasets.folders import first_folder, holding
from credibly.types import Array
from credibly.untrusted.documents import field, read_json

KEEP = ("images", "annotations", "categories", "id", "file_name", "image_id", "category_id", "name")


def read_coco(path: Path, *, year: int | None = None, drop_empty: bool = False) -> Data:
    """Read COCO, with val images as test rows; a label is present if any object has it.

    Crowds count as objects.

    Args:
        path: the folder of ``annotations`` and the images.
        year: year of the files, where there are several.
        drop_empty: leave out images without any object (82,081 and 40,137 of 2014's remain).
    """
    path = holding(path, "annotations/instances_train[0-9]*.json")
    year = _year(path, year)
    names, ids, split, targets = [], [], [], []
    labels: list[str] = []
    for part, code in (("train", TRAIN), ("val", TEST)):
        file = path / "annotations" / f"instances_{part}{year}.json"
        content = read_json(file, keep=KEEP)
        found = _categories(content, file)
        labels = labels or list(found.values())
        if list(found.values()) != labels:
            raise InputError(f"{file} must have the categories of the training file, in order.")
        folder = first_folder(path, f"{part}{year}", f"images/{part}{year}")
        files, matrix = _presence(content, list(found), file)
        names += [f"{folder.relative_to(path)}/{name}" for name in files]
        ids += [f"{part}{year}/{name}" for name in files]
        split += [code] * len(files)
        targets.append(matrix)
    images = ImageFiles(path, names, source=str(path))
    data = image_rows(images, np.concatenate(targets), split, labels, f"coco{year}", ids)
    return data.take(np.flatnonzero(data.dense_targets.any(axis=1))) if drop_empty else data


def _year(path: Path, year: int | None) -> int:
    files = sorted((path / "annotations").glob("instances_train*.json"))
    years = [int(match[1]) for file in files if (match := re.search(r"train(\d+)$", file.stem))]
    if year is None and len(years) == 1:
        return years[0]
    if year is not None and year in years:
        return year
    raise InputError(
        f"{path} holds the years {years}. Choose one, for example `year={years[-1]}`; got {year}."
    )


def _categories(content: object, file: Path) -> dict[int, str]:
    items = _items(content, "categories", file)
    found = {
        _number(item, "id", f"{file}, category {n}"): str(
            field(item, "name", f"{file}, category {n}")
        )
        for n, item in enumerate(items)
    }
    return dict(sorted(found.items()))


def _items(content: object, key: str, file: Path) -> list[object]:
    items = field(content, key, str(file))
    if not isinstance(items, list):
        raise InputError(f"{file}: {key!r} must be a list; got {str(items)[:80]}.")
    return items


def _number(record: object, key: str, where: str) -> int:
    value = field(record, key, where)
    if not isinstance(value, int):
        raise InputError(f"{where}: {key!r} must be a whole number; got {str(value)[:80]}.")
    return value


def _presence(content: object, categories: list[int], file: Path) -> tuple[list[str], Array]:
    images = _items(content, "images", file)
    row = {_number(image, "id", f"{file}, image {n}"): n for n, image in enumerate(images)}
    column = {category: n for n, category in enumerate(categories)}
    fits_memory(f"{file}: targets", len(images), len(categories))
    targets = np.zeros((len(images), len(categories)), dtype=np.float32)
    for n, note in enumerate(_items(content, "annotations", file)):
        image = _number(note, "image_id", f"{file}, annotation {n}")
        category = _number(note, "category_id", f"{file}, annotation {n}")
        if image not in row or category not in column:
            raise InputError(
                f"{file}, annotation {n}: image {image} and category {category} must both be "
                "listed in the file."
            )
        targets[row[image], column[category]] = 1
    files = [str(field(image, "file_name", f"{file}, image {n}")) for n, image in enumerate(images)]
    return files, targets
