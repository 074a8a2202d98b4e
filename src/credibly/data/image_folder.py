"""Images by row id, from inside one folder and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from credibly.checks import InputError


class ImageFolder:
    """A folder of images whose names are row ids, with or without their ending.

    Attributes:
        folder: where they lie.
        types: endings that count as images, with their media types. Not SVG: it can carry scripts.

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
            raise InputError(f"images must be in a folder; {folder} is none.")
        self.find = lru_cache(maxsize=4096)(self._find)

    def _find(self, name: str) -> Path | None:
        """Return the file of a row; None where there is none inside the folder.

        Links are followed and what they lead to must lie inside as well.
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
