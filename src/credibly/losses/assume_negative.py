"""Assume-negative loss: labels that were not observed count as absent, lightly."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import logsigmoid

from credibly.losses._base import working_precision
from credibly.losses._binary import BinaryLoss
from credibly.types import LogOdds, Scores, Values


class AssumeNegative(BinaryLoss):
    r"""Assume-negative loss, weighted: all unobserved labels together weigh as much as one.

    $$\ell_+(v) = \mathrm{softplus}(-v), \qquad \ell_-(v) = \frac{1}{L-1}\,\mathrm{softplus}(v)$$

    Strictly proper for the rate at which a label is *observed*, with the link
    $g(v) = v - \log(L - 1)$; a sigmoid of the scores overstates it. Cole et al. (2021), there
    called WAN; Garcin et al. (2023), Eq. 5, call it AN. They sum over labels, here as everywhere
    the mean over known entries is taken, which is $1/L$ of that.

    $L$ is the number of columns of the scores. Targets may be class indices.

    Example:
        >>> loss = AssumeNegative()
        >>> loss(torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([0]))
        tensor(0.2100)
        >>> loss.probabilities(torch.tensor([[2.0, -1.0, 0.0]]))
        tensor([[0.7870, 0.1554, 0.3333]])
    """

    name = "an"
    properness = "strict"

    def __init__(self) -> None:
        super().__init__()

    def positive(self, scores: Scores) -> Values:
        return -logsigmoid(scores)

    def negative(self, scores: Scores) -> Values:
        return -logsigmoid(-scores) / _others(scores)

    def log_odds(self, scores: Scores) -> LogOdds:
        scores = working_precision(scores)
        return scores - math.log(_others(scores))


def _others(scores: torch.Tensor) -> int:
    """L − 1, but at least 1: a single label has nobody to share with."""
    return max(scores.shape[-1] - 1, 1)
