"""Errors in the words of the command line: flags instead of Python arguments."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from credibly.cli.command import flag_of
from credibly.memory_limits import address_space_left

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# Libraries say so in errors of their own kinds, which only their words tell apart.
_MEMORY_HAS_ENDED = (
    "allocate memory",
    "out of memory",
    "failed to allocate",
    "failed to map segment",
    "can't start new thread",
    "failed to launch worker thread",
)
_NEARLY_NOTHING = 64 * 2**20  # bytes
OUT_OF_MEMORY = (
    "there is not enough memory for this; use fewer rows or labels, smaller batches, "
    "or a larger machine."
)


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error says that memory has ended.

    Example:
        >>> lacks_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …"))
        True
        >>> lacks_memory(RuntimeError("shapes do not match"))
        False
    """
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(words in text for words in _MEMORY_HAS_ENDED):
        return True
    # What could not allocate does not always say so: an extension returns without an exception
    # ("SystemError: error return without exception set"), an import ends half done.
    return not isinstance(error, OSError) and address_space_left() < _NEARLY_NOTHING


def sentence(error: BaseException) -> str:
    """Return one sentence for an error, as the library words it."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, UnicodeEncodeError):
        return f"names of files must be valid text (UTF-8); got {error.object!r}. Rename the file."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def in_flags(text: str, options: type[DataclassInstance], given: Mapping[str, object]) -> str:
    """Replace Python arguments in an error by the flags of a command.

    The library names arguments in backticks: ```average_size` must be …`` becomes
    ``--average-size must be …``, and ```coding="signed"``` becomes ``--coding signed``. In a
    message that begins with the name of a given file, a bare name is about the content of that
    file and stays.

    Args:
        text: the message.
        options: the ``Options`` of the command.
        given: what the command line says, by name of the field.

    Example:
        >>> @dataclasses.dataclass
        ... class Options:
        ...     average_size: float = 0
        >>> in_flags("`average_size` must be above 0; got 0.", Options, {"average_size": 0})
        '--average-size must be above 0; got 0.'
        >>> in_flags("Pass `average_size=2`.", Options, {})
        'Pass --average-size 2.'
    """
    fields = {field.name: field for field in dataclasses.fields(options)}
    of_file = any(
        text.startswith(f"{part}: ") for value in given.values() for part in _texts(value)
    )
    parts = text.split("`")  # every second one stands between backticks
    for index in range(1, len(parts) - 1, 2):
        name, equals, value = parts[index].partition("=")
        if name not in fields or (of_file and not equals):
            parts[index] = f"`{parts[index]}`"
        else:
            value = value.strip("'\"[]")
            shown = _shown(fields[name])
            parts[index] = shown if value in ("", "True") else f"{shown} {shlex.quote(value)}"
    return "".join(parts)


def _texts(value: object) -> list[str]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, str) and part]


def _shown(field: dataclasses.Field[object]) -> str:
    if field.metadata.get("positional"):
        return field.metadata.get("metavar") or field.name.upper()
    return flag_of(field)
