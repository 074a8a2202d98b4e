"""Nine data sets of transfer learning, each in its published layout.

Each image has one label. Published validation rows are used for calibration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from credibly import checks
from credibly.checks import InputError, nearest
from credibly.data.class_folders import class_images, images_below, subfolders
from credibly.data.rows import Data
from credibly.data.splits import CALIBRATION, TEST, TRAIN
from credibly.papers.datasets.folders import first_folder, holding
from credibly.papers.datasets.mat import read_mat
from credibly.untrusted.documents import read_lines

PARTS = {"train": TRAIN, "val": CALIBRATION, "test": TEST}
LEVELS = {"variant": "variants", "family": "families", "manufacturer": "manufacturers"}


def read_aircraft(
    path: Path, *, level: Literal["variant", "family", "manufacturer"] = "variant"
) -> Data:
    """Read FGVC-Aircraft: ``data/images_variant_{train,val,test}.txt`` and ``data/images``.

    Args:
        path: the folder of the data set.
        level: what the classes are: 100 variants, 70 families or 30 manufacturers.
    """
    checks.choice("level", level, tuple(LEVELS))
    root = holding(path, f"images_{level}_train.txt")
    labels = read_lines(root / f"{LEVELS[level]}.txt")
    images = _Images(labels)
    for part, code in PARTS.items():
        file = root / f"images_{level}_{part}.txt"
        for row, line in enumerate(read_lines(file)):
            name, _, label = line.partition(" ")
            images.add(f"images/{name}.jpg", label.strip(), code, f"{file}, row {row + 1}")
    return images.data(root, "aircraft")


def read_caltech101(path: Path, *, per_class: int = 30) -> Data:
    """Read Caltech-101: ``101_ObjectCategories/CLASS/image_0001.jpg``.

    No split is published. As the authors do, ``per_class`` images of each class are training rows
    and the others test rows. Here they are the first of
    ``numpy.random.default_rng(0).permutation``, class by class in alphabetical order. The folder
    ``BACKGROUND_Google`` is an ordinary class.

    Args:
        path: the folder of the data set.
        per_class: training images of each class.
    """
    per_class = int(checks.at_least("per_class", per_class, 1))
    if path.name != "101_ObjectCategories":
        path = holding(path, "101_ObjectCategories") / "101_ObjectCategories"
    root = path
    folders = {folder.name: images_below(folder) for folder in subfolders(root)}
    if not folders:
        raise InputError(f"{root} must contain a folder for each class; none are there.")
    images = _Images(list(folders))
    generator = np.random.default_rng(0)
    for label, files in folders.items():
        if not files:
            raise InputError(f"{root / label} is empty; remove the folder or add its images.")
        trains = set(generator.permutation(len(files))[:per_class].tolist())
        for k, file in enumerate(files):
            images.add(f"{label}/{file}", label, TRAIN if k in trains else TEST, str(root))
    return images.data(root, "caltech101")


def read_cars(path: Path) -> Data:
    """Read Stanford Cars: ``devkit/*.mat`` and the folders of images, or ``cars_annos.mat``.

    The folders are ``cars_train`` and ``cars_test``, or ``car_ims`` with ``cars_annos.mat``.
    """
    path = holding(path, "cars_annos.mat", "cars_train")
    if (path / "cars_annos.mat").exists():
        return _cars_in_one_file(path)
    devkit = first_folder(path, "devkit", "car_devkit/devkit", ".")
    images = _Images(_names(devkit / "cars_meta.mat"))
    for part, code in (("train", TRAIN), ("test", TEST)):
        file = _first_file(devkit, path, names=_CARS[part])
        notes = _struct(read_mat(file, "annotations")["annotations"], ("class", "fname"), file)
        for row, (label, name) in enumerate(zip(notes["class"], notes["fname"], strict=True)):
            images.add_number(f"cars_{part}/{name}", label, code, f"{file}, row {row + 1}")
    return images.data(path, "cars")


_CARS = {
    "train": ("cars_train_annos.mat",),
    "test": ("cars_test_annos_withlabels.mat",),
}


def _cars_in_one_file(path: Path) -> Data:
    file = path / "cars_annos.mat"
    images = _Images(_names(file))
    fields = ("class", "relative_im_path", "test")
    notes = _struct(read_mat(file, "annotations")["annotations"], fields, file)
    for row, (label, name, test) in enumerate(zip(*notes.values(), strict=True)):
        where = f"{file}, row {row + 1}"
        code = TEST if _whole(test, where) else TRAIN
        images.add_number(str(name), label, code, where)
    return images.data(path, "cars")


def read_cub(path: Path) -> Data:
    """Read CUB-200-2011: ``images.txt``, ``image_class_labels.txt``, ``train_test_split.txt``."""
    root = holding(path, "images.txt")
    classes = _numbered(root / "classes.txt")
    files, labels, trains = (
        _numbered(root / f"{name}.txt")
        for name in ("images", "image_class_labels", "train_test_split")
    )
    images = _Images([name.partition(".")[2] or name for name in classes.values()])
    place = {key: index for index, key in enumerate(classes, 1)}
    for number, file in files.items():
        where = f"{root / 'images.txt'}, image {number}"
        for name, table in (("image_class_labels", labels), ("train_test_split", trains)):
            if number not in table:
                raise InputError(f"{where} must be in {name}.txt too; it is not.")
        if trains[number] not in ("0", "1"):
            raise InputError(
                f"{root / 'train_test_split.txt'}, image {number} must be 0 or 1; got "
                f"{trains[number]!r}."
            )
        code = TRAIN if trains[number] == "1" else TEST
        images.add_number(f"images/{file}", place.get(labels[number], labels[number]), code, where)
    return images.data(root, "cub")


def read_dtd(path: Path, *, partition: int = 1) -> Data:
    """Read DTD: ``labels/{train,val,test}N.txt`` and ``images/CLASS/``.

    Args:
        path: the folder of the data set.
        partition: N, which of the ten published splits.
    """
    root = holding(path, "labels")
    lists = {part: _partition(root / "labels", f"{part}{{}}.txt", partition) for part in PARTS}
    names = {part: read_lines(file) for part, file in lists.items()}
    images = _Images(sorted({name.partition("/")[0] for name in names["train"]}))
    for part, file in lists.items():
        for row, name in enumerate(names[part]):
            label = name.partition("/")[0]
            images.add(f"images/{name}", label, PARTS[part], f"{file}, row {row + 1}")
    return images.data(root, "dtd")


def read_flowers(path: Path) -> Data:
    """Read Flowers-102: ``imagelabels.mat``, ``setid.mat`` and ``jpg/image_00001.jpg``.

    The files contain numbers but no names, so the labels are ``"001"`` to ``"102"``.
    """
    root = holding(path, "setid.mat")
    file = root / "imagelabels.mat"
    numbers = read_mat(file, "labels")["labels"]
    labels = [_whole(number, f"{file}, image {row + 1}") for row, number in enumerate(numbers)]
    if not labels or min(labels) < 1 or max(labels) > 100_000:
        raise InputError(f"{file}: `labels` must be class numbers from 1; got {labels[:5]}.")
    images = _Images([f"{k + 1:03d}" for k in range(max(labels))])
    sets = read_mat(root / "setid.mat", "trnid", "valid", "tstid")
    for (name, members), code in zip(sets.items(), PARTS.values(), strict=True):
        for row, member in enumerate(members):
            where = f"{root / 'setid.mat'}, {name}, row {row + 1}"
            number = _whole(member, where)
            if not 1 <= number <= len(labels):
                raise InputError(f"{where}: images are numbered 1 to {len(labels)}; got {number}.")
            images.add_number(f"jpg/image_{number:05d}.jpg", labels[number - 1], code, where)
    return images.data(root, "flowers")


def read_food101(path: Path) -> Data:
    """Read Food-101: ``meta/{classes,train,test}.txt`` and ``images/CLASS/NUMBER.jpg``."""
    root = holding(path, "meta")
    images = _Images(read_lines(root / "meta" / "classes.txt"))
    for part, code in (("train", TRAIN), ("test", TEST)):
        file = root / "meta" / f"{part}.txt"
        for row, name in enumerate(read_lines(file)):
            label = name.partition("/")[0]
            images.add(f"images/{name}.jpg", label, code, f"{file}, row {row + 1}")
    return images.data(root, "food101")


def read_pets(path: Path) -> Data:
    """Read Oxford-IIIT Pets: ``annotations/{trainval,test}.txt`` and ``images``; 37 breeds."""
    root = holding(path, "annotations")
    rows: list[tuple[str, str, int, str]] = []
    for part, code in (("trainval", TRAIN), ("test", TEST)):
        file = root / "annotations" / f"{part}.txt"
        for row, line in enumerate(read_lines(file)):
            if line.startswith("#"):
                continue
            where = f"{file}, row {row + 1}"
            cells = line.split()
            if len(cells) != 4:
                raise InputError(f"{where} must be `image class species breed`; got {line!r:.80}.")
            rows.append((cells[0], cells[1], code, where))
    breeds: dict[str, str] = {}
    for name, number, _, where in rows:
        breed = name.rpartition("_")[0]
        if breeds.setdefault(number, breed) != breed:
            raise InputError(f"{where}: class {number} is {breeds[number]!r}; got {breed!r}.")
    numbers = sorted(breeds, key=lambda number: _whole(number, str(root)))
    images = _Images([breeds[number] for number in numbers])
    for name, number, code, where in rows:
        images.add(f"images/{name}.jpg", breeds[number], code, where)
    return images.data(root, "pets")


def read_sun397(path: Path, *, partition: int = 1) -> Data:
    """Read SUN397: ``ClassName.txt`` and ``{Training,Testing}_NN.txt``, here or in ``Partitions``.

    Images are below ``SUN397`` or below the folder itself.

    Args:
        path: the folder of the data set.
        partition: NN, which of the ten published splits.
    """
    path = holding(path, "SUN397", "Partitions", "ClassName.txt")
    lists = first_folder(path, "Partitions", "SUN397/Partitions", "SUN397", ".")
    names = _first_file(lists, path, path / "SUN397", names=("ClassName.txt",))
    classes = [name.strip("/") for name in read_lines(names)]
    images = _Images([re.sub(r"^\w/", "", name) for name in classes])
    place = {name: index for index, name in enumerate(classes, 1)}
    for part, code in (("Training", TRAIN), ("Testing", TEST)):
        file = _partition(lists, f"{part}_{{:02d}}.txt", partition)
        for row, line in enumerate(read_lines(file)):
            name = line.strip("/")
            where = f"{file}, row {row + 1}"
            folder = name.rpartition("/")[0]
            if folder not in place:
                raise InputError(f"{where}: {folder!r} is not in {names}. {nearest(folder, place)}")
            images.add_number(name, place[folder], code, where)
    root = path / "SUN397" if (path / "SUN397").is_dir() else path
    return images.data(root, "sun397")


class _Images:
    """Collect images with one label each, and check that the label is known, naming its row."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)
        self._place = {label: index for index, label in enumerate(self.labels)}
        self._names: list[str] = []
        self._classes: list[int] = []
        self._split: list[int] = []

    def add(self, name: str, label: str, part: int, where: str) -> None:
        """Add an image whose class is given by name."""
        if label not in self._place:
            raise InputError(
                f"{where}: class {label!r} is not among the {len(self.labels)} published ones. "
                f"{nearest(label, self.labels)}"
            )
        self._append(name, self._place[label], part)

    def add_number(self, name: str, number: object, part: int, where: str) -> None:
        """Add an image whose class is given by number, from 1."""
        index = _whole(number, where)
        if not 1 <= index <= len(self.labels):
            raise InputError(f"{where}: classes are 1 to {len(self.labels)}; got {index}.")
        self._append(name, index - 1, part)

    def _append(self, name: str, index: int, part: int) -> None:
        self._names.append(name)
        self._classes.append(index)
        self._split.append(part)

    def data(self, root: Path, source: str) -> Data:
        """Return the added images as rows."""
        if not self._names:
            raise InputError(f"{root} must list images; it lists none.")
        return class_images(root, self._names, self._classes, self._split, self.labels, source)


def _first_file(*folders: Path, names: Sequence[str]) -> Path:
    for folder in folders:
        for name in names:
            if (folder / name).exists():
                return folder / name
    raise InputError(f"{folders[0]} must contain {' or '.join(names)}.")


def _partition(folder: Path, pattern: str, partition: int) -> Path:
    file = folder / pattern.format(partition)
    if not 1 <= partition <= 10 or not file.exists():
        raise InputError(
            f"`partition` must be one of the published ones, 1 to 10; got {partition}, and "
            f"{file} is {'there' if file.exists() else 'missing'}."
        )
    return file


def _numbered(file: Path) -> dict[str, str]:
    """Return number → value of a file with both on each line."""
    found: dict[str, str] = {}
    for row, line in enumerate(read_lines(file)):
        number, _, value = line.partition(" ")
        if not number.isdecimal() or not value.strip() or number in found:
            raise InputError(
                f"{file}, row {row + 1} must be a new number and a value; got {line!r:.80}."
            )
        found[number] = value.strip()
    return found


def _names(file: Path) -> list[str]:
    names = read_mat(file, "class_names")["class_names"]
    if not isinstance(names, list):
        raise InputError(
            f"{file}: `class_names` must be cells of text; got {type(names).__name__}."
        )
    return [str(name) for name in names]


def _struct(notes: Any, fields: Sequence[str], file: Path) -> dict[str, list[Any]]:
    found = list(notes) if isinstance(notes, dict) else []
    lacking = next((field for field in fields if field not in found), None)
    if lacking is not None:
        listed = ", ".join(found) or "no fields"
        raise InputError(f"{file}: `annotations` must have the field {lacking!r}; it has {listed}.")
    return {field: notes[field] for field in fields}


def _whole(value: Any, where: str) -> int:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    try:
        number = float(value)
        if number == int(number):
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{where} must be a whole number; got {value!r:.80}.")
