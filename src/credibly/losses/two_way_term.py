"""The two-way loss as a term beside another loss: quick to rank, and still with a link."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from credibly import checks
from credibly import targets as coding
from credibly.losses.base import Loss, Reduction
from credibly.losses.two_way import TwoWay
from credibly.losses.wrapped import WrappedLoss
from credibly.types import Scores, Targets, Values


class TwoWayTerm(WrappedLoss):
    r"""A loss plus the two-way loss of the scores that it ranks by.

    $$\ell + \frac{\lambda}{L}\, \ell_{\text{two-way}}$$

    A proper loss teaches levels, the two-way loss teaches order, and a network that is trained for
    few epochs learns the order much sooner from the second. Together they rank like the two-way
    loss and keep the link of the first.

    where $L$ is the number of labels: losses of single entries are means over labels, the two-way
    loss is not, so one $\lambda$ serves few labels and many.

    The term moves the minimiser, so ``properness`` is ``"none"``: fit a calibrator on held-out rows
    (`credibly train` does).

    Across processes, where the inner loss leaves the gathering to the trainer, so does this one.

    Args:
        loss: any loss; its ``reduction`` must be ``"mean"`` or ``"rows"``.
        weight: $\lambda \ge 0$.
        temperature_pos: see `TwoWay`.
        temperature_neg: see `TwoWay`.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> from credibly.losses.bce import BCE
        >>> loss = TwoWayTerm(BCE(), weight=2.0)
        >>> loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(3.5370)
        >>> loss.name
        'bce+twl'
    """

    arguments = ("weight", "temperature_pos", "temperature_neg")
    suffix = "twl"

    def __init__(
        self,
        loss: Loss,
        weight: float = 2.0,
        temperature_pos: float = 4.0,
        temperature_neg: float = 1.0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(loss, reduction=reduction)
        self.weight = checks.at_least("weight", weight, 0.0)
        self.two_way = TwoWay(temperature_pos, temperature_neg)
        self.temperature_pos = self.two_way.temperature_pos
        self.temperature_neg = self.two_way.temperature_neg
        self._inherit(biased=self.weight > 0)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; the term sums over processes only where the inner loss does."""
        super().train(mode)
        self.two_way.train(mode and self.spans_processes)
        return self

    def forward(
        self, scores: Scores, targets: Targets, weight: Tensor | None = None, **details: Any
    ) -> Tensor:
        checks.float_scores(scores)
        if self.reduction not in ("mean", "rows"):
            return self.reduce(self.values(scores, targets, weight, **details), torch.ones(()))
        ranked = self.ranking_scores(scores)
        term = self.two_way(ranked, targets, weight)
        share = self.weight / ranked.shape[-1]
        return self.loss(scores, targets, weight, **details) + share * term

    def values(
        self, scores: Scores, targets: Targets, weight: Tensor | None = None, **details: Any
    ) -> Values:
        """Return one value per row: the inner loss's mean over known entries, and the term."""
        ranked = self.ranking_scores(scores)
        matrix = coding.unknown_to_minus_one(coding.tensor_matrix(ranked, targets))
        values = self._row_values(scores, matrix, weight, details)
        share = self.weight / ranked.shape[-1]
        return values + share * self.two_way.values(ranked, targets, weight)
