"""Targets of many labels: only the entries that are not absent are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import is_tensor, to_numpy
from credibly.types import Array, ArrayLike

UNKNOWN = -1


@dataclass(frozen=True, eq=False, repr=False)
class SparseTargets:
    """For each row the labels that are present; every other label is absent.

    Rows are stored as in a CSR matrix: the labels of row ``i`` are
    ``indices[offsets[i]:offsets[i + 1]]``. Labels of a row are sorted when they come unsorted.

    Attributes:
        offsets: (rows + 1,) where each row begins in ``indices``, from 0 to its length.
        indices: label numbers, each row's in increasing order and without repetition.
        num_labels: number of labels.
        values: one target per entry of ``indices`` (soft, or −1 for unknown); None where all are 1.
        known: (rows,) whether anything is known of the row; None where every row is known. A row
            that is not known has no entries.

    Example:
        >>> targets = SparseTargets.from_lists([[2, 0], [], [1]], num_labels=4)
        >>> targets
        SparseTargets(3 rows, 4 labels, 3 entries)
        >>> targets[:2].dense()
        array([[1., 0., 1., 0.],
               [0., 0., 0., 0.]], dtype=float32)
        >>> targets.label_counts()
        array([1., 1., 1., 0.])
    """

    offsets: Array
    indices: Array
    num_labels: int
    values: Array | None = None
    known: Array | None = None

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 - frozen
        put("offsets", _whole_numbers("offsets", self.offsets))
        put("indices", _whole_numbers("indices", self.indices))
        put("num_labels", checks.whole_number("num_labels", self.num_labels, 1))
        _check_offsets(self.offsets, self.indices)
        if self.values is not None:
            put("values", _values(self.values, self.indices))
        if self.known is not None:
            put("known", _known(self.known, self.offsets))
        self._check_indices()

    def _check_indices(self) -> None:
        outside = (self.indices < 0) | (self.indices >= self.num_labels)
        if outside.any():
            place = int(outside.argmax())
            raise checks.InputError(
                f"label numbers must lie in [0, {self.num_labels - 1}]; got {self.indices[place]} "
                f"in row {self._row_of(place)}. There are {self.num_labels:,} labels."
            )
        same_row = np.ones(max(len(self.indices) - 1, 0), dtype=bool)
        inner = self.offsets[1:-1]
        same_row[inner[(inner > 0) & (inner < len(self.indices))] - 1] = False
        steps = np.diff(self.indices)
        if (same_row & (steps < 0)).any():
            rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))
            order = np.lexsort((self.indices, rows))
            object.__setattr__(self, "indices", self.indices[order])
            if self.values is not None:
                object.__setattr__(self, "values", self.values[order])
            steps = np.diff(self.indices)
        twice = same_row & (steps == 0)
        if twice.any():
            place = int(twice.argmax())
            raise checks.InputError(
                f"each label must appear once per row; label {self.indices[place]} appears twice "
                f"in row {self._row_of(place)}. Remove the repetition."
            )

    def _row_of(self, place: int) -> int:
        return int(np.searchsorted(self.offsets, place, side="right")) - 1

    @classmethod
    def from_lists(cls, rows: Iterable[Iterable[int]], num_labels: int) -> SparseTargets:
        """Return targets from one list of label numbers per row.

        Example:
            >>> SparseTargets.from_lists([[5], []], num_labels=10).row_counts()
            array([1., 0.])
        """
        lists = [np.asarray(list(row), dtype=np.int64) for row in rows]
        sizes = [len(row) for row in lists]
        indices = np.concatenate(lists) if lists else np.zeros(0, np.int64)
        return cls(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]), indices, num_labels)

    @classmethod
    def from_dense(cls, targets: ArrayLike) -> SparseTargets:
        """Return targets from a decoded (rows, labels) matrix: everything but 0 is stored.

        Example:
            >>> SparseTargets.from_dense(np.array([[0, 0.5, 0], [-1, 0, 1]])).values
            array([ 0.5, -1. ,  1. ], dtype=float32)
        """
        array = checks.matrix("targets", to_numpy(targets))
        rows, columns = np.nonzero(array)
        offsets = np.searchsorted(rows, np.arange(len(array) + 1))
        return cls(offsets, columns, array.shape[1], array[rows, columns].astype(np.float32))

    @classmethod
    def from_csr(cls, matrix: Any) -> SparseTargets:
        """Return targets from a scipy CSR matrix or a torch sparse CSR tensor.

        Example:
            >>> from scipy import sparse
            >>> SparseTargets.from_csr(sparse.csr_matrix([[0, 1], [1, 1]]))
            SparseTargets(2 rows, 2 labels, 3 entries)
        """
        if not is_tensor(matrix):
            matrix = matrix.tocsr()
            return cls(matrix.indptr, matrix.indices, matrix.shape[1], matrix.data)
        pieces = (matrix.crow_indices(), matrix.col_indices(), matrix.values())
        offsets, indices, values = (to_numpy(piece.detach().cpu()) for piece in pieces)
        return cls(offsets, indices, matrix.shape[1], values)

    @classmethod
    def from_classes(cls, classes: ArrayLike, num_labels: int) -> SparseTargets:
        """Return targets from one class index per row; a negative one is a row not known.

        Example:
            >>> SparseTargets.from_classes(np.array([2, -1]), 3).dense()
            array([[ 0.,  0.,  1.],
                   [-1., -1., -1.]], dtype=float32)
        """
        array = to_numpy(classes).astype(np.int64)
        known = array >= 0
        offsets = np.concatenate([[0], np.cumsum(known)])
        return cls(offsets, array[known], num_labels, None, None if known.all() else known)

    @classmethod
    def unknown(cls, rows: int, num_labels: int) -> SparseTargets:
        """Return targets of rows of which nothing is known.

        Example:
            >>> SparseTargets.unknown(2, 1000).num_known
            0
        """
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros(rows + 1, np.int64), nothing, num_labels, None, np.zeros(rows, bool))

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, labels)."""
        return len(self), self.num_labels

    @property
    def num_known(self) -> int:
        """Return the number of entries, present or absent, that are known."""
        rows = len(self) if self.known is None else int(self.known.sum())
        hidden = 0 if self.values is None else int((self.values < 0).sum())
        return rows * self.num_labels - hidden

    @property
    def hard(self) -> bool:
        """Return whether every target is 0 or 1: nothing soft, nothing unknown."""
        return self.known is None and (self.values is None or bool((self.values == 1).all()))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice | Sequence[int] | Array) -> SparseTargets:
        """Return these rows, in this order."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        place = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        taken = object.__new__(SparseTargets)  # checked before, when the whole was made
        for name, value in (
            ("offsets", offsets),
            ("indices", self.indices[place]),
            ("num_labels", self.num_labels),
            ("values", None if self.values is None else self.values[place]),
            ("known", None if self.known is None else self.known[chosen]),
        ):
            object.__setattr__(taken, name, value)
        return taken

    def relabelled(self, numbers: ArrayLike) -> SparseTargets:
        """Return the same rows with label ``i`` at ``numbers[i]``, a permutation."""
        order = to_numpy(numbers).astype(np.int64)
        return SparseTargets(
            self.offsets, order[self.indices], self.num_labels, self.values, self.known
        )

    def __repr__(self) -> str:
        return (
            f"SparseTargets({len(self):,} rows, {self.num_labels:,} labels, "
            f"{len(self.indices):,} entries)"
        )

    def entry_rows(self) -> Array:
        """Return the row of each entry of ``indices``."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def entry_values(self) -> Array:
        """Return the target of each entry of ``indices``: float32, −1 where unknown."""
        if self.values is None:
            return np.ones(len(self.indices), dtype=np.float32)
        return self.values

    def label_counts(self) -> Array:
        """Return how many rows have each label; soft targets count by their size."""
        weights = np.maximum(self.entry_values(), 0)
        return np.bincount(self.indices, weights=weights, minlength=self.num_labels)

    def known_counts(self) -> Array:
        """Return in how many rows each label is known."""
        rows = len(self) if self.known is None else int(self.known.sum())
        hidden = self.indices[self.entry_values() < 0]
        return rows - np.bincount(hidden, minlength=self.num_labels)

    def row_counts(self) -> Array:
        """Return how many labels each row has; soft targets count by their size."""
        weights = np.maximum(self.entry_values(), 0)
        return np.bincount(self.entry_rows(), weights=weights, minlength=len(self))

    def dense(self) -> Array:
        """Return a (rows, labels) float32 matrix: for few rows, or few labels.

        Raises:
            InputError: if the matrix does not fit into memory.
        """
        checks.fits_memory("dense targets", *self.shape)
        matrix = np.zeros(self.shape, dtype=np.float32)
        if self.known is not None:
            matrix[~self.known] = UNKNOWN
        matrix[self.entry_rows(), self.indices] = self.entry_values()
        return matrix

    def at(self, columns: ArrayLike) -> Array:
        """Return the targets of some labels of each row.

        Args:
            columns: (rows, k) label numbers.

        Returns:
            (rows, k) float32; −1 where unknown.

        Example:
            >>> SparseTargets.from_lists([[2, 0], [1]], 4).at(np.array([[0, 1], [1, 3]]))
            array([[1., 0.],
                   [1., 0.]], dtype=float32)
        """
        asked = to_numpy(columns).astype(np.int64)
        # One sorted list of (row, label) keys: a search finds each asked entry, or its place.
        keys = self.entry_rows() * self.num_labels + self.indices
        wanted = (np.arange(len(self))[:, None] * self.num_labels + asked).ravel()
        place = np.searchsorted(keys, wanted)
        found = np.zeros(len(wanted), dtype=bool)
        inside = place < len(keys)
        found[inside] = keys[place[inside]] == wanted[inside]
        result = np.zeros(len(wanted), dtype=np.float32)
        result[found] = self.entry_values()[place[found]]
        result = result.reshape(asked.shape)
        if self.known is not None:
            result[~self.known] = UNKNOWN
        return result


