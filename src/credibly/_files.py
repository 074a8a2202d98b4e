"""Files that are either whole or not there: write beside, flush to disk, then rename."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; on success it becomes ``path``.

    Killed at any instant, ``path`` holds either its old content or the whole new one. On an
    exception the temporary file is removed and ``path`` stays as it was.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "answer.txt"
        >>> with atomic_path(target) as beside:
        ...     _ = beside.write_text("42")
        >>> target.read_text()
        '42'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield beside
        _flush(beside)
        os.replace(beside, path)
        _flush(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
