"""Losses that couple the rows of a batch."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from credibly import checks
from credibly.losses.base import Loss
from credibly.losses.rows import matrices
from credibly.types import Scores, Targets, Values


class BatchLoss(Loss):
    """A loss in which rows of a batch share something: a normalizer, a count, a choice.

    A subclass that sums over processes itself, with `credibly.losses.collectives`, says so with
    ``spans_processes = True``. Otherwise a trainer gathers the batches of all processes for it.
    """

    name = ""
    smallest_example: ClassVar[str] = """
class Mine(cr.losses.BatchLoss):
    def batch_values(self, scores, targets, weight, *, update_state):
        known = targets >= 0
        centred = scores - scores.mean()
        values = (centred - targets).square().where(known, 0.0).sum(1)
        return values, known.any(1).sum()
"""

    @abstractmethod
    def batch_values(
        self, scores: Scores, targets: Targets, weight: Tensor | None, *, update_state: bool
    ) -> tuple[Values, Tensor]:
        """Return one value per row or entry, and the number that the mean divides by.

        ``scores`` are in float32 or float64, ``targets`` a matrix with −1 where unknown, ``weight``
        is (rows,) or None. State may change only where ``update_state`` says so.
        """

    def forward(self, scores: Scores, targets: Targets, weight: Tensor | None = None) -> Tensor:
        scores, targets = matrices(self, scores, targets)
        rows = _row_weight(weight, scores)
        return self.reduce(*self.batch_values(scores, targets, rows, update_state=self.training))

    def values(self, scores: Scores, targets: Targets, weight: Tensor | None = None) -> Values:
        """Return one value per row, or per entry where the method has them; 0 where unknown."""
        scores, targets = matrices(self, scores, targets)
        rows = _row_weight(weight, scores)
        return self.batch_values(scores, targets, rows, update_state=False)[0]


def _row_weight(weight: Tensor | None, scores: Scores) -> Tensor | None:
    return None if weight is None else checks.row_weight(weight, scores).to(scores.dtype)
