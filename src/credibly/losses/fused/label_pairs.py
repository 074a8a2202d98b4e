"""The label pair regularizer: its formula, its closed form in torch, its kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from credibly import checks
from credibly.losses.fused.elementwise import EXACT_FROM, IN_CACHE
from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_rows
from credibly.losses.fused.kernels.chebyshev import tables
from credibly.losses.fused.kernels.pairs import pairs_at
from credibly.types import LogOdds, Targets, Values


@dataclass(frozen=True)
class PairsForm(FusedForm):
    """``weight`` × the mean over rows with a known label; "scores" here are log-odds.

    Example:
        >>> log_odds = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
        >>> PairsForm(1.0)(log_odds, torch.tensor([[1, 0, 0], [0, 0, 0]]).float())
        tensor(0.0734)
    """

    weight: float

    def on_cpu(self, scores: LogOdds, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        double = scores.dtype == torch.float64
        return run_rows(pairs_at, scores, targets, needs_grad, self.weight, tables(double))

    def in_torch(self, scores: LogOdds, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        return pairs_in_torch(scores, targets, needs_grad, self.weight)

    def plain(self, scores: LogOdds, targets: Targets) -> Tensor:
        rows = (targets >= 0).any(-1).sum().clamp(min=1)
        return self.weight * row_pairs(scores, targets).sum() / rows


def row_pairs(log_odds: LogOdds, targets: Targets) -> Values:
    """Return the regularizer of each row by the formula."""
    known = targets >= 0
    present = torch.where(known, targets, 0.0)
    absent = torch.where(known, 1 - targets, 0.0)
    u = torch.where(known, log_odds, 0.0)
    total = -math.log(2) * (present * absent).sum(-1)  # a soft label meets itself
    if not checks.can_read_values(log_odds):  # how many positives a row has cannot be read: a cube
        gaps = u[..., None, :] - u[..., :, None]
        pairs = present[..., :, None] * absent[..., None, :] * logsigmoid(-gaps)
        return _pair_share(known, u.dtype) * (total - pairs.sum((-1, -2)))
    most = int((present > 0).sum(-1).max()) if present.numel() else 0
    share, index = present.topk(most, dim=-1)
    for k in range(most):  # one positive of every row at a time
        gaps = u - u.gather(-1, index[..., k : k + 1])
        total = total - share[..., k] * (absent * logsigmoid(-gaps)).sum(-1)
    return _pair_share(known, u.dtype) * total


def pairs_in_torch(
    log_odds: LogOdds, targets: Targets, needs_grad: bool, weight: float
) -> ValueAndGradient:
    """Return value and gradient in closed form: every positive against its row, some at a time."""
    labels = targets.shape[-1]
    y = targets.reshape(-1, labels)
    known = y >= 0
    u = torch.where(known, log_odds.reshape(y.shape), 0.0)
    absent = 1 - y.abs()  # 0 where unknown
    row, column = (y > 0).nonzero(as_tuple=True)
    level, share = u[row, column], y[row, column]
    factor = _pair_share(known, u.dtype) * (weight / known.any(1).sum().clamp_(min=1).to(u.dtype))
    total = torch.dot(share * factor[row], absent[row, column]) * -math.log(
        2
    )  # a soft label meets itself
    gradient = torch.zeros_like(u)
    some = max(1, (IN_CACHE if u.is_cpu else u.numel()) // max(labels, 1))
    for start in range(0, len(row), some):
        part = slice(start, start + some)
        gaps = u[row[part]].sub_(level[part, None])
        weights = absent[row[part]].mul_(share[part, None])
        values = softplus(gaps, threshold=EXACT_FROM)
        total = total + torch.dot(values.mul_(weights).sum(1), factor[row[part]])
        if needs_grad:
            slopes = gaps.sigmoid_().mul_(weights)
            gradient.index_add_(0, row[part], slopes)
            level[part] = slopes.sum(1)  # which is not needed any more
    if not needs_grad:
        return total, None
    gradient.index_put_((row, column), level.neg_(), accumulate=True)
    return total, gradient.mul_(factor[:, None]).view(log_odds.shape)


def _pair_share(known: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 2/(T(T − 1)) for each row, T its number of known labels; 0 without a pair."""
    labels = known.sum(-1).to(dtype)
    return torch.where(labels > 1, 2 / (labels * (labels - 1)).clamp(min=1), 0.0)
