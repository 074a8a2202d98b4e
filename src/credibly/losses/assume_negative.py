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
    r"""Weighted assume-negative loss: all unobserved labels together have the weight of one label.

    $$\ell_+(v) = \mathrm{softplus}(-v), \qquad \ell_-(v) = \frac{1}{L-1}\,\mathrm{softplus}(v)$$

    Strictly proper for the rate at which a label is *observed*, with the link
    $g(v) = v - \log(L - 1)$; a sigmoid of the scores overestimates this rate. Cole et al. (2021)
    call the loss WAN; Garcin et al. (2023), Eq. 5, call it AN. As in these papers, values are
    summed over the labels of a row and averaged over rows: the default is ``reduction="rows"``. The
    mean over entries is $1/L$ of it; with that mean, SGD at the paper's learning rate hardly
    learns.

    In the loss, $L$ is the number of known labels of the row, so an unknown label has no effect. In
    the link, it is the number of columns of the scores. Targets may be class indices.

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
    """Return L − 1, but at least 1."""
    return max(scores.shape[-1] - 1, 1)
