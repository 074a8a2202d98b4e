"""Losses that couple the labels of a row, and leave rows to themselves."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from credibly import checks
from credibly import targets as coding
from credibly.losses.base import Loss, working_precision
from credibly.types import Scores, Targets, Values


class RowLoss(Loss):
    """Mean of one value per row over the rows that count.

    A weight of a row multiplies its value, which leaves its minimiser as it is. Weights of single
    entries are refused: inside a sum over the labels of a row they would move the link.
    """

    name = ""
    smallest_example: ClassVar[str] = Loss.smallest_example

    @abstractmethod
    def row_values(self, scores: Scores, targets: Targets) -> tuple[Values, Tensor]:
        """Return one value per row, and which rows count (bool).

        ``scores`` are (rows, labels) in float32 or float64, ``targets`` the same with −1 where
        unknown. Values of rows that do not count are taken as 0.
        """

    def forward(self, scores: Scores, targets: Targets, weight: Tensor | None = None) -> Tensor:
        values, counted = self._weighted(scores, targets, weight)
        return self.reduce(values, counted.sum())

    def values(self, scores: Scores, targets: Targets, weight: Tensor | None = None) -> Values:
        """Return one value per row; 0 for rows that do not count."""
        return self._weighted(scores, targets, weight)[0]

    def _weighted(
        self, scores: Scores, targets: Targets, weight: Tensor | None
    ) -> tuple[Values, Tensor]:
        scores, targets = matrices(self, scores, targets)
        values, counted = self.row_values(scores, targets)
        values = torch.where(counted, values, 0.0)
        if weight is not None:
            values = values * checks.row_weight(weight, scores).to(values.dtype)
        return values, counted


def matrices(loss: Loss, scores: Scores, targets: Targets) -> tuple[Scores, Targets]:
    """Return scores in working precision, and targets as a matrix with −1 where unknown."""
    checks.matrix_scores(scores, loss.scores_per_label)
    scores = working_precision(scores)
    one_head = scores[:, : loss.num_labels_of(scores.shape[1])]
    return scores, coding.unknown_to_minus_one(coding.tensor_matrix(one_head, targets))
