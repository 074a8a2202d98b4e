"""Images that are decoded when asked for; errors name the ones that do not decode."""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from credibly.checks import InputError, input_file
from credibly.types import Array

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL.Image import Image

MAX_PIXELS = 80_000_000
"""Larger images are refused before they are decoded: a small file can hold a huge one."""

ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class LazyImages(Sequence[Array]):
    """A sequence of images; ``images[i]`` decodes one as RGB."""

    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.pixels(row)

    @abstractmethod
    def pixels(self, row: int, at_least: tuple[int, int] | None = None) -> Array:
        """Return RGB (height, width, 3), upright; JPEGs may come scaled to ``at_least`` that size.

        Args:
            row: which image.
            at_least: width and height.
        """

    @abstractmethod
    def take(self, rows: Array) -> LazyImages:
        """Return these rows, in this order."""

    def missing(self) -> list[int]:
        """Return the rows whose image is not there."""
        return []

    def bad(self, workers: int = 4) -> list[tuple[int, str]]:
        """Return row and reason of every image that does not decode; decodes all, in parallel."""

        def reason(row: int) -> str:
            try:
                self.pixels(row, at_least=(64, 64))
            except (InputError, OSError) as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(workers) as pool:
            reasons = pool.map(reason, range(len(self)))
            return [(row, text) for row, text in enumerate(reasons) if text]


class ImageFiles(LazyImages):
    """Files below one folder, or boxes (x, y, width, height) cut out of them.

    A path that leaves the folder is refused.
    """

    def __init__(
        self, folder: str | Path, names: Sequence[str], *, source: str, boxes: Array | None = None
    ) -> None:
        self.folder, self.boxes = Path(folder), boxes
        self.names = [_inside(self.folder, name, row, source) for row, name in enumerate(names)]

    def pixels(self, row: int, at_least: tuple[int, int] | None = None) -> Array:
        path = self.folder / self.names[row]
        if self.boxes is None:
            return decode_pixels(path, str(path), at_least)
        image = decode_pixels(path, str(path))
        height, width = image.shape[:2]
        x, y, box_width, box_height = (float(side) for side in self.boxes[row])
        left, top = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
        right = max(min(x + box_width, width), left + 1)
        bottom = max(min(y + box_height, height), top + 1)
        return image[round(top) : round(bottom), round(left) : round(right)]

    def take(self, rows: Array) -> ImageFiles:
        chosen = object.__new__(ImageFiles)
        chosen.folder = self.folder
        chosen.names = [self.names[int(row)] for row in rows]
        chosen.boxes = None if self.boxes is None else self.boxes[rows]
        return chosen

    def missing(self) -> list[int]:
        # One listing per folder: one look-up per file takes minutes on network disks.
        rows: dict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(self.names):
            rows[os.path.dirname(name)].append(row)
        absent = []
        for parent, members in rows.items():
            folder = self.folder / parent
            there = set(os.listdir(folder)) if folder.is_dir() else set()
            absent += [row for row in members if os.path.basename(self.names[row]) not in there]
        return sorted(absent)


class EncodedImages(LazyImages):
    """Images kept as the bytes of their files: ``column[i].as_py()`` of an Arrow column."""

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


def decode_image(
    file: Path | io.BytesIO, where: str, at_least: tuple[int, int] | None = None
) -> Image:
    """Return one PIL image, upright; raise an error that names the file if it does not decode."""
    from PIL import ImageOps

    with _opened(file, where, at_least) as (image, _):
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return image


def decode_pixels(
    file: Path | io.BytesIO, where: str, at_least: tuple[int, int] | None = None
) -> Array:
    """Return the RGB pixels of ``decode_image``; JPEGs by simplejpeg where it is installed.

    PIL and simplejpeg use libjpeg-turbo with the same settings, so the pixels are the same.
    """
    from PIL import ImageOps

    with _opened(file, where, at_least) as (image, stream):
        pixels = _fast_pixels(image, stream)
        if pixels is not None:
            return pixels
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return np.asarray(to_rgb(image))


@contextmanager
def _opened(
    file: Path | io.BytesIO, where: str, at_least: tuple[int, int] | None
) -> Iterator[tuple[Image, BinaryIO]]:
    """Give an image whose header is read, and its stream; word what decoders raise."""
    from PIL import Image

    try:
        if isinstance(file, Path):
            input_file(file)
        with file.open("rb") if isinstance(file, Path) else file as stream:
            image = Image.open(stream)
            if image.width * image.height > MAX_PIXELS:
                raise InputError(
                    f"{where}: images may have at most {MAX_PIXELS:,} pixels; this one claims "
                    f"{image.width} × {image.height}. Scale it down first."
                )
            if at_least is not None:
                image.draft("RGB", at_least)
            yield image, stream
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{where}: {error} Scale it down first.") from None
    except (InputError, MemoryError):
        raise
    except Exception as error:  # decoders raise anything at all on damaged files
        raise InputError(
            f"{where} does not decode as an image ({type(error).__name__}: {error}). "
            "Repair or remove it, or load with `skip_bad_images=True` to count and drop such files."
        ) from error


def _fast_pixels(image: Image, stream: BinaryIO) -> Array | None:
    """Return the pixels of an upright colour JPEG by simplejpeg, None for everything else.

    What simplejpeg does not decode without a warning is left to PIL, which says what is wrong.
    """
    decode = _fast_jpeg()
    if decode is None or image.format != "JPEG" or image.mode != "RGB":
        return None
    if image.getexif().get(ORIENTATION, 1) != 1:
        return None
    width, height = image.size  # as the header says, or as `draft` scaled it
    stream.seek(0)
    try:
        pixels = decode(stream.read(), "RGB", min_height=height, min_width=width)
    except (ValueError, RuntimeError):
        pixels = None
    stream.seek(0)
    return pixels if pixels is not None and pixels.shape == (height, width, 3) else None


@cache
def _fast_jpeg() -> Callable[..., Array] | None:
    """Return simplejpeg's decoder, None where it is not installed."""
    try:
        from simplejpeg import decode_jpeg  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return decode_jpeg


def to_rgb(image: Image) -> Image:
    """Return an image as RGB; 16-bit gray keeps its upper eight bits (PIL alone cuts them off)."""
    from PIL import Image as images

    if image.mode.startswith("I"):
        upper = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255)
        image = images.fromarray(upper.astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")


def _inside(folder: Path, name: str, row: int, source: str) -> str:
    path = PurePath(str(name).replace("\\", "/"))
    if path.is_absolute() and path.is_relative_to(folder.absolute()):
        path = path.relative_to(folder.absolute())
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise InputError(
            f"{source}, row {row}: an image must be a path inside {folder}; got {str(name)!r}."
        )
    return path.as_posix()
