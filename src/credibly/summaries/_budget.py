"""What an average number of labels per row means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from credibly import checks, metrics
from credibly.decide import AverageSize
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


def budget(decision: AverageSize, probabilities: Array, targets: Array | None) -> Budget:
    """Return the sizes of the sets of a fitted ``decision`` and, with truth, how right they are.

    Example:
        >>> p = np.array([[0.9, 0.2], [0.8, 0.7]])
        >>> budget(AverageSize(1.5).fit(p), p, np.array([[1, 0], [0, 1]])).coverage
        1.0
    """
    sets = decision.predict(probabilities)
    sizes = sets.sum(1)
    known = None if targets is None else targets
    return Budget(
        average_size=decision.average_size,
        threshold=float(decision.threshold),
        mean_size=float(sizes.mean()),
        rows=len(sizes),
        coverage=None
        if known is None
        else _finite(metrics.set_coverage(sets, known, coding="unknown")),
        precision=None
        if known is None
        else _finite(metrics.precision(sets, known, coding="unknown")),
        histogram=np.bincount(sizes).tolist(),
        statement=decision.statement,
    )


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
