"""What every metric does with its arguments first: numpy arrays, one shape, values checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.types import Array, ArrayLike


def pair(values: ArrayLike, targets: ArrayLike, name: str, *, soft: bool) -> tuple[Array, Array]:
    """``values`` and ``targets`` as (rows, labels) arrays of one shape.

    Values become float32 or float64. Targets become int8, or float64 where ``soft`` and there
    are soft ones. One-dimensional values are one label; integer targets of shape (rows,) beside
    a matrix of values are class indices, −1 for unknown.
    """
    values, targets = floating(to_numpy(values)), to_numpy(targets)
    if values.ndim == 1 and targets.ndim == 1:
        checks.same_shapes(**{name: values, "targets": targets})
        values, targets = values[:, None], targets[:, None]
    checks.matrix(name, values)
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        targets = _one_hot(targets, values.shape)
    checks.same_shapes(**{name: values, "targets": targets})
    return values, soft_targets(targets) if soft else hard_targets(targets)


def probability_pair(
    probabilities: ArrayLike, targets: ArrayLike, *, soft: bool = True
) -> tuple[Array, Array]:
    """As ``pair``; the values must be probabilities."""
    values, targets = pair(probabilities, targets, "probabilities", soft=soft)
    return in_unit_interval(values), targets


def score_pair(scores: ArrayLike, targets: ArrayLike) -> tuple[Array, Array]:
    """As ``pair``, for ranking: any scores but NaN, hard targets."""
    values, targets = pair(scores, targets, "scores", soft=False)
    if values.size and np.isnan(values.min()):
        checks.no_nan("scores", values)
    return values, targets


def set_pair(sets: ArrayLike, targets: ArrayLike) -> tuple[Array, Array]:
    """Label sets as a bool matrix beside hard targets."""
    sets = label_sets(sets)
    targets = to_numpy(targets)
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        targets = _one_hot(targets, sets.shape)
    checks.same_shapes(sets=sets, targets=targets)
    return sets, hard_targets(targets)


def label_sets(sets: ArrayLike) -> Array:
    """A bool matrix: which labels are returned for which row."""
    array = checks.matrix("sets", to_numpy(sets))
    if array.dtype != bool:
        if not ((array == 0) | (array == 1)).all():
            raise checks.InputError(
                f"`sets` must be a bool matrix (or 0 and 1); got {array.dtype} in "
                f"[{array.min():.6g}, {array.max():.6g}]. Threshold probabilities first, for "
                "example with `cr.decide.Threshold(0.5)`."
            )
        array = array.astype(bool)
    return array


def floating(array: Array) -> Array:
    """float32 and float64 stay; float16 becomes float32, everything else float64."""
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def in_unit_interval(array: Array, name: str = "probabilities") -> Array:
    """``array`` must lie in [0, 1]; two fast passes, the slow check only to word the error."""
    # min and max are NaN when any entry is, so the comparison below fails on NaN too.
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        checks.probabilities(array, name)
    return array


def hard_targets(targets: Array) -> Array:
    """Targets in {0, 1, −1} as int8."""
    if targets.dtype == bool:
        return targets.view(np.int8)
    whole = targets if targets.dtype == np.int8 else _as_int8(targets)
    if whole is None or (whole.size and (whole.min() < -1 or whole.max() > 1)):
        checks.target_values(targets, soft=False)
    assert whole is not None
    return whole


def soft_targets(targets: Array) -> Array:
    """Targets in [0, 1] or −1: int8 if all are whole, else float64."""
    if targets.dtype == bool or targets.dtype == np.int8 or _as_int8(targets) is not None:
        return hard_targets(targets)
    return checks.target_values(targets).astype(np.float64)


def _as_int8(targets: Array) -> Array | None:
    """``targets`` as int8 where that loses nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        whole = targets.astype(np.int8)
    return whole if np.array_equal(whole, targets) else None


def _one_hot(indices: Array, shape: tuple[int, ...]) -> Array:
    rows, num_labels = shape
    if len(indices) != rows:
        raise checks.InputError(
            f"class indices must be one a row, {rows}; got {len(indices)} of them."
        )
    if indices.size and not (indices.min() >= -1 and indices.max() < num_labels):
        raise checks.InputError(
            f"class indices must lie in [0, {num_labels - 1}] or be −1 (unknown); "
            f"got [{indices.min()}, {indices.max()}]."
        )
    targets: Array = np.zeros(shape, np.int8)
    known = indices >= 0
    targets[known, indices[known]] = 1
    targets[~known] = -1
    return targets


def mean_known(values: Array, **where: Any) -> Any:
    """Mean over the entries that are not NaN; NaN if there are none, without a warning."""
    known = ~np.isnan(values)
    count = known.sum(**where)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, values, 0.0).sum(**where) / count
