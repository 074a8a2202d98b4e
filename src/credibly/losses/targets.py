"""Are these targets what they seem? Losses do not look at values; this does."""

from __future__ import annotations

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.types import Array, ArrayLike


def check_targets(targets: ArrayLike, num_labels: int | None = None) -> None:
    """Raise ``InputError`` unless ``targets`` are 0, 1, soft in [0, 1] or −1 (unknown).

    Losses look at shapes and dtypes only, because reading values would stall a GPU. Call this
    once on a data set. Class indices, shape (n,), must lie below ``num_labels``.

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
    if array.dtype.kind not in "buif":
        raise checks.InputError(
            f"`targets` must be numbers or booleans; got dtype {array.dtype}. "
            "Turn label names into a 0/1 matrix first."
        )
    if array.ndim == 1:
        _class_indices(array, num_labels)
        return
    checks.matrix("targets", array)
    if num_labels is not None and array.shape[1] != num_labels:
        raise checks.InputError(
            f"`targets` must have {num_labels} columns, one a label; got {array.shape[1]}."
        )
    if array.dtype.kind == "b":
        return
    checks.target_values(array)
    if (array == -1).any() and (array == 1).any() and (np.abs(array) == 1).all():
        raise checks.InputError(
            "`targets` must code absent labels as 0; got only −1 and +1, and −1 means unknown "
            "here. If −1 means absent, pass `(targets > 0).float()`."
        )


def _class_indices(array: Array, num_labels: int | None) -> None:
    if array.dtype.kind not in "ui":
        raise checks.InputError(
            f"`targets` of shape (n,) must be integer class indices; got dtype {array.dtype}."
        )
    top = array.max(initial=-1)
    if array.min(initial=0) < -1 or (num_labels is not None and top >= num_labels):
        raise checks.InputError(
            f"class indices must be −1 (unknown) or lie in [0, {(num_labels or top + 1) - 1}]; "
            f"got [{array.min()}, {top}]."
        )
