"""Rows that are mostly zero: a CSR matrix, which stores only the non-zero values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.checks import InputError, fits_memory
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.data.token_rows import Tensors

MANY_FEATURES = 4096
"""From so many features on, files that list non-zero values are not made a dense matrix."""


class SparseRows:
    """Rows with few non-zero values: features, or the weights of the terms of texts.

    Attributes:
        matrix: (rows, features), ``scipy.sparse`` CSR, float32; column numbers of a row increase.

    Example:
        >>> from scipy.sparse import csr_matrix
        >>> rows = SparseRows(csr_matrix([[0, 2.0, 0], [1.0, 0, 0]]))
        >>> rows.shape, rows.take([1]).dense().tolist()
        ((2, 3), [[1.0, 0.0, 0.0]])
    """

    lengths: Array | None = None

    def __init__(self, matrix: object) -> None:
        from scipy import sparse

        made = sparse.csr_matrix(matrix, dtype=np.float32)
        if not made.has_canonical_format:
            made = made.copy() if made is matrix else made
            made.sum_duplicates()
        self.matrix = made

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, features)."""
        shape: Any = self.matrix.shape
        return int(shape[0]), int(shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: Array | list[int] | slice) -> SparseRows:
        """Return these rows, in this order."""
        return SparseRows(self.matrix[rows])

    def dense(self) -> Array:
        """Return a (rows, features) matrix. Raise if it does not fit into memory."""
        fits_memory("a dense matrix of features", *self.shape)
        return self.matrix.toarray()

    def batch(self, rows: Array) -> Tensors:
        """Return ``terms`` and ``values`` of all rows, and the first entry of each (``starts``)."""
        import torch

        from credibly.data.token_rows import Tensors

        chosen = self.matrix[rows]
        return Tensors(
            len(rows),
            terms=torch.from_numpy(chosen.indices),
            values=torch.from_numpy(chosen.data),
            starts=torch.from_numpy(chosen.indptr[:-1]),
        )

    def arrays(self) -> list[Array]:
        """Return the arrays that enter a fingerprint."""
        places = [np.asarray(each, np.int64) for each in (self.matrix.indptr, self.matrix.indices)]
        return [np.array(self.shape), *places, self.matrix.data]

    def check(self) -> None:
        """Raise for infinite values. NaN is allowed and means missing."""
        bad = np.isinf(self.matrix.data)
        if bad.any():
            place = int(bad.argmax())
            row = int(np.searchsorted(self.matrix.indptr, place, side="right")) - 1
            raise InputError(
                f"features must not be infinite; {int(bad.sum())} are, the first in row "
                f"{row}, column {int(self.matrix.indices[place])}. Use NaN for a missing value."
            )
