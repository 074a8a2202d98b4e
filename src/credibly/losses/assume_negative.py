"""Assume-negative loss: labels that were not observed count as absent, with a small weight."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly.losses.base import LinkFormula, Reduction, working_precision
from credibly.losses.families import BinaryLoss
from credibly.types import LogOdds, Scores


class AssumeNegative(BinaryLoss):
    r"""Assume-negative loss, weighted: all unobserved labels together weigh as much as one.

    $$\ell_+(v) = \mathrm{softplus}(-v), \qquad \ell_-(v) = \frac{1}{L-1}\,\mathrm{softplus}(v)$$

    Strictly proper for the rate at which a label is *observed*, with the link
    $g(v) = v - \log(L - 1)$; a sigmoid of the scores overstates it. Cole et al. (2021), there
    called WAN; Garcin et al. (2023), Eq. 5, call it AN. As printed there, values are summed over
    the labels of a row and averaged over rows: ``reduction="rows"`` is the default here. The mean
    over entries is $1/L$ of it; with it, SGD at the paper's rate hardly learns.

    In the loss $L$ counts the known labels of the row, so that an unknown label changes nothing. In
    the link it is the number of columns of the scores. Targets may be class indices.

    Args:
        reduction: ``"rows"``, ``"mean"``, ``"sum"`` or ``"none"``; see `Loss`.
        label_weight: factors of both sides, one per label; see `BinaryLoss`.

    Example:
        >>> loss = AssumeNegative()
        >>> loss(torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([0]))
        tensor(0.6301)
        >>> loss.probabilities(torch.tensor([[2.0, -1.0, 0.0]]))
        tensor([[0.7870, 0.1554, 0.3333]])
    """

    name = "an"
    properness = "strict"
    default_reduction = "rows"
    published = "softmax"

    def __init__(
        self, *, reduction: Reduction = "rows", label_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction=reduction, label_weight=label_weight)

    def positive(self, scores: Scores) -> Tensor:
        return -logsigmoid(scores)

    def negative(self, scores: Scores) -> Tensor:
        return -logsigmoid(-scores) / _others(scores)

    def plain_values(self, scores: Scores, targets: Tensor) -> Tensor:
        known = targets >= 0
        others = (known.sum(-1, keepdim=True) - 1).clamp(min=1)
        scores = torch.where(known, scores, 0.0)
        values = targets * -logsigmoid(scores) + (1 - targets) * -logsigmoid(-scores) / others
        return torch.where(known, values, 0.0)

    def log_odds(self, scores: Scores) -> LogOdds:
        scores = working_precision(scores)
        return scores - math.log(_others(scores))

    def formula(self) -> LinkFormula:
        return {"link": "assume-negative"}


def _others(scores: Scores) -> int:
    """Return L − 1, but at least 1: a single label has no others to share with."""
    return max(scores.shape[-1] - 1, 1)
