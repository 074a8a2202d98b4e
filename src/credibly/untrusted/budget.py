"""Limit time and memory per file format, and read files within these limits.

Only modules of this package open foreign formats; a test checks this. Declared sizes are compared
with the memory of this machine before anything is allocated. If the library of a format cannot be
limited this way, a separate process reads the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.checks import InputError, fits_memory, input_file
from credibly.files import named_errors
from credibly.memory_limits import Limits, not_for_lack_of_memory

if TYPE_CHECKING:
    from credibly.types import Array

ANY = 2**42
"""Bytes of formats that are read in pieces, or whose memory is checked by what they declare."""


@dataclass(frozen=True)
class Budget:
    """The limits on a file of one format.

    Attributes:
        file_bytes: size of the file.
        unpacked: bytes of its compressed content.
        line: bytes of one line, for formats that are read line by line.
        depth: of nesting; None if the interpreter's recursion limit is enough.
        pixels: width × height.
        limits: limits of the process that reads it; None for formats that this process reads.
    """

    file_bytes: int
    unpacked: int | None = None
    line: int | None = None
    depth: int | None = None
    pixels: int | None = None
    limits: Limits | None = None


BUDGETS: Mapping[str, Budget] = {
    "configuration": Budget(2**20, depth=100),
    "toml": Budget(2**26, depth=100),
    "json": Budget(2**28),
    "data json": Budget(2**32),
    "xml": Budget(2**26, depth=100),
    "text": Budget(2**33, unpacked=2**33),
    "numbers in lines": Budget(ANY, line=2**28),
    "image": Budget(2**29, pixels=80_000_000),
    "arrays": Budget(ANY),
    "records": Budget(2**33),
    "parquet": Budget(ANY),
    "hdf5": Budget(ANY),
    "mat": Budget(2**28, unpacked=2**28, depth=20),
    "tokenizer": Budget(2**28),
    "safetensors": Budget(ANY),
    "onnx": Budget(2**31),
    "arrow": Budget(ANY, limits=Limits(memory=4 * 2**30, seconds=30)),
    "tensors": Budget(ANY, limits=Limits(memory=4 * 2**30, seconds=60)),
}
"""By format. A process that reads a file gets more time and memory the larger the file is."""


def read_bytes(path: str | os.PathLike[str], format: str) -> bytes:
    """Return the content of a plain file that is within the limit of its format and of memory.

    Raises:
        InputError: if it is a pipe, a device or a folder, or is too large.
    """
    check_file(path, format)
    limit = BUDGETS[format].file_bytes
    with named_errors(path), open(path, "rb") as file:
        # `read(limit)` alone would allocate the limit, which may exceed the limit of the process.
        content = file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)
    return _at_most(content, limit, path)


def check_file(path: str | os.PathLike[str], format: str) -> None:
    """Check that a path is a plain file that is within the limit of its format.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if it is a pipe, a device or a folder, or is too large.
    """
    input_file(path)
    size, budget = os.stat(path).st_size, BUDGETS[format]
    if size > budget.file_bytes:
        raise InputError(f"{path} must have at most {budget.file_bytes:,} bytes; it has {size:,}.")
    if budget.line is None and budget.file_bytes < ANY:
        fits_memory(str(path), size, itemsize=1)


def read_text(path: str | os.PathLike[str], format: str = "json") -> str:
    """Return the content of a UTF-8 text file.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if it is not a plain file, is too large, or is not text.
    """
    return utf8(read_bytes(path, format), path).removeprefix("\ufeff")


def utf8(content: bytes, where: object) -> str:
    """Return the text of bytes in UTF-8; the error says which byte of ``where`` is another code."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"byte 0x{content[error.start]:02x} at {error.start}: {error.reason}"
        raise InputError(
            f"{where} must be UTF-8 text; {reason}. Convert the file to UTF-8."
        ) from None


def read_rows(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file of any length; each line must be within the limit."""
    check_file(path, "numbers in lines")
    limit = BUDGETS["numbers in lines"].line or 0
    with named_errors(path), path.open("rb") as file:
        while line := file.readline(limit + 1):
            yield _at_most(line, limit, f"{path}: a line")


@contextmanager
def worded(must: str) -> Iterator[None]:
    """Turn the errors that libraries raise on damaged files into ``must; …``.

    System errors are not changed: the file is missing or not readable.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        not_for_lack_of_memory(error)
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{must}; {first_line(error)}.") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def _at_most(content: bytes, limit: int, where: object) -> bytes:
    if len(content) > limit:
        raise InputError(f"{where} must have at most {limit:,} bytes; it has more.")
    return content


# Files that a separate process reads --------------------------------------------------------------


def read_in_process(
    module: str, path: Path, format: str, advice: str = "", **job: object
) -> dict[str, Array]:
    """Return the arrays that ``module`` reads from a file, in a process with limits.

    Args:
        module: a module that calls ``serve_files``.
        path: the file.
        format: a key of ``BUDGETS``.
        advice: the end of the error about a file that exceeds the limits.
        job: arguments of the function that reads.

    Raises:
        InputError: the error of the reader, or one that says that the file exceeds the limits.
    """
    from credibly.child_processes import Worker

    check_file(path, format)
    with path.open("rb"):
        pass  # this raises the same errors as for other files that cannot be opened
    limits = _limits(path, format)
    with Worker(module, 4.0 * limits.seconds) as worker:
        arrays = worker.ask_arrays({"path": str(path), "format": format, **job})
    if arrays is None:
        raise InputError(
            f"{path} must be a file that is read within {limits.seconds} seconds and "
            f"{limits.memory / 2**30:.0f} GB; it is not. {advice}".rstrip()
        )
    return arrays


def serve_files(read: Callable[..., Mapping[str, Array]], format: str) -> None:
    """Answer ``read_in_process`` with ``read(path)`` until the parent ends."""
    from credibly.child_processes import array_jobs, serve_jobs

    def work(content: bytes, path: str, format: str, **job: object) -> Mapping[str, Array]:
        del content  # the function reads the file from disk
        _limits(Path(path), format).apply()
        return read(Path(path), **job)

    limits = BUDGETS[format].limits
    assert limits is not None
    serve_jobs(array_jobs(work), limits)


def _limits(path: Path, format: str) -> Limits:
    limits, size = BUDGETS[format].limits, path.stat().st_size
    assert limits is not None
    return Limits(limits.memory + 6 * size, limits.seconds + size // 2**24)
