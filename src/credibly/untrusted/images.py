"""Open untrusted image files of listed formats, with limits that are checked before decoding.

The package opens every image here. Pillow alone would open about forty formats, pass PostScript to
Ghostscript, and decode icons before their size is known.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from credibly.checks import InputError, require
from credibly.types import Array
from credibly.untrusted.budget import BUDGETS, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
"""Formats that are read, by Pillow's names."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""Endings of files that count as images."""

MAX_PIXELS = BUDGETS["image"].pixels or 0
"""A file of a few bytes can claim any number of pixels."""

MAX_SCANS = 100
"""A scan of a progressive JPEG takes 42 bytes and touches every pixel; encoders write about ten."""

SKIP = ", or load with `skip_bad_images=True` to count and drop such files"

ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held."""

# In the data of a scan, FF is followed by 00 or by a restart number. Otherwise FF starts a marker.
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_SCAN, _END, _TEMPORARY = 0xDA, 0xD9, 0x01


def decode_image(
    file: Path | io.BytesIO,
    where: str,
    at_least: tuple[int, int] | None = None,
    *,
    max_pixels: int = MAX_PIXELS,
) -> Image:
    """Return one upright PIL image.

    Args:
        file: the file, or its content.
        where: the name of the file in errors.
        at_least: width and height; a JPEG may be decoded at a smaller scale of at least this size.
        max_pixels: limit on width × height.

    Raises:
        InputError: if the file is too large, damaged, or in a format that is not in ``FORMATS``.
    """
    require("train", "PIL")
    from PIL import ImageOps

    with _opened(file, where, at_least, max_pixels) as (image, _):
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return image


def decode_pixels(
    file: Path | io.BytesIO, where: str, at_least: tuple[int, int] | None = None
) -> Array:
    """Return the RGB pixels of ``decode_image``; simplejpeg decodes JPEGs if it is installed.

    PIL and simplejpeg use libjpeg-turbo with the same settings, so the pixels are the same.
    """
    from PIL import ImageOps

    with _opened(file, where, at_least, advice=SKIP) as (image, content):
        pixels = _fast_pixels(image, content)
        if pixels is not None:
            return pixels
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return np.asarray(to_rgb(image))


@contextmanager
def _opened(
    file: Path | io.BytesIO,
    where: str,
    at_least: tuple[int, int] | None,
    max_pixels: int = MAX_PIXELS,
    advice: str = "",
) -> Iterator[tuple[Image, bytes]]:
    """Yield an image whose header is read, and its bytes; turn decoder errors into ours."""
    from PIL import Image, UnidentifiedImageError

    try:
        content = file.getvalue() if isinstance(file, io.BytesIO) else read_bytes(file, "image")
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > max_pixels:
            raise InputError(
                f"{where} must be an image of at most {max_pixels:,} pixels; this one claims "
                f"{image.width} × {image.height}. Scale it down first."
            )
        if image.format in ("JPEG", "MPO") and (scans := _scans(content)) > MAX_SCANS:
            raise InputError(
                f"{where} must be a JPEG of at most {MAX_SCANS} scans; this one has {scans:,}. "
                "Save it again with a program that you trust."
            )
        if at_least is not None:
            image.draft("RGB", at_least)
        yield image, content
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{where}: {error} Scale it down first.") from None
    except (InputError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise InputError(
            f"{where} does not decode as an image: it must be {', '.join(FORMATS[:-1])} or "
            f"{FORMATS[-1]}. Convert, repair or remove it{advice}."
        ) from error
    except Exception as error:  # decoders raise errors of any type on damaged files
        raise InputError(
            f"{where} does not decode as an image ({type(error).__name__}: {error}). "
            f"Repair or remove it{advice}."
        ) from error


def _scans(content: bytes) -> int:
    """Return the number of scans of a JPEG up to its end marker."""
    count, place = 0, 2
    while found := _MARKER.search(content, place):
        marker, place = found[1][0], found.end()
        if marker == _END:
            break
        if marker == _TEMPORARY:  # has no length field
            continue
        count += marker == _SCAN
        place += int.from_bytes(content[place : place + 2], "big")
    return count


def _fast_pixels(image: Image, content: bytes) -> Array | None:
    """Return the pixels of an upright colour JPEG, decoded by simplejpeg, or None.

    If simplejpeg would warn, PIL decodes the image instead and reports what is wrong.
    """
    decode = _fast_jpeg()
    if decode is None or image.format != "JPEG" or image.mode != "RGB":
        return None
    if image.getexif().get(ORIENTATION, 1) != 1:
        return None
    width, height = image.size  # from the header, or scaled by `draft`
    try:
        pixels = decode(content, "RGB", min_height=height, min_width=width)
    except (ValueError, RuntimeError):
        return None
    return pixels if pixels.shape == (height, width, 3) else None


@cache
def _fast_jpeg() -> Callable[..., Array] | None:
    """Return simplejpeg's decoder, or None if it is not installed."""
    try:
        from simplejpeg import decode_jpeg  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return decode_jpeg


def to_rgb(image: Image) -> Image:
    """Return an image as RGB; 16-bit gray keeps its upper eight bits (PIL would clip it)."""
    from PIL import Image as images

    if image.mode.startswith("I"):
        upper = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255)
        image = images.fromarray(upper.astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")


class ImageFolder:
    """A folder of images whose names are row ids, with or without an extension.

    Attributes:
        folder: the folder of the images.
        types: file extensions of images and their media types. SVG is missing: it can run scripts.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "7.png").write_bytes(b"...")
        >>> ImageFolder(folder).find("7").name
        '7.png'
    """

    types: ClassVar[Mapping[str, str]] = {
        ".jpg": "image/jpeg",
        ".jpeg": "image/jpeg",
        ".png": "image/png",
        ".gif": "image/gif",
        ".webp": "image/webp",
        ".bmp": "image/bmp",
    }

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise InputError(f"images must be in a folder; {folder} is not one.")
        self.find = lru_cache(maxsize=4096)(self._find)

    def _find(self, name: str) -> Path | None:
        """Return the image file of a row, or None if the folder contains none.

        Links are followed, and their targets must be inside the folder as well.
        """
        if not name or "\0" in name or len(name) > 1000:
            return None
        for candidate in (name, *(name + ending for ending in self.types)):
            try:
                path = (self.folder / candidate).resolve(strict=True)
            except (OSError, ValueError, RuntimeError):
                continue
            inside = path.is_relative_to(self.folder) and path.is_file()
            if inside and path.suffix.lower() in self.types:
                return path
        return None
