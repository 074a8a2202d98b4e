"""Check targets by value, once per data set: losses check shapes and dtypes only."""

from __future__ import annotations

from credibly import checks
from credibly.arrays import to_numpy
from credibly.targets import check_indices, decode, is_ambiguous
from credibly.types import ArrayLike


def check_targets(targets: ArrayLike, num_labels: int | None = None) -> None:
    """Raise ``InputError`` unless ``targets`` are 0, 1, soft in [0, 1] or unknown (−1, −100, NaN).

    Losses look at shapes and dtypes only, because reading values would stall a GPU. Call this
    once on a data set.

    Args:
        targets: a (rows, labels) matrix, or integer class indices of shape (rows,).
        num_labels: number of labels, if known: number of columns of a matrix; class indices must
            lie below it.

    Example:
        >>> import torch
        >>> check_targets(torch.tensor([[1, 0, -1], [0, 0, 0]]))
        >>> check_targets(torch.tensor([[1, -1], [-1, 1]]))
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `targets` must code absent labels as 0; got only −1 and +1, \
and −1 means unknown here. If −1 means absent, pass `(targets > 0).float()`.
    """
    array = to_numpy(targets)
    if array.ndim == 1:
        check_indices(array, num_labels)
    elif is_ambiguous(decode(array, coding="unknown", num_labels=num_labels)):
        raise checks.InputError(
            "`targets` must code absent labels as 0; got only −1 and +1, and −1 means unknown "
            "here. If −1 means absent, pass `(targets > 0).float()`."
        )
