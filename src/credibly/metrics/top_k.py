"""The k highest labels of each row, and what a label set hits."""

from __future__ import annotations

import numpy as np

from credibly import checks
from credibly.metrics import kernels
from credibly.types import Array

_FEW = 16  # so many labels are kept in order while a row is read; more are found by sorting


def top_k_sets(values: Array, truth: Array, k: int) -> Array:
    """Each row's ``k`` highest known labels as a bool matrix; ties go to the first label."""
    if int(checks.at_least("k", k, 1)) != k or k > values.shape[1]:
        raise checks.InputError(
            f"`k` must be a whole number between 1 and the number of labels, {values.shape[1]}; "
            f"got {k!r}."
        )
    chosen: Array = np.zeros(values.shape, bool)
    if k <= _FEW:
        kernels.mark_top(np.ascontiguousarray(values), np.ascontiguousarray(truth), int(k), chosen)
        return chosen
    known = np.where(truth >= 0, values, -np.inf)
    order = np.argsort(-known, axis=1, kind="stable")[:, : int(k)]
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen & (truth >= 0)


def set_counts(chosen: Array, truth: Array, axis: int | None) -> Array:
    """Return hits, returned and present labels among known entries, summed over ``axis``.

    A soft target counts by its value.
    """
    known = truth >= 0
    present = np.where(known, truth, 0)
    return np.stack(
        [
            np.where(chosen, present, 0).sum(axis, dtype=np.float64),
            (chosen & known).sum(axis, dtype=np.float64),
            present.sum(axis, dtype=np.float64),
        ]
    )


def unknown_below_top(values: Array, truth: Array, k: int) -> Array:
    """``truth`` with everything but each row's top k marked unknown."""
    return np.where(top_k_sets(values, truth, k), truth, truth.dtype.type(-1))
