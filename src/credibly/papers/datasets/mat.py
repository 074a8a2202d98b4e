"""MATLAB files of version 5 to 7: numbers, text, cells and structs, from untrusted files.

``scipy.io.loadmat`` supports more types, but a damaged file can crash the process. Here, every
length is checked against the available bytes before it is used.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from credibly.checks import InputError
from credibly.types import Array, JsonObject
from credibly.untrusted.budget import BUDGETS, read_bytes

MAX_BYTES, MAX_DEPTH = BUDGETS["mat"].file_bytes, BUDGETS["mat"].depth or 0
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR, NUMBERS = 1, 2, 4, range(6, 16)
STORED = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
TEXT = {1: "ascii", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}


def read_mat(path: Path, *names: str) -> JsonObject:
    """Return the variables ``names`` of a ``.mat`` file.

    Arrays are flattened column by column: numbers become an array, text a string, cells a list,
    and a struct array a dict of lists, one per field.

    Raises:
        InputError: naming the file, if it is not such a file, contains other types (objects,
            functions), or exceeds 256 MB after decompression.
    """
    if not path.exists():
        raise InputError(f"{path} is missing. This layout needs it.")
    try:
        variables = _variables(read_bytes(path, "mat"), set(names))
    except _Damaged as error:
        raise InputError(f"{path} must be a MATLAB file of version 5 to 7; {error}.") from None
    for name in names:
        if name not in variables:
            listed = ", ".join(variables) or "nothing"
            raise InputError(f"{path} must hold {name!r}; it holds {listed}.")
    return {name: variables[name] for name in names}


class _Damaged(Exception):
    """The defect of a file; the caller adds the name of the file."""


def _variables(content: bytes, names: set[str]) -> JsonObject:
    """Return the variables ``names``, and None for the others."""
    if content[124:126] in (b"\x00\x02", b"\x02\x00"):
        raise _Damaged("it is of version 7.3, save it with `-v7`")
    if len(content) < 128 or content[126:128] not in (b"IM", b"MI"):
        raise _Damaged("its header is not valid")
    order = "<" if content[126:128] == b"IM" else ">"
    outer, variables, left = _Bytes(content[128:], order), {}, MAX_BYTES
    while outer.remaining:
        kind, body = outer.element(padded=False)
        if kind == COMPRESSED:
            body = _decompressed(body, left)
            left -= len(body)
            kind, body = _Bytes(body, order).element()
        if kind != MATRIX:
            raise _Damaged(f"it holds an element of type {kind} where a variable is expected")
        name, value = _matrix(_Bytes(body, order), names, depth=0)
        variables[name] = value
    return variables


def _decompressed(body: bytes, limit: int) -> bytes:
    try:
        content = zlib.decompressobj().decompress(body, limit + 1)
    except zlib.error as error:
        raise _Damaged(str(error)) from None
    if len(content) > limit:
        raise _Damaged(f"it comes to more than {MAX_BYTES >> 20} MB once decompressed")
    return content


class _Bytes:
    """A block of bytes that is read element by element, never beyond its end."""

    def __init__(self, content: bytes, order: str) -> None:
        self.content, self.order, self.position = memoryview(content), order, 0

    @property
    def remaining(self) -> int:
        return len(self.content) - self.position

    def element(self, *, padded: bool = True) -> tuple[int, bytes]:
        """Return type and content of the next element."""
        kind, size = self._words(self.position)
        start = self.position + 8
        if kind >> 16:  # a small element: size and type in one word, content in the next
            kind, size, start = kind & 0xFFFF, kind >> 16, self.position + 4
            if size > 4:
                raise _Damaged("a small element is too long")
        if start + size > len(self.content):
            raise _Damaged("it is cut short")
        end = start + (4 if start == self.position + 4 else size)
        self.position = min(end + (-end % 8 if padded else 0), len(self.content))
        return kind, bytes(self.content[start : start + size])

    def numbers(self) -> Array:
        """Return the next element as numbers of its stored type."""
        kind, body = self.element()
        if kind not in STORED or len(body) % int(STORED[kind][1:]):
            raise _Damaged(f"it holds an element of type {kind} where numbers are expected")
        return np.frombuffer(body, dtype=f"{self.order}{STORED[kind]}")

    def _words(self, at: int) -> tuple[int, int]:
        if at + 8 > len(self.content):
            raise _Damaged("it is cut short")
        first, second = np.frombuffer(self.content[at : at + 8], dtype=f"{self.order}u4")
        return int(first), int(second)


def _matrix(body: _Bytes, names: set[str] | None, depth: int) -> tuple[str, Any]:
    """Return name and value; the value is None if the name is not in ``names``."""
    if not body.remaining:
        return "", np.zeros(0)
    if depth > MAX_DEPTH:
        raise _Damaged(f"it nests deeper than {MAX_DEPTH}")
    flags, sizes = body.numbers(), body.numbers()
    name = _text(*body.element(), body.order)
    if names is not None and name not in names:
        return name, None
    if not len(flags) or not len(sizes) or any(int(size) < 0 for size in sizes):
        raise _Damaged(f"the size of {name!r} is not valid")
    kind, count = int(flags[0]) & 0xFF, math.prod(int(size) for size in sizes)
    if kind in NUMBERS:
        return name, _checked(body.numbers(), count)
    if kind == CHAR:
        return name, _text(*body.element(), body.order)
    if kind == CELL:
        return name, _matrices(body, count, depth)
    if kind == STRUCT:
        return name, _struct(body, count, depth)
    raise _Damaged(f"{name!r} must be numbers, text, cells or structs, not class {kind}")


def _checked(numbers: Array, count: int) -> Array:
    if len(numbers) != count:
        raise _Damaged(f"an array of {count} has {len(numbers)} numbers")
    return numbers


def _matrices(body: _Bytes, count: int, depth: int) -> list[Any]:
    if count * 8 > body.remaining:  # each takes at least 8 bytes
        raise _Damaged("it is cut short")
    values = []
    for _ in range(count):
        kind, inner = body.element()
        if kind != MATRIX:
            raise _Damaged(f"it holds an element of type {kind} inside an array")
        values.append(_matrix(_Bytes(inner, body.order), None, depth + 1)[1])
    return values


def _struct(body: _Bytes, count: int, depth: int) -> dict[str, list[Any]]:
    length = body.numbers()
    _, names = body.element()
    if len(length) != 1 or int(length[0]) < 1 or len(names) % int(length[0]):
        raise _Damaged("the fields of a struct have no names")
    step = int(length[0])
    parts = [names[k : k + step].split(b"\0")[0] for k in range(0, len(names), step)]
    fields = [part.decode("ascii", "replace") for part in parts]
    values = _matrices(body, count * len(fields), depth)
    return {field: values[k :: len(fields)] for k, field in enumerate(fields)}


def _text(kind: int, body: bytes, order: str) -> str:
    if kind not in TEXT:
        raise _Damaged(f"it holds an element of type {kind} where text is expected")
    encoding = TEXT[kind]
    if encoding in ("utf-16", "utf-32"):
        encoding += "-le" if order == "<" else "-be"
    return body.decode(encoding, "replace").rstrip("\0 ")
