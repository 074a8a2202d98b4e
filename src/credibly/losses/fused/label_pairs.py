"""The label pair regularizer: its formula, and its compiled loop."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses.fused.chebyshev import tables
from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_rows
from credibly.losses.fused.pairs import pairs_at
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


def _pair_share(known: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 2/(T(T − 1)) for each row, T its number of known labels; 0 without a pair."""
    labels = known.sum(-1).to(dtype)
    return torch.where(labels > 1, 2 / (labels * (labels - 1)).clamp(min=1), 0.0)
