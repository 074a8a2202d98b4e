"""SPA, its link and the label pairs in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from credibly.losses.fused.elementwise import EXACT_FROM, weights_of
from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_rows
from credibly.losses.fused.kernels.chebyshev import tables
from credibly.losses.fused.kernels.spa_pairs import spa_pairs
from credibly.losses.fused.label_pairs import PairsForm, pairs_in_torch
from credibly.types import Scores, Targets

if TYPE_CHECKING:
    from credibly.losses.spa import SPA


@dataclass(frozen=True)
class SPAPairsForm(FusedForm):
    """Mean of SPA over known entries + ``weight`` × mean of the pairs over rows."""

    loss: SPA
    weight: float

    def on_cpu(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        sides = self.loss.sides
        arguments = (*sides, self.weight, tables(scores.dtype == torch.float64))
        return run_rows(spa_pairs, scores, targets, needs_grad, *arguments)

    def in_torch(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        loss = self.loss
        # Unknown labels take no part, not even with a score of NaN.
        scores = torch.where(targets >= 0, scores, 0.0)
        present, absent, count = weights_of(targets)
        up = (scores - loss.shift_neg).mul_(loss.slope_neg)
        down = (scores - loss.shift_pos).mul_(-loss.slope_pos)
        values, values_pos = (softplus(x, threshold=EXACT_FROM) for x in (up, down))
        log_odds = (up - values).sub_(down).add_(values_pos).add_(loss.log_ratio)
        extra, slopes = pairs_in_torch(log_odds, targets, needs_grad, self.weight)
        value = values.mul_(absent).sum() / loss.scale_neg
        value = (value + values_pos.mul_(present).sum() / loss.scale_pos) / count
        if slopes is None:
            return value + extra, None
        up.sigmoid_().mul_(loss.slope_neg)
        down.sigmoid_().mul_(loss.slope_pos)
        slopes.mul_((loss.slope_neg + loss.slope_pos) - up - down)
        up.mul_(absent.div_(count * loss.scale_neg))
        down.mul_(present.div_(count * loss.scale_pos))
        return value + extra, slopes.add_(up).sub_(down)

    def plain(self, scores: Scores, targets: Targets) -> Tensor:
        pairs = PairsForm(self.weight).plain(self.loss.log_odds(scores), targets)
        return self.loss.plain_mean(scores, targets) + pairs
