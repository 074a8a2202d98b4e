"""Features of image regions, read on access, in the layouts of bottom-up attention.

======================  ==========================================================================
``FILE.tsv``            ten columns (LXMERT) or six (bottom-up attention), arrays as base64
``FILE.h5``, ``.hdf5``  ``image_features`` (images, regions, width), ``image_bb`` (images, regions,
                        4) and ``image_ids``; or one group per image with ``features``, ``boxes``
``FOLDER``              several such files; or one ``ID.npy`` per image, boxes in
                        ``ID.boxes.npy``; or one ``ID.npz``
======================  ==========================================================================
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from credibly.checks import InputError, input_file
from credibly.types import Array, JsonObject
from credibly.untrusted.arrays import hdf5_array, open_hdf5, read_array, read_arrays
from credibly.untrusted.budget import read_rows, worded

TSV_COLUMNS = {
    6: ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),
    10: (
        *("img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf"),
        *("num_boxes", "boxes", "features"),
    ),
}
_DIGITS = re.compile(r"(\d+)$")


def image_number(name: object) -> str:
    """Return the number at the end of an image's name, as in COCO: the key of its features.

    Example:
        >>> image_number("COCO_val2014_000000000042"), image_number(42)
        ('42', '42')
    """
    text = str(name)
    found = _DIGITS.search(text)
    return text if found is None else str(int(found[1]))


@dataclass(frozen=True)
class Region:
    """The regions of one image: features (regions, width), boxes (regions, 4) in [0, 1]."""

    features: Array
    boxes: Array


class RegionSource:
    """A file or folder of features by image number."""

    path: Path
    names: JsonObject
    width: int
    most: int
    """The number of regions of the first image; others have at most as many."""

    @abstractmethod
    def read(self, key: str) -> Region:
        """Return the regions of one image."""

    def _open(self) -> None:
        """Set width and number of regions from the first image."""
        if not self.names:
            raise InputError(f"{self.path} must hold features of at least one image; it is empty.")
        first = self.read(next(iter(self.names)))
        self.most, self.width = first.features.shape

    def checked(self, key: str) -> Region:
        """Return the regions of one image, checked against the shape of the first image."""
        region = self.read(key)
        count, width = region.features.shape
        if width != self.width or count > self.most:
            raise InputError(
                f"{self.path}, image {key}: features must have the shape of the first image, "
                f"{self.most} × {self.width}; got {count} × {width}. Use features of one extractor."
            )
        return region


class Regions(Sequence[Region]):
    """The regions of one image per row; several rows may use the same image."""

    def __init__(self, source: RegionSource, keys: Sequence[str]) -> None:
        self.source, self.keys = source, list(keys)

    @property
    def names(self) -> list[str]:
        """Return the names that enter a fingerprint."""
        return [f"{self.source.path.name} {self.shape}", *self.keys]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of regions and the width of their features."""
        return self.source.most, self.source.width

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, row: int) -> Region:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.source.checked(self.keys[row])

    def take(self, rows: Array) -> Regions:
        """Return these rows, in this order."""
        return Regions(self.source, [self.keys[int(row)] for row in rows])

    def batch(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return features (n, regions, width), boxes (n, regions, 4) and a mask of real regions."""
        most, width = self.shape
        features = np.zeros((len(rows), most, width), np.float32)
        boxes = np.zeros((len(rows), most, 4), np.float32)
        mask = np.zeros((len(rows), most), np.int64)
        for place, row in enumerate(rows):
            region = self[int(row)]
            count = len(region.features)
            features[place, :count], boxes[place, :count] = region.features, region.boxes
            mask[place, :count] = 1
        return features, boxes, mask


def open_regions(path: Path) -> RegionSource:
    """Open the features in a file or folder, by its layout."""
    if path.is_dir():
        files = [each for each in sorted(path.iterdir()) if each.suffix.lower() in FILES]
        return (
            _Several(path, [open_regions(file) for file in files]) if files else _ArrayFiles(path)
        )
    if not path.exists():
        raise InputError(f"`regions`: {path} does not exist. Give the file or folder of features.")
    input_file(path)
    if path.suffix.lower() in FILES:
        return FILES[path.suffix.lower()](path)
    raise InputError(
        f"`regions` must be a .tsv, .h5 or .hdf5 file or a folder of .npy files; got {path}."
    )


class _Several(RegionSource):
    """Several files of one feature extractor, such as those of train2014 and val2014."""

    def __init__(self, path: Path, sources: Sequence[RegionSource]) -> None:
        self.path, self.names = path, {}
        for source in sources:
            twice = next((key for key in source.names if key in self.names), None)
            if twice is not None:
                raise InputError(
                    f"{source.path}: image {twice} is also in {self.names[twice].path}; each image "
                    "must be in one file."
                )
            self.names |= dict.fromkeys(source.names, source)
        self._open()
        self.most = max(source.most for source in sources)

    def read(self, key: str) -> Region:
        return self.names[key].read(key)


class _Tsv(RegionSource):
    """A TSV file: lines are located once, and the arrays of an image are decoded on access."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, {}
        start = 0
        for row, line in enumerate(read_rows(path), start=1):
            name = line.partition(b"\t")[0].decode("utf-8", "replace").strip()
            columns = line.count(b"\t") + 1
            if columns not in TSV_COLUMNS:
                raise InputError(
                    f"{path}, row {row} must have 6 columns (bottom-up attention) or 10 "
                    f"(LXMERT), separated by tabs; got {columns}."
                )
            key = image_number(name)
            if key in self.names:
                raise InputError(f"{path}, row {row}: image {name!r} appears twice.")
            self.names[key] = (start, len(line), row)
            start += len(line)
        self._open()

    def read(self, key: str) -> Region:
        start, length, row = self.names[key]
        with self.path.open("rb") as file:
            file.seek(start)
            cells = file.read(length).rstrip(b"\r\n").split(b"\t")
        record = dict(zip(TSV_COLUMNS[len(cells)], cells, strict=True))
        where = f"{self.path}, row {row}"
        count = _whole(record["num_boxes"], f"{where}, column 'num_boxes'")
        height, width = (
            _whole(record.get(f"img_{side}", record.get(f"image_{side}", b"")), f"{where}, {side}")
            for side in ("h", "w")
        )
        boxes = _base64(record["boxes"], count, f"{where}, column 'boxes'")
        features = _base64(record["features"], count, f"{where}, column 'features'")
        if boxes.shape[1] != 4:
            raise InputError(
                f"{where}, column 'boxes' must hold 4 numbers per region; got {boxes.shape[1]}."
            )
        return Region(features, boxes / np.array([width, height, width, height], np.float32))


def _whole(cell: bytes, where: str) -> int:
    try:
        number = int(cell)
    except ValueError:
        number = 0
    if number < 1:
        raise InputError(f"{where} must be a whole number of at least 1; got {cell[:20]!r}.")
    return number


def _base64(cell: bytes, count: int, where: str) -> Array:
    try:
        content = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise InputError(f"{where} must be base64; {error}.") from None
    if not content or len(content) % (4 * count):
        raise InputError(
            f"{where} must hold float32 numbers for {count} regions; got {len(content)} bytes."
        )
    return np.frombuffer(content, np.float32).reshape(count, -1)


class _Hdf5(RegionSource):
    """An HDF5 file, which stays open and is read on access."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = open_hdf5(path)
        with worded(f"{path} must be a complete HDF5 file of arrays"):
            if "image_features" in self.file:
                self.names = self._rows()
            else:
                self.names = {image_number(name): name for name in self.file}
        self._open()

    def _rows(self) -> JsonObject:
        lacking = [name for name in ("image_bb", "image_ids") if name not in self.file]
        if lacking:
            raise InputError(
                f"{self.path} must hold `image_features`, `image_bb` and `image_ids`; it has no "
                f"{lacking[0]!r}. A pickled table of ids cannot be read: add the ids as a dataset."
            )
        ids = [image_number(_text(each)) for each in hdf5_array(self.file, "image_ids", self.path)]
        return {key: row for row, key in enumerate(ids)}

    def read(self, key: str) -> Region:
        place, where = self.names[key], f"{self.path}, image {key}"
        with worded(f"{where} must be in a complete HDF5 file of arrays"):
            if isinstance(place, int):
                features = hdf5_array(self.file, "image_features", where, place)
                boxes = hdf5_array(self.file, "image_bb", where, place)
            else:
                features, boxes = _of_group(self.file[place], where)
            return _region(features, boxes, where)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _of_group(group: Any, where: str) -> tuple[Any, Any]:
    for name in ("features", "boxes"):
        if name not in group:
            raise InputError(f"{where} must hold `features` and `boxes`; it has no {name!r}.")
    return hdf5_array(group, "features", where), hdf5_array(group, "boxes", where)


class _ArrayFiles(RegionSource):
    """A folder with one file of arrays per image, never a pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = [*sorted(path.glob("*.npy")), *sorted(path.glob("*.npz"))]
        files = [file for file in files if not file.name.endswith(".boxes.npy")]
        self.names = {image_number(file.stem): file for file in files}
        self._open()

    def read(self, key: str) -> Region:
        file = self.names[key]
        try:
            if file.suffix == ".npz":
                features, boxes = _of_npz(read_arrays(file, NAMES, scalars=True), file)
            else:
                features = read_array(file)
                boxes = read_array(file.with_suffix(".boxes.npy"))
        except FileNotFoundError:
            raise InputError(
                f"{file.with_suffix('.boxes.npy')} is missing: the boxes of {file.name}, "
                "(regions, 4) as shares of the image's sides."
            ) from None
        return _region(features, boxes, str(file))


NAMES = ("x", "features", "bbox", "boxes", "image_w", "image_h")


def _of_npz(arrays: dict[str, Array], file: Path) -> tuple[Array, Array]:
    """Return features and boxes from ``x``, ``bbox``, ``image_w``, ``image_h``, or plain names."""
    for name in ("x", "features"):
        if name in arrays:
            features = arrays[name]
            break
    else:
        raise InputError(f"{file} must hold an array `features` (or `x`); got {list(arrays)}.")
    name = "bbox" if "bbox" in arrays else "boxes"
    if name not in arrays:
        raise InputError(f"{file} must hold an array `boxes` (or `bbox`); got {list(arrays)}.")
    boxes = arrays[name]
    if features.ndim == 2 and features.shape[0] != len(boxes) == features.shape[1]:
        features = features.T  # stored as (width, regions)
    if "image_w" in arrays and "image_h" in arrays:
        sides = [float(arrays["image_w"]), float(arrays["image_h"])] * 2
        boxes = boxes / np.array(sides, np.float32)
    return features, boxes


def _region(features: Any, boxes: Any, where: str) -> Region:
    features, boxes = np.asarray(features, np.float32), np.asarray(boxes, np.float32)
    if features.ndim != 2 or boxes.shape != (len(features), 4):
        raise InputError(
            f"{where}: features must have shape (regions, width) and boxes (regions, 4); got "
            f"{features.shape} and {boxes.shape}."
        )
    return Region(features, boxes)


FILES = {".tsv": _Tsv, ".h5": _Hdf5, ".hdf5": _Hdf5}
