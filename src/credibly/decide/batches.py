"""Probabilities that need not fit in memory: read some rows at a time, several times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import is_tensor, to_numpy
from credibly.types import Array

BATCH_ENTRIES = 1 << 18
"""Entries per batch."""


class MatrixSource:
    """The rows of a matrix, in batches, as often as needed.

    All matrices must have the same number of labels and the same precision: half and single
    precision are read as float32 (exactly), everything else as float64.

    Args:
        source: a matrix, a list of (rows, L) matrices, or a function that returns an iterator over
            them. An iterator is refused: it can be read only once.
    """

    def __init__(self, source: Any) -> None:
        if isinstance(source, np.ndarray) or is_tensor(source):
            source = [source]
        elif not callable(source) and iter(source) is source:
            raise checks.InputError(
                "`probabilities` are read more than once; got an iterator, which can be read once. "
                "Pass a matrix, a list of them, or a function that returns a fresh iterator."
            )
        self._source: Any = source
        self.dtype: Any = None
        self.num_labels = 0

    def __iter__(self) -> Iterator[Array]:
        """Yield contiguous (rows, L) batches of at most ``BATCH_ENTRIES`` entries, or one row."""
        matrices: Any = self._source() if callable(self._source) else self._source
        for index, matrix in enumerate(matrices):
            array = self._same_kind(checks.matrix("probabilities", to_numpy(matrix)), index)
            step = max(1, BATCH_ENTRIES // max(1, self.num_labels))
            for start in range(0, array.shape[0], step):
                yield np.ascontiguousarray(array[start : start + step], dtype=self.dtype)

    def head(self, rows: int) -> Array:
        """Return the first rows as one matrix."""
        batches, count = [], 0
        for batch in self:
            batches.append(batch[: rows - count])
            count += len(batches[-1])
            if count >= rows:
                break
        return np.concatenate(batches)

    def _same_kind(self, array: Array, index: int) -> Array:
        narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        dtype = np.float32 if narrow else np.float64
        if self.dtype is None:
            self.dtype, self.num_labels = dtype, array.shape[1]
        if (dtype, array.shape[1]) != (self.dtype, self.num_labels):
            raise checks.InputError(
                f"all matrices of `probabilities` must have {self.num_labels} labels and become "
                f"{np.dtype(self.dtype).name}; matrix {index} has {array.shape[1]} labels and is "
                f"{array.dtype}. Convert them to one precision first."
            )
        return array
