"""WARP: pairs of a positive above a negative, weighted by how low the positive ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly.losses.base import Reduction
from credibly.losses.families import RowLoss
from credibly.types import Scores


class Warp(RowLoss):
    r"""Weighted approximate-rank pairwise loss, with exact ranks.

    $$\ell_i = \frac{1}{L_i} \sum_{p \in P_i} w(r_p) \sum_{n \in N_i} \max(0,\, 1 - v_p + v_n),
      \qquad w(r) = \sum_{k=1}^{r} \frac1k$$

    $r_p$ is the number of negatives within the margin of positive $p$ or above it. Gong et al.
    (2014) estimate it by sampling; here it is exact, by sorting, in $O(L \log L)$ per row. (One
    public code has $1/k + 1$ instead of $1/(k+1)$ in the weights.) The division by the number $L_i$
    of known labels and the mean over rows are ours; the sources sum.

    A label is positive above one half, and negative otherwise. Rows without positives or without
    negatives are ignored. Weights are constants for the gradient; their derivative is 0 almost
    everywhere. No link: scores only rank. A NaN score makes its row NaN.

    Args:
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> scores = torch.tensor([[2.0, 1.5, -1.0], [0.0, 1.0, 0.5]])
        >>> Warp().values(scores, torch.tensor([[1, 0, 0], [1, 0, 0]]))
        tensor([0.1667, 1.7500])
    """

    name = "warp"
    properness = "none"
    has_link = False
    published = "sigmoid"

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)

    def row_values(self, scores: Scores, targets: Tensor) -> tuple[Tensor, Tensor]:
        positive, negative = targets > 0.5, (targets >= 0) & (targets <= 0.5)
        taking_part = positive.any(1) & negative.any(1)
        safe = torch.where(positive | negative, scores, 0.0).double()
        count, hinges = hinge_sums(safe, positive, negative, margin=1.0)
        known = (positive | negative).sum(1).clamp(min=1)
        # The values are already at least 0. relu adds a second derivative, which is 0.
        values = torch.relu((rank_weights(count, scores.shape[1]) * hinges).sum(1) / known)
        return values.to(scores.dtype), taking_part


def rank_weights(ranks: Tensor, highest: int) -> Tensor:
    r"""Return $w(r) = \sum_{k=1}^{r} 1/k$ for whole numbers up to ``highest``.

    Example:
        >>> rank_weights(torch.tensor([0, 1, 2, 3]), 3)
        tensor([0.0000, 1.0000, 1.5000, 1.8333], dtype=torch.float64)
    """
    steps = torch.arange(1, highest + 1, dtype=torch.float64, device=ranks.device)
    table = torch.cat([steps.new_zeros(1), torch.cumsum(1 / steps, 0)])
    return table[ranks]


def hinge_sums(
    scores: Scores, positive: Tensor, negative: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Return the number of margin violations of each positive, and their sum.

    Both are 0 for other labels. After sorting the negatives of a row, the violators of each
    positive are a tail, whose sum is a difference of cumulative sums.
    """
    if not scores.numel():
        return torch.zeros_like(scores, dtype=torch.long), scores
    order = torch.where(negative, scores, -torch.inf).detach().argsort(1)
    ordered = torch.where(negative, scores, 0.0).gather(1, order)
    keys = torch.where(negative, scores, -torch.inf).detach().gather(1, order)
    running = torch.cumsum(ordered, 1)
    first = torch.searchsorted(keys, (scores.detach() - margin).contiguous(), right=True)
    before = torch.cat([torch.zeros_like(running[:, :1]), running], 1).gather(1, first)
    violators = scores.shape[1] - first
    hinges = violators * (margin - scores) + (running[:, -1:] - before)
    return torch.where(positive, violators, 0), torch.where(positive, hinges, 0.0)
