"""Images of rows: small copies on disk, and pictures of data that come with the package."""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from credibly.app.rendering import small_copy
from credibly.app.server.uploads import TemporaryFolder
from credibly.checks import InputError
from credibly.data import Data
from credibly.types import Array
from credibly.untrusted.images import ImageFolder

if TYPE_CHECKING:
    from PIL.Image import Image

    from credibly.train.run import Run

SIDE = 320
"""Pixels of the longer side of a small copy: a tile on a screen of high density."""

SMALL_FILE = 40_000
"""Bytes; smaller files are sent as they are."""

MOST_BYTES = 64 * 2**20
"""Of all small copies; those looked at longest ago are deleted."""

SCALE = 4
"""Pixels of a picture per pixel of a scene, which has few."""


class Thumbnails:
    """Small copies of images, made when they are first asked for, in a bounded folder."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder()
        self._made: OrderedDict[str, tuple[Path | None, int]] = OrderedDict()
        self._lock = Lock()

    def path(self, image: Path) -> Path | None:
        """Return a small copy; None where the file is small or cannot be decoded."""
        about = image.stat()
        if about.st_size <= SMALL_FILE:
            return None
        name = hashlib.sha256(f"{image}\0{about.st_mtime_ns}\0{about.st_size}".encode()).hexdigest()
        with self._lock:
            if name in self._made:
                self._made.move_to_end(name)
                return self._made[name][0]
        content = _smaller(image)
        with self._lock:
            path = None
            if content is not None:
                path = self._folder.path / f"{name}.jpg"
                path.write_bytes(content)
            self._made[name] = path, len(content or b"")
            while sum(size for _, size in self._made.values()) > MOST_BYTES and len(self._made) > 1:
                _, (old, _) = self._made.popitem(last=False)
                if old is not None:
                    old.unlink(missing_ok=True)
            return path

    def close(self) -> None:
        """Delete all copies."""
        with self._lock:
            self._made.clear()
            self._folder.close()


def _smaller(image: Path) -> bytes | None:
    """Return an image scaled down, as JPEG; None where it cannot be decoded."""
    file = io.BytesIO()
    try:
        small_copy(image, SIDE).save(file, "JPEG", quality=80)
    except InputError:
        return None
    return file.getvalue()


class EmbeddedImages(ImageFolder):
    """Scenes of digits as pictures, drawn when they are first asked for; deleted at exit."""

    def __init__(self, scenes: Data) -> None:
        self._temporary = TemporaryFolder()
        super().__init__(self._temporary.path)
        self._scenes, self._lock = scenes, Lock()
        self._rows = {str(name): row for row, name in enumerate(scenes.ids)}

    def _find(self, name: str) -> Path | None:
        row = self._rows.get(name)
        if row is None:
            return None
        path = self.folder / f"{row}.png"
        with self._lock:
            if not path.exists():
                _picture(self._scenes.image(row)).save(path, "PNG")
        return path


def _picture(pixels: Array) -> Image:
    from PIL.Image import Resampling, fromarray

    picture = fromarray(pixels.squeeze())
    return picture.resize((SCALE * picture.width, SCALE * picture.height), Resampling.NEAREST)


def embedded_images(run: Run) -> EmbeddedImages | None:
    """Return the pictures of a run on ``digits``; None if they cannot be made again as they were.

    A run keeps a fingerprint of its data, and how many training rows there were; scenes with
    other options than the usual ones are not found again.
    """
    if run.data.get("source") != "digits" or run.data["kind"] != "images":
        return None
    from credibly.data import load

    for n in _numbers(int(run.data["train_rows"])):
        scenes = load("digits", n=n, size=int(run.data["shape"][1]), seed=run.recipe.split_seed)
        if scenes.fingerprint() == run.data["fingerprint"]:
            return EmbeddedImages(scenes)
    return None


def _numbers(train_rows: int) -> list[int]:
    """Return how many scenes there may have been, of which so many were trained on.

    Example:
        >>> _numbers(2800), _numbers(3500)
        ([5000, 4000], [6250, 5000])
    """
    return [round(train_rows / 0.56), round(train_rows / 0.7)]  # with and without held-out rows
