"""Read arrays from untrusted ``.npz``, ``.npy`` and HDF5 files.

The declared sizes are compared with the file before anything is allocated. A zip of a few kilobytes
can unpack to terabytes, and a header of a hundred bytes can declare any shape.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from credibly.checks import InputError, fits_memory, nearest
from credibly.types import Array
from credibly.untrusted.budget import check_file, worded

PLAIN = "buifUS"
"""Kinds of cells that are only numbers or text."""

MAX_EMPTY = 1_000_000
MAX_ARRAYS = 1000


def read_arrays(
    path: Path, wanted: Sequence[str], *, only: bool = False, scalars: bool = False
) -> dict[str, Array]:
    """Return the ``wanted`` arrays that the file contains; pickled objects are refused.

    ``only``: another array is an error instead of being ignored. ``scalars``: single numbers are
    read too.
    """
    check_file(path, "arrays")
    must = f"{path} must be a complete .npz file of plain arrays (numpy.savez)"
    with worded(must), path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        for name in members if only else ():
            if name not in wanted:
                raise InputError(f"{path}: unknown array {name!r:.80}. {nearest(name, wanted)}")
        members = {name: one for name, one in members.items() if name in wanted}
        fits_memory(f"{path}", sum(one.file_size for one in members.values()), itemsize=1)
        found = {}
        for name, one in members.items():
            with archive.open(one) as member:
                found[name] = _content(member, one.file_size, f"{path}: `{name}`", scalars)
        return found


def read_array(path: Path) -> Array:
    """Return the array of an ``.npy`` file; pickled objects are refused."""
    check_file(path, "arrays")
    fits_memory(f"{path}", path.stat().st_size, itemsize=1)
    with path.open("rb") as file:
        return _array(file, path.stat().st_size, f"{path}")


def parse_array(content: bytes, where: str) -> Array:
    """Return the array of an ``.npy`` file from its bytes; pickled objects are refused.

    Args:
        content: the bytes of the file.
        where: the beginning of errors.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> np.save(file, np.arange(3))
        >>> parse_array(file.getvalue(), "the file")
        array([0, 1, 2])
    """
    return _array(io.BytesIO(content), len(content), where)


def _array(file: IO[bytes], size: int, where: str) -> Array:
    with worded(f"{where} must be a complete .npy file of numbers (numpy.save)"):
        return _content(file, size, where)


def array_headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return shape and dtype of each array of an ``.npz`` or ``.npy`` file without reading it."""
    check_file(path, "arrays")
    must = f"{path} must be a complete file of plain arrays (numpy.savez, numpy.save)"
    with worded(must), path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            shape, _, dtype = _header(file)
            return {"": (shape, dtype)}
        found = {}
        with zipfile.ZipFile(file) as archive:
            for one in archive.infolist()[:MAX_ARRAYS]:
                with archive.open(one) as member:
                    shape, _, dtype = _header(member)
                found[one.filename.removesuffix(".npy")] = (shape, dtype)
        return found


def _content(file: IO[bytes], size: int, where: str, scalars: bool = False) -> Array:
    """Return the array in a file of ``size`` bytes, after comparing its header with its size."""
    shape, fortran, dtype = _header(file)
    if dtype.kind not in PLAIN or (dtype.itemsize == 0 and math.prod(shape)):
        raise InputError(f"{where} must be plain arrays (no pickled objects); got {dtype}.")
    if not (shape or scalars) or min(shape, default=0) < 0:
        raise InputError(f"{where} must be an array with rows; got shape {shape}.")
    if not math.prod(shape) and max(shape) > MAX_EMPTY:
        raise InputError(f"{where} must hold something; got shape {shape}.")
    needed = math.prod(shape) * dtype.itemsize
    if needed != size - file.tell():
        raise InputError(
            f"{where} must hold {needed:,} bytes, as its header says; "
            f"the file has {size - file.tell():,}."
        )
    content = bytearray(file.read())
    if dtype.kind == "U":  # Python raises on numbers that are no letters only when it reads them
        codes = np.frombuffer(content, f"{dtype.byteorder}u4")
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any():
            raise InputError(f"{where} must be Unicode text; it holds numbers that are no letters.")
    cells = np.frombuffer(content, dtype=dtype)
    return cells.reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"arrays of numpy's format 1.0 or 2.0 are read; got {version}")
    try:
        return readers[version](file)
    except (ValueError, EOFError, MemoryError):
        raise
    except Exception as error:  # numpy parses the header as Python, which raises many types
        raise ValueError(f"its header cannot be read ({type(error).__name__})") from error


def open_hdf5(path: Path) -> Any:
    """Return an open HDF5 file; its pages are read on access.

    Raises:
        InputError: if it is not an HDF5 file, or if h5py is not installed.
    """
    check_file(path, "hdf5")
    try:
        return import_module("h5py").File(path, "r")
    except ImportError:
        raise InputError(
            f"{path} needs h5py to be read; it is not installed. Run: pip install h5py."
        ) from None
    except OSError as error:
        raise InputError(f"{path} must be an HDF5 file; {error}.") from None


def hdf5_array(group: Any, name: str, where: object, row: int | None = None) -> Array:
    """Return a dataset of an HDF5 file, or one row; the declared shape must fit into memory."""
    dataset = group[name]
    shape = getattr(dataset, "shape", None)
    if not shape:
        raise InputError(f"{where}: {name!r} must be an array.")
    fits_memory(f"{where}: {name!r}", *shape[row is not None :], itemsize=dataset.dtype.itemsize)
    return dataset[() if row is None else row]
