"""Turn the arguments of a metric into checked numpy arrays of one shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from credibly import checks
from credibly import targets as coded
from credibly.arrays import to_numpy
from credibly.frames import aligned
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike


def pair(
    values: ArrayLike,
    targets: TargetsLike,
    name: str,
    coding: Coding | None = None,
    *,
    whole: bool = True,
) -> tuple[Array, Array]:
    """Return ``values`` and ``targets`` as (rows, labels) arrays of one shape.

    Args:
        values: become float32 or float64. One-dimensional values are one label.
        targets: become int8, or float64 where some are soft; see ``credibly.targets``. Integers of
            shape (rows,) beside a matrix of values are class indices.
        name: what errors call the values.
        coding: how to read targets of only −1 and +1; see ``credibly.targets.decode``.
        whole: whether these are all rows, so that an ambiguous coding can be told.
    """
    targets = aligned(values, targets, name)
    values = floating(to_numpy(values))
    if values.ndim == 1:
        targets = targets if isinstance(targets, Targets) else to_numpy(targets)
        if len(targets.shape) == 1:
            checks.same_shapes(**{name: values, "targets": targets})
            values, targets = values[:, None], targets[:, None]
    checks.matrix(name, values)
    return values, target_matrix(targets, values.shape, name, coding, whole=whole)


def target_matrix(
    targets: TargetsLike,
    shape: tuple[int, ...],
    name: str,
    coding: Coding | None = None,
    *,
    whole: bool = True,
) -> Array:
    """Return decoded targets, which must have the shape of the values called ``name``."""
    array = to_numpy(targets)
    if array.ndim == 1 and array.dtype.kind in "iu" and len(array) != shape[0]:
        raise checks.InputError(
            f"class indices must be one per row, {shape[0]}; got {len(array)} of them."
        )
    if array.ndim != 1 and array.shape != shape:
        raise checks.InputError(
            f"shapes must agree; got `{name}` {shape}, `targets` {array.shape}."
        )
    matrix = coded.decode(targets, coding=coding, num_labels=shape[1], whole=whole)
    return matrix if matrix.dtype == np.int8 else matrix.astype(np.float64, copy=False)


def probability_pair(
    probabilities: ArrayLike,
    targets: TargetsLike,
    coding: Coding | None = None,
    *,
    whole: bool = True,
) -> tuple[Array, Array]:
    """As ``pair``; the values must be probabilities."""
    values, matrix = pair(probabilities, targets, "probabilities", coding, whole=whole)
    return in_unit_interval(values), matrix


def score_pair(
    scores: ArrayLike, targets: TargetsLike, coding: Coding | None = None
) -> tuple[Array, Array]:
    """As ``pair``, for ranking: the values may be any numbers but NaN."""
    values, matrix = pair(scores, targets, "scores", coding)
    if values.size and np.isnan(values.min()):
        checks.no_nan("scores", values)
    return values, matrix


def set_pair(
    sets: ArrayLike, targets: TargetsLike, coding: Coding | None = None
) -> tuple[Array, Array]:
    """Return label sets as a bool matrix, and the targets beside them."""
    targets = aligned(sets, targets, "sets")
    chosen = label_sets(sets)
    return chosen, target_matrix(targets, chosen.shape, "sets", coding)


def hard(targets: Array, metric: str) -> Array:
    """Return decoded targets, none of which may be soft.

    Raises:
        InputError: if a target is soft; ``metric`` is named.
    """
    if targets.dtype == np.int8:
        return targets
    between = (targets > 0) & (targets < 1)
    if not between.any():
        return targets.astype(np.int8)
    first = tuple(int(i) for i in np.argwhere(between)[0])
    raise checks.InputError(
        f"`targets` must be 0, 1 or −1 (unknown) for {metric}, which has no meaning for soft "
        f"values; got {targets[first].item()!r} at {first}. Round them first, or use a metric of "
        "soft targets: average_precision, calibration_error, log_loss, brier, top_k_f1."
    )


def is_soft(targets: Array) -> bool:
    """Return whether decoded targets hold values between 0 and 1."""
    return targets.dtype != np.int8


def label_sets(sets: ArrayLike) -> Array:
    """Return a bool matrix: which labels are returned for which row."""
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
    """Keep float32 and float64; turn float16 into float32, everything else into float64."""
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def in_unit_interval(array: Array, name: str = "probabilities") -> Array:
    """Check that ``array`` lies in [0, 1]: two fast passes, a slow one only to word the error."""
    # min and max are NaN when any entry is, so the comparison below fails on NaN too.
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        checks.probabilities(array, name)
    return array


def mean_known(values: Array, **where: Any) -> Any:
    """Return the mean of the entries that are not NaN; NaN if there are none, without a warning."""
    known = ~np.isnan(values)
    count = known.sum(**where)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, values, 0.0).sum(**where) / count


BLOCK_ENTRIES = 1 << 18


def by_blocks(function: Callable[..., Array], *matrices: Array) -> Array:
    """Return ``function`` of matrices whose rows it treats alone, some rows at a time.

    Its intermediate results then take a few megabytes, however large the matrices are.
    """
    step = max(1, BLOCK_ENTRIES // max(1, matrices[0].shape[1]))
    starts = range(0, max(len(matrices[0]), 1), step)
    parts = [function(*(each[start : start + step] for each in matrices)) for start in starts]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
