"""The base of all metrics: checks of arguments, and accumulators of rows that can be merged."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from credibly import checks
from credibly.arrays import aligned, to_numpy
from credibly.checks import InputError
from credibly.targets import Targets, TargetsLike, decode, tally
from credibly.types import Array, ArrayLike


def pair(
    values: ArrayLike,
    targets: TargetsLike,
    name: str,
) -> tuple[Array, Array]:
    """Return ``values`` and ``targets`` as (rows, labels) arrays of one shape.

    Args:
        values: become float32 or float64. One-dimensional values belong to one label.
        targets: become int8, or float64 if some are soft; see ``credibly.targets``. For a matrix of
            values, integers of shape (rows,) are class indices.
        name: the name of the values in errors.
    """
    targets = aligned(values, targets, name)
    values = floating(to_numpy(values))
    if values.ndim == 1:
        targets = targets if isinstance(targets, Targets) else to_numpy(targets)
        if len(targets.shape) == 1:
            checks.same_shapes(**{name: values, "targets": targets})
            values, targets = values[:, None], targets[:, None]
    checks.matrix(name, values)
    return values, target_matrix(targets, values.shape, name)


def target_matrix(
    targets: TargetsLike,
    shape: tuple[int, ...],
    name: str,
) -> Array:
    """Return decoded targets, which must have the shape of the values called ``name``."""
    array = to_numpy(targets)
    if array.ndim == 1 and array.dtype.kind in "iu" and len(array) != shape[0]:
        raise InputError(
            f"class indices must be one per row, {shape[0]}; got {len(array)} of them."
        )
    if array.ndim != 1 and array.shape != shape:
        raise InputError(f"shapes must agree; got `{name}` {shape}, `targets` {array.shape}.")
    matrix = decode(targets, num_labels=shape[1])
    return matrix if matrix.dtype == np.int8 else matrix.astype(np.float64, copy=False)


def probability_pair(
    probabilities: ArrayLike,
    targets: TargetsLike,
) -> tuple[Array, Array]:
    """Return the same as ``pair``; the values must be probabilities."""
    values, matrix = pair(probabilities, targets, "probabilities")
    return in_unit_interval(values), matrix


def batch_pair(probabilities: ArrayLike, targets: Targets, num_labels: int) -> tuple[Array, Array]:
    """Return ``probability_pair`` of a batch of rows, for an accumulator of so many labels."""
    values, matrix = probability_pair(probabilities, targets)
    if values.shape[1] != num_labels:
        raise InputError(
            f"`probabilities` must have {num_labels} labels as in the constructor; "
            f"got {values.shape[1]}."
        )
    return values, matrix


def score_pair(scores: ArrayLike, targets: TargetsLike) -> tuple[Array, Array]:
    """Return the same as ``pair`` for ranking: the values may be any numbers except NaN."""
    values, matrix = pair(scores, targets, "scores")
    if values.size and np.isnan(values.min()):
        checks.no_nan("scores", values)
    return values, matrix


def set_pair(sets: ArrayLike, targets: TargetsLike) -> tuple[Array, Array]:
    """Return label sets as a bool matrix, and their targets."""
    targets = aligned(sets, targets, "sets")
    chosen = label_sets(sets)
    return chosen, target_matrix(targets, chosen.shape, "sets")


def hard(targets: Array, metric: str) -> Array:
    """Return decoded targets after checking that none is soft.

    Raises:
        InputError: if a target is soft; the error contains ``metric``.
    """
    if targets.dtype == np.int8:
        return targets
    between = (targets > 0) & (targets < 1)
    if not between.any():
        return targets.astype(np.int8)
    first = tuple(int(i) for i in np.argwhere(between)[0])
    raise InputError(
        f"`targets` must be 0, 1 or −1 (unknown) for {metric}, which has no meaning for soft "
        f"values; got {targets[first].item()!r} at {first}. Round them first, or use a metric of "
        "soft targets: average_precision, calibration_error, log_loss, brier, top_k_f1."
    )


def is_soft(targets: Array) -> bool:
    """Return whether decoded targets contain values between 0 and 1."""
    return targets.dtype != np.int8


def label_sets(sets: ArrayLike) -> Array:
    """Return label sets as a bool matrix (rows, labels)."""
    array = checks.matrix("sets", to_numpy(sets))
    if array.dtype != bool:
        if not ((array == 0) | (array == 1)).all():
            raise InputError(
                f"`sets` must be a bool matrix (or 0 and 1); got {array.dtype} in "
                f"[{array.min():.6g}, {array.max():.6g}]. Threshold probabilities first, for "
                "example with `cr.decide.Threshold(0.5)`."
            )
        array = array.astype(bool)
    return array


def floating(array: Array) -> Array:
    """Return float32 and float64 unchanged, float16 as float32, everything else as float64."""
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def in_unit_interval(array: Array) -> Array:
    """Return ``array`` after checking that it lies in [0, 1]; slow only if it does not."""
    # min and max are NaN if any entry is NaN, so the comparison fails for NaN too.
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        checks.probabilities(array)
    return array


def mean_known(values: Array, axis: int | None = None) -> Array:
    """Return the mean of the entries that are not NaN, or NaN without a warning if all are."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, values, 0.0).sum(axis) / count


Terms = tuple[Array, Array]
"""Part and whole of a metric in each row: the metric is Σ part / Σ whole."""


