"""Which calibrator: by cross-validated log loss."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from credibly import checks
from credibly.calibrate._base import Calibrator
from credibly.calibrate._entries import Entries
from credibly.calibrate._likelihood import log_loss
from credibly.calibrate.registry import CALIBRATORS, from_name
from credibly.targets import Coding
from credibly.types import Array, ArrayLike

STRICT: tuple[str, ...] = tuple(name for name, kind in CALIBRATORS.items() if kind.strict)
"""Calibrators that keep different log-odds different, from the simplest on."""


SIMPLE: tuple[str, ...] = ("none", "affine", "per-label")
"""What ``calibrate`` auto of training chooses from."""


def cross_validate(
    log_odds: ArrayLike,
    targets: ArrayLike,
    folds: int = 5,
    seed: int = 0,
    weights: ArrayLike | None = None,
    names: Sequence[str] = tuple(CALIBRATORS),
    *,
    coding: Coding | None = None,
) -> dict[str, float]:
    """Return each calibrator's mean log loss on rows it was not fitted on, by name.

    Whole rows go to a fold, so the entries of one row are never in both parts.

    Args:
        log_odds: (n, L).
        targets: as for ``Calibrator.fit``.
        folds: number of folds, at least 2.
        seed: of the assignment of rows to folds.
        weights: as for ``Calibrator.fit``.
        names: which calibrators.
        coding: as for ``Calibrator.fit``.
    """
    entries = Entries.check(log_odds, targets, weights, coding=coding)
    usable = _known_rows(entries)
    if not 2 <= folds <= len(usable):
        raise checks.InputError(
            f"`folds` must lie between 2 and the number of rows with a known target, "
            f"{len(usable)}; got {folds}."
        )
    parts = np.array_split(np.random.default_rng(seed).permutation(usable), folds)
    cost, mass = dict.fromkeys(names, 0.0), 0.0
    for held in parts:
        rest = entries.take(np.setdiff1d(usable, held))
        judged = entries.take(np.sort(held))
        mass += sum(float(w.sum()) for _, _, w in judged.pieces())
        for name in names:
            calibrator = from_name(name)
            with warnings.catch_warnings():  # of a fold; the fit on all rows warns
                warnings.simplefilter("ignore", UserWarning)
                calibrator._fit(rest)
            for g, y, w in judged.pieces():
                cost[name] += log_loss(calibrator._map(g), y, w)
    return {name: total / mass for name, total in cost.items()}


def choose(
    log_odds: ArrayLike,
    targets: ArrayLike,
    folds: int = 5,
    seed: int = 0,
    weights: ArrayLike | None = None,
    names: Sequence[str] = STRICT,
    *,
    coding: Coding | None = None,
) -> Calibrator:
    """Return the calibrator with the lowest cross-validated log loss, fitted on all rows.

    Where rows are too few to pay for a map, that is ``none``. Maps that make ties, and so lose
    ranking, are not among the default ``names``. The same seed gives the same choice; of equal
    losses the simpler calibrator is chosen. The arguments are those of ``cross_validate``.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> truth = noise.normal(-1, 2, (1000, 3))
        >>> targets = noise.random((1000, 3)) < 1 / (1 + np.exp(-truth))
        >>> choose(3 * truth - 2, targets).name
        'affine'
    """
    losses = cross_validate(log_odds, targets, folds, seed, weights, names, coding=coding)
    best = min(losses, key=lambda name: losses[name])
    return from_name(best).fit(log_odds, targets, weights, coding=coding)


def _known_rows(entries: Entries) -> Array:
    """Return rows with at least one entry that counts."""
    flags = [(w > 0).any(axis=1) for _, _, w in entries.pieces()]
    return np.flatnonzero(np.concatenate(flags))
