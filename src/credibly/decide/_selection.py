"""The m-th largest of many probabilities, exactly, in fixed memory.

The bit patterns of floats in [0, 1] are ordered like the floats. So the m-th largest is found 16
bits at a time: count the leading 16 bits of all values, see which of the 65,536 bins holds the
m-th, and look only into that one. float32 takes two passes, float64 four.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from credibly import _checks
from credibly.decide._chunks import Chunks
from credibly.types import Array

_BINS = 1 << 16


class Leading:
    """One pass: how many rows there are, and the counts of the leading 16 bits."""

    def __init__(self, chunks: Chunks) -> None:
        self.rows = 0
        self.counts = np.zeros(_BINS, dtype=np.int64)
        for piece in chunks:
            bits = _bits(piece)
            one, minus_zero = _bits(np.array([1.0, -0.0], piece.dtype))
            if _count_leading(bits, one, minus_zero, self.counts):
                _checks.probabilities(piece)  # raises, and says what is wrong
            self.rows += piece.shape[0]
        if not self.rows or not chunks.num_labels:
            raise _checks.InputError(
                "`probabilities` must have at least one row and one label; got none."
            )


def largest(chunks: Chunks, leading: Leading, ranks: tuple[int, ...]) -> list[float]:
    """The values at ``ranks`` (1 is the largest), equal bit for bit to those of a full sort."""
    width = np.dtype(chunks.dtype).itemsize * 8
    found = [_bin_of(leading.counts, rank) for rank in ranks]
    prefixes = np.array([bin_ for bin_, _ in found], dtype=np.uint64)
    left = [rest for _, rest in found]
    minus_zero = _bits(np.array([-0.0], chunks.dtype))[0]
    for shift in range(width - 32, -1, -16):
        wanted, which = np.unique(prefixes, return_inverse=True)
        counts = np.zeros((len(wanted), _BINS), dtype=np.int64)
        for piece in chunks:
            bits = _bits(piece)
            for row, prefix in enumerate(wanted.astype(bits.dtype)):
                _count_within(bits, prefix, bits.dtype.type(shift), minus_zero, counts[row])
        for i, row in enumerate(which):
            bin_, left[i] = _bin_of(counts[row], left[i])
            prefixes[i] = prefixes[i] << np.uint64(16) | np.uint64(bin_)
    unsigned = np.uint32 if width == 32 else np.uint64
    return [float(value) for value in prefixes.astype(unsigned).view(chunks.dtype)]


def _bits(piece: Array) -> Array:
    return piece.reshape(-1).view(np.uint32 if piece.dtype == np.float32 else np.uint64)


def _bin_of(counts: Array, rank: int) -> tuple[int, int]:
    """The bin that holds the ``rank``-th largest, and its rank within that bin."""
    from_top = np.cumsum(counts[::-1])
    place = int(np.searchsorted(from_top, rank))
    above = int(from_top[place - 1]) if place else 0
    return len(counts) - 1 - place, rank - above


@njit(cache=True, error_model="numpy")
def _count_leading(bits, one, minus_zero, counts):  # pragma: no cover
    """Counts the leading 16 bits; returns how many values are not in [0, 1]."""
    shift = bits.dtype.type(bits.itemsize * 8 - 16)
    bad = 0
    for i in range(bits.size):
        value = bits[i]
        if value > one:  # above 1, NaN, or with the sign set: only −0 is as good as 0
            if value == minus_zero:
                value = bits.dtype.type(0)
            else:
                bad += 1
        counts[value >> shift] += 1
    return bad


@njit(cache=True, error_model="numpy")
def _count_within(bits, prefix, shift, minus_zero, counts):  # pragma: no cover
    """Counts the 16 bits above ``shift`` among the values that begin with ``prefix``."""
    above = shift + bits.dtype.type(16)
    mask = bits.dtype.type(65535)
    for i in range(bits.size):
        value = bits[i]
        if value == minus_zero:
            value = bits.dtype.type(0)
        if value >> above == prefix:
            counts[(value >> shift) & mask] += 1
