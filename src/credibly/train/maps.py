"""The calibrator that a name stands for, fitted on rows that the model did not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from credibly import calibrate as maps

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator
    from credibly.types import Array

FEW_ROWS = 20
"""Below twice this, too few to set rows aside: the calibrator is left out where it can be."""


MANY_ROWS = 5000
"""From here on two folds, not five, compare maps: more would cost more than the training."""


def fitted_map(name: str, odds: Array, targets: Array, *, has_link: bool) -> Calibrator | None:
    """Return the calibrator fitted on log-odds and targets; None for none.

    Args:
        name: a calibrator, ``none``, ``auto`` (none, affine or per-label by cross-validation; none
            below 20 rows with known labels) or ``choose`` (by cross-validation among all).
        odds: (n, L).
        targets: (n, L), −1 for unknown.
        has_link: whether the odds come from the loss's own link. Scores without one are not
            probabilities, so they always get a map.

    Example:
        >>> import numpy as np
        >>> fitted_map("auto", np.zeros((3, 2)), np.ones((3, 2)), has_link=True) is None
        True
    """
    if name == "none":
        return None
    if name == "auto":
        rows = int((targets >= 0).any(axis=1).sum())
        if rows < FEW_ROWS:
            name = "none" if has_link else "affine"
            return fitted_map(name, odds, targets, has_link=has_link)
        names = maps.SIMPLE if has_link else maps.SIMPLE[1:]
        folds = 5 if rows < MANY_ROWS else 2
        return maps.choose(odds, targets, folds, names=names, coding="unknown")
    if name == "choose":
        return maps.choose(odds, targets, coding="unknown")
    return maps.from_name(name).fit(odds, targets, coding="unknown")
