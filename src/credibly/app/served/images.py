"""Pictures of rows that a run was trained on, where its data come with the package."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

from credibly.app.server.uploads import TemporaryFolder
from credibly.data import Data, ImageFolder

SCALE = 4
"""Pixels of a picture per pixel of a scene, which has few."""


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


def _picture(pixels: Any) -> Any:
    from PIL import Image

    picture = Image.fromarray(pixels.squeeze())
    size = (SCALE * picture.width, SCALE * picture.height)
    return picture.resize(size, Image.Resampling.NEAREST)


def embedded_images(run: Any) -> EmbeddedImages | None:
    """Return the pictures of a run on ``digits``; None if they cannot be made again as they were.

    A run keeps a fingerprint of its data, and how many training rows there were; scenes with
    other options than the usual ones are not found again.
    """
    if run.data.get("source") != "digits" or run.data["kind"] != "images":
        return None
    from credibly.data import load

    for n in _numbers(int(run.data["train_rows"])):
        scenes = load("digits", n=n, size=int(run.data["shape"][1]), seed=run.settings.split_seed)
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
