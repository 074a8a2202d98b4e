"""How often a label was there when its probability was about a given one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly.metrics import proportion_interval
from credibly.types import Array

NEAR = 0.1
MOST_ROWS = 200
FEWEST_ROWS = 20


@dataclass(frozen=True)
class ObservedShare:
    """Rows of known truth whose probability of a label is near a given one.

    Attributes:
        rows: how many there are.
        share: of those that carry the label (the mean of soft targets); NaN without rows.
        low, high: 95 % interval of the share (Wilson).
        expected: mean of their probabilities; NaN without rows.
        lowest, highest: of their probabilities; NaN without rows.
    """

    rows: int
    share: float
    low: float
    high: float
    expected: float
    lowest: float
    highest: float

    @property
    def enough(self) -> bool:
        """Return whether there are enough rows for the share to tell something."""
        return self.rows >= FEWEST_ROWS


def observed_share(
    probabilities: Array,
    targets: Array,
    value: float,
    *,
    near: float = NEAR,
    most: int = MOST_ROWS,
) -> ObservedShare:
    """Return how often a label was present where its probability was about ``value``.

    Args:
        probabilities: of one label, (rows,).
        targets: (rows,), 1, 0 or soft; −1 for unknown, which does not count.
        value: the probability in question.
        near: rows whose probability differs by more do not count.
        most: of the others, so many count, the nearest ones, and all rows as near as the last.

    Example:
        >>> p = np.array([0.2, 0.79, 0.8, 0.81, 0.8])
        >>> found = observed_share(p, np.array([0, 1, 1, 0, -1]), 0.8)
        >>> found.rows, round(found.share, 4), found.enough
        (3, 0.6667, False)
    """
    known = targets >= 0
    p, y = probabilities[known].astype(np.float64), targets[known].astype(np.float64)
    distance = np.abs(p - value)
    limit = near
    if len(p) > most:
        limit = min(near, float(np.partition(distance, most - 1)[most - 1]))
    inside = distance <= limit
    rows = int(inside.sum())
    if not rows:
        nothing = float("nan")
        return ObservedShare(0, nothing, 0.0, 1.0, nothing, nothing, nothing)
    present = float(y[inside].sum())
    low, high = proportion_interval(present, rows)
    return ObservedShare(
        rows=rows,
        share=present / rows,
        low=float(low),
        high=float(high),
        expected=float(p[inside].mean()),
        lowest=float(p[inside].min()),
        highest=float(p[inside].max()),
    )
