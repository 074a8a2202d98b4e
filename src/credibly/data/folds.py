"""Folds for cross-validation, stratified by all labels."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import BaseCrossValidator

from credibly import checks
from credibly.types import Array


class StratifiedFolds(BaseCrossValidator):
    """Folds in which every label is about equally frequent: a splitter for scikit-learn's ``cv=``.

    Iterative stratification (Sechidis, Tsoumakas & Vlahavas 2011): rows of the rarest label are
    assigned first, each to the fold that lacks most rows of that label. Rows without labels are
    assigned last. scikit-learn's ``StratifiedKFold`` supports only one label per row, and its
    ``KFold`` can leave a fold without any row of a rare label. Unknown labels (−1 or NaN) count as
    absent.

    Args:
        n_splits: number of folds, at least 2.
        random_state: seed that breaks ties.

    Example:
        >>> Y = np.zeros((20, 2), dtype=int)
        >>> Y[:10, 0] = 1
        >>> Y[8:13, 1] = 1
        >>> [Y[test].sum(0).tolist() for _, test in StratifiedFolds(5).split(Y, Y)]
        [[2, 1], [2, 1], [2, 1], [2, 1], [2, 1]]
    """

    def __init__(self, n_splits: int = 5, *, random_state: int | None = 0) -> None:
        self.n_splits = int(checks.at_least("n_splits", n_splits, 2))
        self.random_state = random_state

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> Any:
        """Return the number of folds."""
        return self.n_splits

    def split(
        self, X: object, y: object = None, groups: object = None
    ) -> Generator[tuple[Array, Array], None, None]:
        """Yield training and test rows of each fold.

        Args:
            X: the rows; only their number is used.
            y: (rows, labels) of 0, 1, soft values and −1 or NaN for unknown, or class labels
                (rows,).
            groups: ignored.
        """
        if y is None:
            raise checks.InputError("`y` must be given: the folds are stratified by its labels.")
        folds = self._assign(_present(y))
        for fold in range(self.n_splits):
            yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)

    def _assign(self, present: Array) -> Array:
        rows = len(present)
        if rows < self.n_splits:
            raise checks.InputError(
                f"`n_splits` must be at most the number of rows, {rows}; got {self.n_splits}."
            )
        generator = np.random.default_rng(self.random_state)
        folds = np.full(rows, -1)
        lacking_rows = np.full(self.n_splits, rows / self.n_splits)
        lacking = np.outer(np.ones(self.n_splits), present.sum(axis=0) / self.n_splits)
        order = generator.permutation(rows)
        left = present.sum(axis=0).astype(np.int64)
        while (left > 0).any():
            label = int(np.where(left > 0, left, rows + 1).argmin())
            for row in order[(folds[order] < 0) & present[order, label]]:
                fold = _most(lacking[:, label], lacking_rows, generator)
                folds[row] = fold
                lacking[fold] -= present[row]
                lacking_rows[fold] -= 1
                left -= present[row]
        for row in order[folds[order] < 0]:
            folds[row] = _most(lacking_rows, lacking_rows, generator)
            lacking_rows[folds[row]] -= 1
        return folds


def _most(first: Array, second: Array, generator: np.random.Generator) -> int:
    """Return the index of the largest of ``first``; ties by ``second``, then at random."""
    best = np.flatnonzero(first == first.max())
    best = best[second[best] == second[best].max()]
    return int(best[0] if best.size == 1 else generator.choice(best))


def _present(y: object) -> Array:
    array = sparse.csr_matrix(y).toarray() if sparse.issparse(y) else np.asarray(y)
    if array.ndim == 1:
        classes, index = np.unique(array, return_inverse=True)
        return np.eye(len(classes), dtype=bool)[index]
    if array.ndim != 2:
        raise checks.InputError(f"`y` must be (rows, labels) or (rows,); got {array.shape}.")
    return array.astype(np.float64) >= 0.5
