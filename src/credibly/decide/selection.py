"""Find the m-th largest of many probabilities, exactly, in fixed memory, batch by batch.

The bit patterns of floats in [0, 1] are ordered like the floats. So the m-th largest is found 16
bits at a time: count the leading 16 bits of all values, find which of the 65,536 bins holds the
m-th, and count the next bits in that bin only. float32 takes two passes, float64 four.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import is_tensor, to_numpy
from credibly.compiled import compiled
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


_BINS = 1 << 16


class LeadingBits:
    """The number of rows and the counts of the leading 16 bits, in one pass over the values."""

    def __init__(self, source: MatrixSource) -> None:
        self.rows = 0
        counts = np.zeros((4, _BINS), dtype=np.int64)
        for batch in source:
            one, minus_zero = _bits(np.array([1.0, -0.0], batch.dtype))
            if _count_leading(_bits(batch), one, counts):
                checks.probabilities(batch)  # raises unless the only finding is −0
                sign = int(minus_zero >> (minus_zero.itemsize * 8 - 16))
                counts[0, 0] += counts[:, sign].sum()
                counts[:, sign] = 0
            self.rows += batch.shape[0]
        self.counts = counts.sum(axis=0)
        if not self.rows or not source.num_labels:
            raise checks.InputError(
                "`probabilities` must have at least one row and one label; got none."
            )


def largest(source: MatrixSource, leading: LeadingBits, ranks: tuple[int, ...]) -> list[float]:
    """Return the values at ``ranks`` (1 is the largest), equal bit for bit to a full sort."""
    width = np.dtype(source.dtype).itemsize * 8
    found = [_bin_of(leading.counts, rank) for rank in ranks]
    prefixes = np.array([bin_ for bin_, _ in found], dtype=np.uint64)
    left = [rest for _, rest in found]
    for shift in range(width - 32, -1, -16):
        distinct, which = np.unique(prefixes, return_inverse=True)
        counts = np.zeros((len(distinct), _BINS), dtype=np.int64)
        for batch in source:
            _count_batch(_bits(batch), distinct, shift, counts)
        for i, row in enumerate(which):
            bin_, left[i] = _bin_of(counts[row], left[i])
            prefixes[i] = prefixes[i] << np.uint64(16) | np.uint64(bin_)
    unsigned = np.uint32 if width == 32 else np.uint64
    return [float(value) for value in prefixes.astype(unsigned).view(source.dtype)]


def _count_batch(bits: Array, prefixes: Array, shift: int, counts: Array) -> None:
    kind = bits.dtype.type
    sign = kind(1 << (bits.itemsize * 8 - 1 - shift - 16))  # how −0 begins
    for row, prefix in enumerate(prefixes.astype(bits.dtype)):
        _count_within(bits, prefix, kind(shift), counts[row])
        if prefix == 0:
            _count_within(bits, sign, kind(shift), counts[row])


def _bits(batch: Array) -> Array:
    return batch.reshape(-1).view(np.uint32 if batch.dtype == np.float32 else np.uint64)


def _bin_of(counts: Array, rank: int) -> tuple[int, int]:
    """Return the bin that holds the ``rank``-th largest, and its rank within that bin."""
    from_top = np.cumsum(counts[::-1])
    index = int(np.searchsorted(from_top, rank))
    above = int(from_top[index - 1]) if index else 0
    return len(counts) - 1 - index, rank - above


@compiled(error_model="numpy")
def _count_leading(bits, one, counts):
    """Count the leading 16 bits; return whether any value is above 1, NaN or has the sign set.

    Four tables are filled in turn: increments of one counter would have to wait for each other.
    """
    shift = bits.dtype.type(bits.itemsize * 8 - 16)
    full = bits.size // 4 * 4
    bad = False
    for i in range(0, full, 4):
        first, second, third, fourth = bits[i], bits[i + 1], bits[i + 2], bits[i + 3]
        bad |= (first > one) | (second > one) | (third > one) | (fourth > one)
        counts[0, first >> shift] += 1
        counts[1, second >> shift] += 1
        counts[2, third >> shift] += 1
        counts[3, fourth >> shift] += 1
    for i in range(full, bits.size):
        bad |= bits[i] > one
        counts[0, bits[i] >> shift] += 1
    return bad


@compiled(error_model="numpy")
def _count_within(bits, prefix, shift, counts):
    """Count the 16 bits above ``shift`` among the values that begin with ``prefix``.

    Few do, so blocks of 64 values are first tested together, in vector instructions.
    """
    above = shift + bits.dtype.type(16)
    mask = bits.dtype.type(65535)
    for start in range(0, bits.size, 64):
        stop = min(start + 64, bits.size)
        hits = 0
        for i in range(start, stop):
            hits += bits[i] >> above == prefix
        if hits:
            for i in range(start, stop):
                if bits[i] >> above == prefix:
                    counts[(bits[i] >> shift) & mask] += 1