def _whole_numbers(name: str, values: object) -> Array:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise checks.InputError(
            f"`{name}` of sparse targets must be whole numbers of shape (n,); got {array.dtype} "
            f"of shape {array.shape}."
        )
    return array.astype(np.int64, copy=False)


def _check_offsets(offsets: Array, indices: Array) -> None:
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(indices):
        ends = f"{offsets[0]} to {offsets[-1]}" if len(offsets) else "nothing"
        raise checks.InputError(
            f"`offsets` of sparse targets must go from 0 to the number of entries, "
            f"{len(indices):,}; got {ends}."
        )
    falling = np.diff(offsets) < 0
    if falling.any():
        raise checks.InputError(
            f"`offsets` of sparse targets must not fall; row {int(falling.argmax())} has a "
            "negative length."
        )


def _values(values: object, indices: Array) -> Array | None:
    """Return float32 values with −1 for unknown; None where all are 1."""
    from credibly.targets import decode

    array = np.asarray(values)
    if array.shape != indices.shape:
        raise checks.InputError(
            f"`values` of sparse targets must have one value per entry, {len(indices):,}; got "
            f"shape {array.shape}."
        )
    decoded = decode(array[None], coding="unknown", name="values")[0].astype(np.float32)
    return None if (decoded == 1).all() else decoded


def _known(known: object, offsets: Array) -> Array | None:
    array = np.asarray(known, dtype=bool)
    if array.shape != (len(offsets) - 1,):
        raise checks.InputError(
            f"`known` of sparse targets must have one value per row, {len(offsets) - 1:,}; got "
            f"shape {array.shape}."
        )
    entries = ~array & (np.diff(offsets) > 0)
    if entries.any():
        raise checks.InputError(
            f"a row that is not known must have no labels; row {int(entries.argmax())} has some."
        )
    return None if array.all() else array
