"""What calibrators are fitted on: the known entries, checked once and read in small blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.frames import aligned
from credibly.targets import Coding, TargetsLike, decode
from credibly.types import Array, ArrayLike

PIECE = 1 << 18
"""Entries converted to float64 at a time: 2 MB per array, whatever the size of the whole."""


@dataclass(frozen=True)
class Entries:
    """Log-odds with their targets and weights; entries that are unknown or weigh 0 take no part."""

    log_odds: Array
    targets: Array
    weights: Array | None  # (n, 1) or (n, L)

    @classmethod
    def check(
        cls,
        log_odds: ArrayLike,
        targets: TargetsLike,
        weights: ArrayLike | None = None,
        *,
        coding: Coding | None = None,
    ) -> Entries:
        """Return the entries of checked arrays.

        Raises:
            InputError: if shapes do not agree, a value has no meaning, or no entry is known.
        """
        targets = aligned(log_odds, targets, "log_odds")
        odds = checks.matrix("log_odds", to_numpy(log_odds))
        if odds.dtype.kind not in "fiu":
            raise checks.InputError(f"`log_odds` must be numbers; got {odds.dtype}.")
        truth = _targets(targets, odds.shape, coding)
        entries = cls(odds, truth, _weights(weights, odds.shape))
        known = 0
        for start, (g, _, w) in zip(entries._starts(), entries.pieces(), strict=True):
            known += int(np.count_nonzero(w))
            bad = np.isnan(g) & (w > 0)
            if bad.any():
                row, column = np.argwhere(bad)[0]
                raise checks.InputError(
                    "`log_odds` must not be NaN where the target is known; got NaN at "
                    f"({start + row}, {column}). Drop those rows or mark their targets −1."
                )
        if not known:
            raise checks.InputError(
                f"calibration needs known targets (0, 1 or soft); got none in {odds.shape[0]} rows "
                f"× {odds.shape[1]} labels that are known and have a weight above 0. Pass held-out "
                "rows with truth."
            )
        return entries

    @property
    def num_labels(self) -> int:
        return self.log_odds.shape[1]

    def pieces(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield log-odds, targets and weights in float64, some rows at a time.

        Unknown entries have weight 0.
        """
        for start in self._starts():
            rows = slice(start, start + self._step)
            y = self.targets[rows].astype(np.float64)
            if self.weights is None:
                w = (y >= 0).astype(np.float64)
            else:
                w = np.where(y >= 0, self.weights[rows], 0.0)
            yield np.where(w > 0, self.log_odds[rows], 0.0).astype(np.float64, copy=False), y, w

    def take(self, rows: Array) -> Entries:
        """Return the entries of some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return Entries(self.log_odds[rows], self.targets[rows], weights)

    @property
    def _step(self) -> int:
        return max(1, PIECE // max(1, self.num_labels))

    def _starts(self) -> range:
        return range(0, self.log_odds.shape[0], self._step)


def _targets(targets: TargetsLike, shape: tuple[int, ...], coding: Coding | None) -> Array:
    array = to_numpy(targets)
    indices = array.ndim == 1 and array.dtype.kind in "iu" and len(array) == shape[0]
    if not indices and array.shape != shape:
        raise checks.InputError(
            f"`targets` must have the shape of `log_odds`, {shape}, or be class indices of shape "
            f"({shape[0]},); got {array.shape}, {array.dtype}."
        )
    return decode(targets, coding=coding, num_labels=shape[1])


def _weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    if weights is None:
        return None
    array = to_numpy(weights)
    array = array[:, None] if array.ndim == 1 else array
    if array.shape not in (shape, (shape[0], 1)):
        raise checks.InputError(
            f"`weights` must have shape ({shape[0]},), one per row, or {shape}, one per entry; got "
            f"{np.shape(weights)}."
        )
    array = array.astype(np.float64)
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise checks.InputError("`weights` must be finite and at least 0; got others.")
    return array
