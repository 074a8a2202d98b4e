"""A disk that fails: operations that raise, and a power loss that forgets what was not flushed.

``PowerLoss`` models what a file system may legally keep. Content counts as kept once the file was
flushed (fsync); before that it may be empty, cut off, full of zeros or all there. A name (made,
renamed, removed) counts as kept once its folder was flushed; before that each name is, on its own,
as it was or as it is now, so renames may be kept in any order.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_ENTRY = tuple[str, int]  # "file" or "folder", and its inode


class FailingDisk:
    """Let the ``at``-th operation on ``folder`` raise, and only that one."""

    def __init__(self, folder: Path, at: int) -> None:
        self.folder, self.left = str(folder), at
        self.error = ERRORS[at % len(ERRORS)]

    def arm(self) -> None:
        """Replace the functions through which files are made, flushed, renamed and removed."""
        import io
        import pathlib

        for module, name in (
            (os, "fsync"),
            (os, "replace"),
            (os, "mkdir"),
            (os, "open"),
            (io, "open"),
        ):
            setattr(module, name, self._failing(getattr(module, name)))
        pathlib.io.open = io.open  # type: ignore[attr-defined]

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *rest: Any, **options: Any) -> Any:
            if self._ours(target) and not _reads(rest, options, real.__name__):
                self.left -= 1
                if self.left == 0:
                    raise OSError(self.error, os.strerror(self.error), _name(target))
            return real(target, *rest, **options)

        return call

    def _ours(self, target: object) -> bool:
        return _name(target).startswith(self.folder)


def _name(target: object) -> str:
    if isinstance(target, int):
        return os.readlink(f"/proc/self/fd/{target}")
    return str(target)


def _reads(rest: tuple[Any, ...], options: dict[str, Any], name: str) -> bool:
    if name != "open":
        return False
    mode = rest[0] if rest else options.get("mode", "r")
    if isinstance(mode, int):
        return not mode & (os.O_WRONLY | os.O_RDWR)
    return not set(mode) & set("wax+")


class PowerLoss:
    """Lose power at the ``at``-th flush, rename or removal in ``folder``; 0: after the last one.

    What is left is written to ``after``, and the process ends.
    """

    def __init__(self, folder: Path, after: Path, at: int, seed: int) -> None:
        self.folder, self.after, self.left = folder, after, at
        self.draw = random.Random(seed)
        self.kept: dict[int, bytes] = {}
        self.names: dict[str, dict[str, _ENTRY]] = {}
        self.code = 77
        self._held: list[int] = []  # open files, so that no inode is used twice

    def arm(self) -> None:
        """Take what is there as kept, and watch what is done from now on."""
        for where, _, _ in os.walk(self.folder):
            self._flush_folder(where)
            for kind, inode, path in self._entries(where):
                if kind == "file":
                    self._flush_file(inode, path)
        real_sync, real_replace, real_unlink = os.fsync, os.replace, os.unlink

        def fsync(descriptor: int) -> None:
            path = _name(descriptor)
            self._instant(path)
            real_sync(descriptor)
            if os.path.isdir(path):
                self._flush_folder(path)
            elif path.startswith(str(self.folder)):
                self._flush_file(os.fstat(descriptor).st_ino, path)

        def replace(source: str, target: str, **options: int) -> None:
            self._instant(str(target))
            real_replace(source, target, **options)

        def unlink(path: str, **options: int) -> None:
            self._instant(str(path))
            real_unlink(path, **options)

        os.fsync, os.replace, os.unlink = fsync, replace, unlink

    def _instant(self, path: str) -> None:
        if path.startswith(str(self.folder)):
            self.left -= 1
            if self.left == 0:
                self.lose_power()

    def _flush_folder(self, path: str) -> None:
        self.names[path] = {os.path.basename(p): (kind, i) for kind, i, p in self._entries(path)}

    def _flush_file(self, inode: int, path: str) -> None:
        with open(path, "rb", buffering=0) as file:
            self.kept[inode] = file.read()
            self._held.append(os.dup(file.fileno()))

    @staticmethod
    def _entries(where: str) -> list[tuple[str, int, str]]:
        found = []
        for name in sorted(os.listdir(where)):
            path = os.path.join(where, name)
            about = os.lstat(path)
            kind = "folder" if stat.S_ISDIR(about.st_mode) else "file"
            found.append((kind, about.st_ino, path))
        return found

    def lose_power(self) -> None:
        """Write what a disk may hold now to ``after`` and end the process at once."""
        self.after.mkdir(parents=True)
        self._leave(str(self.folder), self.after)
        os._exit(self.code)

    def _leave(self, where: str, after: Path) -> None:
        now = {os.path.basename(path): (kind, i) for kind, i, path in self._entries(where)}
        before = self.names.get(where, {})
        for name in sorted(now.keys() | before.keys()):
            entry = self.draw.choice([now.get(name), before.get(name)])
            if entry is None:
                continue
            kind, inode = entry
            if kind == "folder":
                (after / name).mkdir()
                if name in now:
                    self._leave(os.path.join(where, name), after / name)
            else:
                path = os.path.join(where, name)
                written = None  # nothing, where the name has gone to another file
                if now.get(name) == entry:
                    with suppress(OSError), open(path, "rb") as file:
                        written = file.read()
                (after / name).write_bytes(self._content(inode, written))

    def _content(self, inode: int, written: bytes | None) -> bytes:
        kept = self.kept.get(inode)
        if written is None or kept == written:
            return kept or b""
        cut = written[: self.draw.randint(0, len(written))]
        choices = [b"", cut, bytes(len(written)), written]
        return self.draw.choice(choices if kept is None else [*choices, kept])
