"""Errors in the words of the command line: flags instead of Python arguments."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from credibly.cli.command import flags_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


OUT_OF_MEMORY = (
    "there is not enough memory. Use fewer rows or labels, smaller batches, or a larger machine."
)


def sentence(error: BaseException) -> str:
    """Return an error as one sentence, in the words of the library."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, UnicodeEncodeError):
        before, after = error.object[: error.start], error.object[error.start :]
        name = before.rpartition("\0")[2] + after.partition("\0")[0]
        return f"file names must be valid UTF-8; got {name!r}. Rename the file."
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"there is no file {error.filename}."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def in_flags(text: str, options: type[DataclassInstance], given: Mapping[str, object]) -> str:
    """Replace Python arguments in an error by the flags of a command.

    The library names arguments in backticks: ```average_size` must be …`` becomes
    ``--average-size must be …``, and ```coding="signed"``` becomes ``--coding signed``. If a
    message begins with the name of a given file, a bare name refers to the content of that file and
    does not change.

    Args:
        text: the message.
        options: the ``Options`` of the command.
        given: the values on the command line, by name of the field.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class Options:
        ...     average_size: float = 0
        >>> in_flags("`average_size` must be above 0; got 0.", Options, {"average_size": 0})
        '--average-size must be above 0; got 0.'
        >>> in_flags("Pass `average_size=2`.", Options, {})
        'Pass --average-size 2.'
    """
    flags = flags_of(options)
    shown = {
        flag.about["argument"]: flag.shown
        for flag in flags
        if "argument" in flag.about and given.get(flag.name) is not None
    }
    shown |= {flag.name: flag.shown for flag in flags}
    of_file = any(
        text.startswith(f"{part}: ") for value in given.values() for part in _texts(value)
    )
    parts = text.split("`")  # every second part is in backticks
    for index in range(1, len(parts) - 1, 2):
        name, equals, value = parts[index].partition("=")
        if name not in shown or (of_file and not equals):
            parts[index] = f"`{parts[index]}`"
        else:
            value = value.strip("'\"[]")
            given_as = "" if value in ("", "True") else f" {shlex.quote(value)}"
            parts[index] = shown[name] + given_as
    return "".join(parts)


def _texts(value: object) -> list[str]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, str) and part]
