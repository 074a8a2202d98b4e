"""Images by row id, from inside one folder and nowhere else."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

# Not SVG: it can carry scripts.
TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}


class Images:
    """A folder of images whose names are row ids, with or without their ending."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        from credibly.checks import InputError

        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise InputError(f"--images must name a folder; {folder} is none.")
        self.find = lru_cache(maxsize=4096)(self._find)

    def _find(self, name: str) -> Path | None:
        """Return the file of a row; None where there is none inside the folder.

        Links are followed and what they lead to must lie inside as well.
        """
        if not name or "\0" in name or len(name) > 1000:
            return None
        for candidate in (name, *(name + ending for ending in TYPES)):
            try:
                path = (self.folder / candidate).resolve(strict=True)
            except (OSError, ValueError, RuntimeError):
                continue
            inside = path.is_relative_to(self.folder) and path.is_file()
            if inside and path.suffix.lower() in TYPES:
                return path
        return None
