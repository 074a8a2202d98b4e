"""Store checksums in Parquet and safetensors files that cover every byte.

The writer puts ``PLACEHOLDER``, which contains zeros, into the metadata of the file. ``seal``
replaces the zeros with the SHA-256 of the file as it was. Every program can still read the file.
``verify`` computes the SHA-256 with the zeros restored and compares.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import BinaryIO, Literal

from credibly.checks import InputError

KEY = "credibly.checksum"
_VALUE = "sha256-of-file="
_DIGITS = 64
PLACEHOLDER = _VALUE + "0" * _DIGITS
# The formats put lengths and quotation marks between key and value.
_SEALED = re.compile(
    re.escape(KEY.encode()) + rb"[\x00-\x60]{1,8}?" + _VALUE.encode() + rb"([0-9a-f]{64})"
)
_MOST_METADATA = 2**28

ChecksumVerdict = Literal["sound", "damaged", "none"]


def seal(path: Path) -> None:
    """Replace the placeholder in the metadata of a file with its checksum.

    If names of labels look like a second placeholder, the file gets no checksum.
    """
    with path.open("r+b") as file:
        places = _places(file)
        if len(places) == 1:
            digest = _digest(file, places[0])
            file.seek(places[0])
            file.write(digest.encode())


def verify(path: Path) -> ChecksumVerdict:
    """Return whether the bytes of a file are the written ones, or "none" without a checksum."""
    with path.open("rb") as file:
        region = _metadata(file)[1]
        places = _places(file)
        if not places:
            traces = KEY.encode() in region or _VALUE.encode() in region
            return "damaged" if traces else "none"
        if len(places) > 1:
            return "none"
        file.seek(places[0])
        written = file.read(_DIGITS)
        return "sound" if _digest(file, places[0]).encode() == written else "damaged"


def check(path: Path) -> None:
    """Raise if a file has a checksum that does not match its bytes."""
    if verify(path) == "damaged":
        raise InputError(
            f"{path} is damaged: the file was changed after it was written (its checksum differs)."
        )


def identity(path: Path) -> str:
    """Return the checksum in a file, or the SHA-256 of a file without one.

    It distinguishes undamaged files without reading large ones completely.
    """
    with path.open("rb") as file:
        places = _places(file)
        if len(places) == 1:
            file.seek(places[0])
            return file.read(_DIGITS).decode()
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _places(file: BinaryIO) -> list[int]:
    """Return the offsets of checksum digits; names of labels may look like a checksum."""
    start, region = _metadata(file)
    return [start + match.start(1) for match in _SEALED.finditer(region)]


def _metadata(file: BinaryIO) -> tuple[int, bytes]:
    """Return the offset of the metadata of a file, and the metadata; empty for other formats."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    file.seek(0)
    if tail[4:] == b"PAR1":
        length = int.from_bytes(tail[:4], "little")
        start = size - 8 - length
    else:
        length, start = int.from_bytes(file.read(8), "little"), 8
    if start < 0 or length > min(size, _MOST_METADATA):
        return 0, b""
    file.seek(start)
    return start, file.read(length)


def _digest(file: BinaryIO, place: int) -> str:
    """Return the SHA-256 of a file with the digits at ``place`` replaced by zeros."""
    digest = hashlib.sha256()
    file.seek(0)
    left = place
    while left:
        block = file.read(min(left, 2**20))
        digest.update(block)
        left -= len(block)
    digest.update(b"0" * _DIGITS)
    file.seek(place + _DIGITS)
    while block := file.read(2**20):
        digest.update(block)
    return digest.hexdigest()
