"""Rows that carry no label at all: are they told apart, and left unconfident?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly.arrays import like
from credibly.metrics.inputs import hard, probability_pair
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike


@dataclass(frozen=True)
class ZeroLabel:
    """IN rows have a known label, OUT rows are known to have none; NaN where there are no rows."""

    accuracy: Any
    """Share of IN rows whose most probable label is present (ties count by share)."""
    mean_confidence_in: Any
    """Mean over IN rows of the largest probability."""
    mean_confidence_out: Any
    """MMC: mean over OUT rows of the largest probability; best is 0."""
    auroc: Any
    """Chance that an IN row's largest probability exceeds an OUT row's, ties counted half."""
    rows_in: int
    rows_out: int


def zero_label(
    probabilities: ArrayLike, targets: TargetsLike, *, coding: Coding | None = None
) -> ZeroLabel:
    """Accuracy where labels exist, confidence where none does, and how well the two separate.

    Rows whose known labels are all absent while others are unknown belong to neither side; a
    label that is unknown in every row is left out.

    Example:
        >>> probabilities = np.array([[0.9, 0.1], [0.2, 0.6], [0.1, 0.3]])
        >>> result = zero_label(probabilities, np.array([[1, 0], [1, 0], [0, 0]]))
        >>> float(result.accuracy), float(result.mean_confidence_out), float(result.auroc)
        (0.5, 0.3, 1.0)
    """
    values, truth = probability_pair(probabilities, targets, coding)
    truth = hard(truth, "zero_label")
    inside, used = (truth > 0).any(1), (truth >= 0).any(0)
    outside = (truth[:, used] == 0).all(1) & used.any()
    known = np.where(truth >= 0, values.astype(np.float64), -np.inf)
    confidence = known.max(1, initial=-np.inf)
    top = known == confidence[:, None]
    share = (top & (truth > 0)).sum(1) / np.maximum(top.sum(1), 1)
    numbers = (
        _mean(share[inside]),
        _mean(confidence[inside]),
        _mean(confidence[outside]),
        _auroc(confidence[inside], confidence[outside]),
    )
    return ZeroLabel(
        *(like(number, probabilities, targets) for number in numbers),
        rows_in=int(inside.sum()),
        rows_out=int(outside.sum()),
    )


def _mean(values: Array) -> Any:
    return values.mean() if values.size else np.float64(np.nan)


def _auroc(inside: Array, outside: Array) -> Any:
    """Mann–Whitney: the share of (in, out) pairs in the right order."""
    if not (inside.size and outside.size):
        return np.float64(np.nan)
    ranked = np.sort(outside)
    below = np.searchsorted(ranked, inside, "left") + np.searchsorted(ranked, inside, "right")
    return below.mean() / 2 / len(ranked)