class Accumulator:
    """Named sums over rows. A metric function updates an accumulator with one batch.

    Code over files, processes and workers updates several accumulators. Each sends its ``state()``,
    and ``merge`` adds it, so the metric does not depend on how rows were distributed.
    """

    def __init__(self, **sums: Array) -> None:
        self.sums = sums

    def state(self) -> dict[str, Array]:
        """Return all sums as arrays, for ``merge``."""
        return dict(self.sums)

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of an accumulator of other rows."""
        for name, mine in self.sums.items():
            if mine.shape != np.shape(state[name]):
                raise InputError(
                    "only accumulators of the same labels and bins can be merged; got shapes "
                    f"{mine.shape} and {np.shape(state[name])}."
                )
            mine += state[name]


class Accumulators(Accumulator):
    """Several accumulators of the same rows: the attributes; their names become prefixes."""

    @property
    def parts(self) -> dict[str, Accumulator]:
        """Return the accumulators by name."""
        return {name: each for name, each in vars(self).items() if isinstance(each, Accumulator)}

    def state(self) -> dict[str, Array]:
        """Return the states of all parts."""
        return {
            f"{part}:{name}": array
            for part, each in self.parts.items()
            for name, array in each.state().items()
        }

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of accumulators of other rows."""
        for part, each in self.parts.items():
            start = f"{part}:"
            each.merge({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})


class SparseSums(Accumulator):
    """Sums over cells that are mostly empty, so the state contains only the others."""

    cells: Array
    """(cells, columns); the first column counts."""

    def state(self) -> dict[str, Array]:
        """Return the cells that are not empty."""
        keys = np.flatnonzero(self.cells[:, 0])
        return {"keys": keys, "cells": self.cells[keys]}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of other rows."""
        self.cells[state["keys"]] += state["cells"]


_SIGN = np.uint64(1 << 63)


class ValueCounts(Accumulator):
    """Two weights of each value, in the order of the values.

    Above ``exact`` different values, values with the same leading bits (by default 14 or more of
    the mantissa) count as ties.

    Args:
        exact: limit on the number of different values that are kept apart.
    """

    def __init__(self, exact: int = 2**20) -> None:
        self._exact, self._bits = exact, 64
        self._keys: Array = np.zeros(0, np.uint64)
        self._counts: Array = np.zeros((0, 2))
        self._waiting: list[tuple[Array, Array]] = []

    def update(self, values: Array, counts: Array) -> None:
        """Add values with their weights, (values, 2)."""
        self._add(_keys(values), counts)

    def _add(self, keys: Array, counts: Array) -> None:
        self._waiting.append((keys, counts))
        if sum(len(each) for each, _ in self._waiting) >= self._exact:
            self.counts()

    def counts(self) -> Array:
        """Return the weights of the values that occur, in ascending order, (values, 2)."""
        waiting, self._waiting = [(self._keys, self._counts), *self._waiting], []
        keys, counts = (np.concatenate(each) for each in zip(*waiting, strict=True))
        while True:
            found, places = np.unique(self._cut(keys), return_inverse=True)
            if len(found) <= self._exact:
                break
            self._bits = min(self._bits, 27) - 1  # sign and exponent take 12 bits
        self._keys = found
        self._counts = np.stack([np.bincount(places, each, len(found)) for each in counts.T], 1)
        return self._counts

    def values(self) -> Array:
        """Return the values that occur, ascending; tied values are given by their lower limit."""
        self.counts()
        return np.where(self._keys & _SIGN, self._keys ^ _SIGN, ~self._keys).view(np.float64)

    def places(self, values: Array) -> Array:
        """Return the indices in ``counts`` of values that occur."""
        return np.searchsorted(self._keys, self._cut(_keys(values)))

    def clear(self, column: int) -> None:
        """Set one of the two weights to 0."""
        self.counts()[:, column] = 0

    def _cut(self, keys: Array) -> Array:
        shift = np.uint64(64 - self._bits)
        return keys >> shift << shift

    def state(self) -> dict[str, Array]:
        """Return values and weights."""
        self.counts()
        return {"bits": np.array([self._bits]), "keys": self._keys, "counts": self._counts}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of other rows."""
        self._bits = min(self._bits, int(state["bits"][0]))
        self._add(state["keys"], np.array(state["counts"]))


def _keys(values: Array) -> Array:
    """Return integers in the order of float64 values; −0 and 0 are equal."""
    pattern = (values.astype(np.float64) + 0.0).view(np.uint64)
    return np.where(pattern & _SIGN, ~pattern, pattern | _SIGN)


class BestRows(Accumulator):
    """The first rows in the order of some of their columns.

    Args:
        order: columns to sort by, the most important first; a minus sorts in descending order.
        top: the number of rows to keep; None keeps all.
    """

    def __init__(self, order: tuple[str, ...], top: int | None) -> None:
        self.order, self.top = order, top
        self.columns: dict[str, Array] = {}

    def update(self, columns: Mapping[str, Array]) -> None:
        """Add rows."""
        if self.columns:
            columns = {
                name: np.concatenate([self.columns[name], each]) for name, each in columns.items()
            }
        keys = [-columns[name[1:]] if name[0] == "-" else columns[name] for name in self.order]
        first = np.lexsort(keys[::-1])[: self.top]
        self.columns = {name: each[first] for name, each in columns.items()}

    def state(self) -> dict[str, Array]:
        """Return the kept rows."""
        return self.columns

    def merge(self, state: Mapping[str, Array]) -> None:
        """Add the ``state()`` of other rows."""
        if state:
            self.update(state)


class Codes(Accumulator):
    """Counts of target values before decoding, since one batch may not show their coding."""

    def __init__(self) -> None:
        super().__init__(codes=np.zeros(4))

    def update(self, targets: TargetsLike, matrix: Array) -> None:
        """Add raw targets; class indices count as their decoded ``matrix``."""
        array = to_numpy(targets)
        self.sums["codes"] += tally(array if array.size == matrix.size else matrix)
