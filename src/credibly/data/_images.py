"""Image files, decoded when asked for; what cannot be decoded is named."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly._checks import InputError
from credibly.types import Array

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 80_000_000
"""Larger images are refused before they are decoded: a small file can hold a huge one."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class ImageFiles(Sequence[Array]):
    """Images by path below one folder; ``files[i]`` decodes one as RGB.

    Paths that leave the folder, and files that are not there, are refused at once.
    """

    def __init__(self, folder: str | Path, names: Sequence[str], *, source: str = "") -> None:
        self.folder = Path(folder)
        self.names = list(names)
        self._source = source or str(folder)
        root = self.folder.resolve()
        missing = []
        for row, name in enumerate(self.names):
            path = self.folder / name
            if not path.resolve().is_relative_to(root):
                raise InputError(
                    f"{self._source}: paths must stay inside {self.folder}; row {row} names "
                    f"{name!r}."
                )
            if not path.is_file():
                missing.append(name)
        if missing:
            listed = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
            raise InputError(
                f"{self._source}: {len(missing)} of {len(self.names)} images are not in "
                f"{self.folder}: {listed}."
            )

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        with self.open(row) as image:
            return np.asarray(image.convert("RGB"))

    def take(self, rows: Array) -> ImageFiles:
        chosen = object.__new__(ImageFiles)
        chosen.folder, chosen._source = self.folder, self._source
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        chosen.names = [self.names[int(row)] for row in rows]
        return chosen

    def open(self, row: int, at_least: tuple[int, int] | None = None) -> Image:
        """The image, upright and fully decoded; JPEGs may come scaled to ``at_least`` that size."""
        return decode(self.folder / self.names[row], at_least)

    def bad(self, workers: int = 4) -> list[tuple[int, str]]:
        """Row and reason of every image that does not decode; all are decoded, in parallel."""

        def reason(row: int) -> str:
            try:
                self.open(row, at_least=(64, 64)).close()
            except InputError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(workers) as pool:
            reasons = pool.map(reason, range(len(self)))
            return [(row, text) for row, text in enumerate(reasons) if text]


def decode(path: Path, at_least: tuple[int, int] | None = None) -> Image:
    """One file as a PIL image; an error that names the file if that cannot be."""
    from PIL import Image, ImageOps

    try:
        image = Image.open(path)
        if image.width * image.height > MAX_PIXELS:
            raise InputError(
                f"{path}: images may have at most {MAX_PIXELS:,} pixels; this one claims "
                f"{image.width} × {image.height}. Scale it down first."
            )
        if at_least is not None:
            image.draft("RGB", at_least)
        image.load()
        return ImageOps.exif_transpose(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{path}: {error} Scale it down first.") from None
    except InputError:
        raise
    except Exception as error:  # decoders raise anything at all on damaged files
        raise InputError(
            f"{path} does not decode as an image ({type(error).__name__}: {error}). "
            "Repair or remove it, or load with skip_bad_images=True to count and drop such files."
        ) from error
