"""Small copies of the images of rows, in a bounded folder on disk."""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock

from credibly.app.rendering import small_copy
from credibly.app.server.uploads import TemporaryFolder
from credibly.checks import InputError

SIDE = 320
"""Pixels of the longer side of a small copy: a tile on a screen of high density."""

SMALL_FILE = 40_000
"""Bytes; smaller files are sent as they are."""

MOST_BYTES = 64 * 2**20
"""Of all small copies; those looked at longest ago are deleted."""


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
        path, file = None, io.BytesIO()
        with suppress(InputError):
            small_copy(image, SIDE).save(file, "JPEG", quality=80)
        with self._lock:
            if content := file.getvalue():
                path = self._folder.path / f"{name}.jpg"
                path.write_bytes(content)
            self._made[name] = path, len(content)
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
