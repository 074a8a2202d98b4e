"""What an average number of labels per row means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly import checks, metrics
from credibly.decide import AverageSize, Threshold
from credibly.targets import Targets
from credibly.types import Array


@dataclass(frozen=True)
class Budget:
    """Label sets of some rows under a rule with an average size; None where truth is missing."""

    average_size: float
    threshold: float
    mean_size: float
    rows: int
    coverage: float | None
    precision: float | None
    histogram: list[int]
    statement: str

    @property
    def promise(self) -> str:
        """Deprecated name of ``statement``."""
        checks.renamed("promise", "statement")
        return self.statement


def budget(
    decision: AverageSize | Threshold, probabilities: Array, targets: Array | None
) -> Budget:
    """Return the sizes of the sets of a fitted ``decision`` and, with truth, how right they are.

    The threshold must be one for all labels.

    Example:
        >>> p = np.array([[0.9, 0.2], [0.8, 0.7]])
        >>> budget(AverageSize(1.5).fit(p), p, np.array([[1, 0], [0, 1]])).coverage
        1.0
    """
    sets = decision.predict(probabilities)
    sizes = sets.sum(1)
    known = None if targets is None else Targets(targets)
    return Budget(
        average_size=decision.average_size
        if isinstance(decision, AverageSize)
        else float(sizes.mean()),
        threshold=_one_threshold(decision),
        mean_size=float(sizes.mean()),
        rows=len(sizes),
        coverage=None if known is None else _finite(metrics.set_coverage(sets, known)),
        precision=None if known is None else _finite(metrics.precision(sets, known)),
        histogram=np.bincount(sizes).tolist(),
        statement=decision.statement,
    )


def _one_threshold(decision: AverageSize | Threshold) -> float:
    if isinstance(decision.threshold, dict):
        raise checks.InputError("the sizes of sets need one threshold for all labels; got several.")
    return float(decision.threshold)


def size_bars(counts: list[int], most: int = 16) -> list[tuple[str, int]]:
    """Return rows by number of labels as at most ``most`` bars with names; large sizes share one.

    Example:
        >>> size_bars([3, 5, 2])
        [('no label', 3), ('1', 5), ('2', 2)]
        >>> size_bars([1] * 100, most=5)[1:3]
        [('1–25', 25), ('26–50', 25)]
    """
    if len(counts) <= most:
        return [("no label" if not size else str(size), n) for size, n in enumerate(counts)]
    width = -(-(len(counts) - 1) // (most - 1))
    bars = [("no label", counts[0])]
    for first in range(1, len(counts), width):
        last = min(first + width, len(counts)) - 1
        name = str(first) if first == last else f"{first}–{last}"
        bars.append((name, sum(counts[first : last + 1])))
    return bars


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
