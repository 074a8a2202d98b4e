"""Images that are decoded on access; errors name the images that cannot be decoded."""

from __future__ import annotations

import copy
import io
import os
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Self

import numpy as np

from credibly.checks import InputError
from credibly.types import Array
from credibly.untrusted.images import decode_pixels

if TYPE_CHECKING:
    import pyarrow as pa


class LazyImages(Sequence[Array]):
    """A sequence of images; ``images[i]`` decodes one as RGB."""

    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.pixels(row)

    @abstractmethod
    def pixels(self, row: int, at_least: tuple[int, int] | None = None) -> Array:
        """Return an upright RGB image (height, width, 3). JPEGs may be scaled down to ``at_least``.

        Args:
            row: index of the image.
            at_least: minimum width and height.
        """

    @abstractmethod
    def take(self, rows: Array) -> LazyImages:
        """Return the images of these rows, in this order."""

    def missing(self) -> list[int]:
        """Return the rows whose image does not exist."""
        return []

    def bad(self) -> list[tuple[int, str]]:
        """Decode all images in parallel; return row and reason for each one that fails."""

        def reason(row: int) -> str:
            try:
                self.pixels(row, at_least=(64, 64))
            except (InputError, OSError) as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(4) as pool:
            reasons = pool.map(reason, range(len(self)))
            return [(row, text) for row, text in enumerate(reasons) if text]


class ImageFiles(LazyImages):
    """Image files below one folder. A path outside the folder is an error."""

    def __init__(self, folder: str | Path, names: Sequence[str], *, source: str) -> None:
        self.folder = Path(folder)
        self.names = [_inside(self.folder, name, row, source) for row, name in enumerate(names)]

    def pixels(self, row: int, at_least: tuple[int, int] | None = None) -> Array:
        path = self.folder / self.names[row]
        return decode_pixels(path, str(path), at_least)

    def take(self, rows: Array) -> Self:
        chosen = copy.copy(self)
        chosen.names = [self.names[int(row)] for row in rows]
        return chosen

    def missing(self) -> list[int]:
        # One listing per folder: a look-up per file takes minutes on network disks.
        @cache
        def held(parent: str) -> set[str]:
            folder = self.folder / parent
            return set(os.listdir(folder)) if folder.is_dir() else set()

        split = map(os.path.split, self.names)
        return [row for row, (parent, name) in enumerate(split) if name not in held(parent)]


class EncodedImages(LazyImages):
    """Images stored as the bytes of their files: ``column[i].as_py()`` of an Arrow column."""

    def __init__(self, column: pa.ChunkedArray, names: Sequence[str], *, source: str) -> None:
        self.names, self._column, self._source = list(names), column, source

    def pixels(self, row: int, at_least: tuple[int, int] | None = None) -> Array:
        encoded = self._column[row].as_py()
        where = f"{self._source}, image {self.names[row]!r}"
        return decode_pixels(io.BytesIO(encoded or b""), where, at_least)

    def take(self, rows: Array) -> EncodedImages:
        names = [self.names[int(row)] for row in rows]
        return EncodedImages(self._column.take(rows), names, source=self._source)

    def missing(self) -> list[int]:
        return np.flatnonzero(self._column.is_null().to_numpy()).tolist()


def _inside(folder: Path, name: str, row: int, source: str) -> str:
    path = PurePath(str(name).replace("\\", "/"))
    if path.is_absolute() and path.is_relative_to(folder.absolute()):
        path = path.relative_to(folder.absolute())
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise InputError(
            f"{source}, row {row}: an image must be a path inside {folder}; got {str(name)!r}."
        )
    return path.as_posix()
