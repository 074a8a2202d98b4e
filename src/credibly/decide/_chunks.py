"""Probabilities that need not fit in memory: read some rows at a time, as often as needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import is_tensor, to_numpy
from credibly.types import Array

PIECE = 1 << 18
"""Entries handled at a time."""


class Chunks:
    """A matrix, or (rows, L) parts of one: a list of them, or a function that gives an iterator.

    Parts are read several times, so an iterator that runs out is refused. All have one number of
    labels and one precision: half and single precision are read as float32 (exactly), everything
    else as float64.
    """

    def __init__(self, source: Any) -> None:
        if isinstance(source, np.ndarray) or is_tensor(source):
            source = [source]
        elif not callable(source) and iter(source) is source:
            raise checks.InputError(
                "`probabilities` are read more than once; got an iterator that runs out. Pass a "
                "matrix, a list of them, or a function that returns a fresh iterator."
            )
        self._source: Any = source
        self.dtype: Any = None
        self.num_labels = 0

    def __iter__(self) -> Iterator[Array]:
        """Contiguous (rows, L) pieces of at most ``PIECE`` entries (or one row)."""
        parts: Any = self._source() if callable(self._source) else self._source
        for index, part in enumerate(parts):
            array = self._same_kind(checks.matrix("probabilities", to_numpy(part)), index)
            step = max(1, PIECE // max(1, self.num_labels))
            for start in range(0, array.shape[0], step):
                yield np.ascontiguousarray(array[start : start + step], dtype=self.dtype)

    def head(self, rows: int) -> Array:
        """The first rows, as one matrix."""
        found, count = [], 0
        for piece in self:
            found.append(piece[: rows - count])
            count += len(found[-1])
            if count >= rows:
                break
        return np.concatenate(found)

    def _same_kind(self, array: Array, index: int) -> Array:
        narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        dtype = np.float32 if narrow else np.float64
        if self.dtype is None:
            self.dtype, self.num_labels = dtype, array.shape[1]
        if (dtype, array.shape[1]) != (self.dtype, self.num_labels):
            raise checks.InputError(
                f"all parts of `probabilities` must have {self.num_labels} labels and become "
                f"{np.dtype(self.dtype).name}; part {index} has {array.shape[1]} labels and is "
                f"{array.dtype}. Convert the parts to one precision first."
            )
        return array
