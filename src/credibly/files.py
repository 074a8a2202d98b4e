"""Write files atomically: write a temporary file, flush it to disk, then rename it."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from credibly.checks import InputError, out_can_be_written

try:
    import fcntl
except ImportError:  # Windows has no such locks: no leftover file is removed
    fcntl = None

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; on success it becomes ``path``.

    If the process is killed at any moment, ``path`` holds either the old content or all of the new
    content. On an exception, the temporary file is removed and ``path`` is unchanged. If ``path``
    is a link, the file it points to is replaced. The new file gets the permissions of the old one.
    Temporary files of writers that were killed are removed first. Temporary files of writers that
    still run are never removed.

    Raises:
        InputError: if ``path`` is a folder, a device, a pipe or a socket.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "answer.txt"
        >>> with atomic_path(target) as beside:
        ...     _ = beside.write_text("42")
        >>> target.read_text()
        '42'
    """
    out_can_be_written(path, "path")
    path = Path(os.path.realpath(path))  # write through links, beside the file they point to
    make_folder(path.parent)
    sweep(path.parent, path.name)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with named_errors(path), _locked(beside.with_suffix(".lock")):
        try:
            yield beside
            _flush(beside)
            with suppress(FileNotFoundError):
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
            os.replace(beside, path)
            _flush(path.parent)
        finally:
            beside.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, and flush them to disk so that they survive a power loss."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        _flush(folder.parent)


@contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the file name to system errors that lack one, such as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def write_json(path: str | os.PathLike[str], document: object) -> None:
    """Write plain values as JSON; the file is complete or absent."""
    with atomic_path(path) as beside:
        beside.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def append_lines(path: str | os.PathLike[str], lines: Sequence[str]) -> None:
    """Append lines to a text file, and flush them to disk.

    Several processes may append at the same time; their lines never mix. On an error, the file is
    unchanged. A process that is killed while it writes can leave an incomplete line. The next call
    ends that line, and readers must skip lines that they cannot read.

    Raises:
        OSError: if the lines could not be written, for example without space or permission.
    """
    path = Path(path)
    with named_errors(path):
        _append(path, "".join(f"{line}\n" for line in lines).encode())


def _append(path: Path, data: bytes) -> None:
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            with suppress(OSError):  # no locks on this file system: a single write does not mix
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        data = (b"\n" if torn else b"") + data
        try:
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if new:
        _flush(path.parent)


def shared_lock(file: BinaryIO) -> None:
    """Wait until no process appends to an open file; writers then wait until it is closed."""
    if fcntl is not None:
        with suppress(OSError):  # no locks on this file system
            fcntl.flock(file, fcntl.LOCK_SH)


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed writers of ``name`` (default: any file) left.

    A temporary file is removed only while this process holds its lock. The system releases the
    lock of a writer when the writer dies, and not before. A temporary file without a lock file is
    also removed: a writer makes the lock file first and removes it last, so only a power loss can
    separate them. Files that cannot be read, locked or removed are left.
    """
    if fcntl is None:
        return
    target = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{target}\.[0-9a-f]{{8}}\.(lock|part)", re.DOTALL)
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if pattern.fullmatch(path.name)]:
            lock, part = path.with_suffix(".lock"), path.with_suffix(".part")
            if path == part and lock.exists():
                continue  # the lock file itself is handled with its temporary file
            with suppress(OSError), path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises without lock support
                part.unlink(missing_ok=True)
                lock.unlink(missing_ok=True)


def check_out(
    path: str | os.PathLike[str],
    endings: Sequence[str] = (),
    *,
    inputs: Sequence[str | os.PathLike[str]] = (),
) -> None:
    """Check an output file before the work that produces it.

    Args:
        path: the output file.
        endings: the endings it may have; empty allows any.
        inputs: the files that are read; ``path`` must not be one of them.

    Raises:
        InputError: if the ending is not allowed, the file is an input, or it cannot be written.
    """
    out = Path(path)
    if os.path.realpath(out) in {os.path.realpath(each) for each in inputs}:
        raise InputError(f"`out` must not be an input; {out} is.")
    if endings and out.suffix not in endings:
        raise InputError(f"`out` must end in {' or '.join(endings)}; got {str(out)!r}.")
    out_can_be_written(out)


def spreadsheet_cell(text: str) -> str:
    """Return text for a CSV cell that no spreadsheet runs as a formula.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return gets an apostrophe
    in front. So does text in which apostrophes already precede such a character. Numbers are
    unchanged. Different texts give different cells.

    Example:
        >>> spreadsheet_cell("=1+1"), spreadsheet_cell("-3.5"), spreadsheet_cell("a=b")
        ("'=1+1", '-3.5', 'a=b')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def spreadsheet_text(cell: str) -> str:
    """Return the text of a cell that ``spreadsheet_cell`` made.

    Example:
        >>> [spreadsheet_text(spreadsheet_cell(text)) for text in ("=x", "'=x", "-1", "'a")]
        ['=x', "'=x", '-1', "'a"]
    """
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on ``path``, a separate file: some writers replace the file they write."""
    with path.open("xb") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # no locks on this file system: without the file, no sweep removes ours
            path.unlink(missing_ok=True)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    if os.name != "posix" and path.is_dir():  # only POSIX systems open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
