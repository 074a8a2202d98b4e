"""BCE and SPA: each partial loss is a softplus of a scaled and shifted score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus

from credibly.losses.fused import elementwise
from credibly.losses.fused.elementwise import EXACT_FROM, blend_sides, chunks
from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_flat
from credibly.losses.fused.kernels.spa import spa_at
from credibly.types import Scores, Targets

if TYPE_CHECKING:
    from credibly.losses.entries import BinaryLoss

Side: TypeAlias = tuple[float, float, float]
"""Scale, slope and shift of one partial loss."""


@dataclass(frozen=True)
class SoftplusForm(FusedForm):
    """softplus(−slope · (v − shift)) / scale if present, softplus(slope · (v − shift)) / scale if
    absent."""

    loss: BinaryLoss
    pos: Side
    neg: Side

    def on_cpu(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        return run_flat(spa_at, scores, targets, needs_grad, self.pos, self.neg)

    def in_torch(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        targets = targets.contiguous()
        if elementwise.all_hard(targets):
            return self._hard(scores, targets, needs_grad)
        return blend_sides(scores, targets, needs_grad, self._positive, self._negative)

    def plain(self, scores: Scores, targets: Targets) -> Tensor:
        return self.loss.plain_mean(scores, targets)

    def _positive(self, scores: Tensor, needs_grad: bool) -> ValueAndGradient:
        scale, slope, shift = self.pos
        return _softplus(scores, needs_grad, scale, -slope, shift)

    def _negative(self, scores: Tensor, needs_grad: bool) -> ValueAndGradient:
        return _softplus(scores, needs_grad, *self.neg)

    def _hard(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        """For targets 0 or 1: a softplus of (slope · score + offset), both chosen by the target."""
        (scale_pos, slope_pos, shift_pos), (scale_neg, slope_neg, shift_neg) = self.pos, self.neg
        count = max(scores.numel(), 1)
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        total = 0.0
        for v, y, x in chunks(scores.reshape(-1), targets.view(-1), out.view(-1)):
            offset = _choose(y, -slope_neg * shift_neg, slope_pos * shift_pos)
            torch.addcmul(offset, v, _choose(y, slope_neg, -slope_pos), out=x)
            values = softplus(x, threshold=EXACT_FROM)
            total += values.sum().item() / scale_neg
            total += torch.dot(values, y).item() * (1 / scale_pos - 1 / scale_neg)
            if needs_grad:
                absent, present = slope_neg / scale_neg, slope_pos / scale_pos
                x.sigmoid_().mul_(_choose(y, absent / count, -present / count))
        value = torch.scalar_tensor(total / count, dtype=scores.dtype)
        return value, out if needs_grad else None


def _softplus(
    scores: Tensor, needs_grad: bool, scale: float, slope: float, shift: float
) -> ValueAndGradient:
    x = (scores - shift).mul_(slope)
    values = softplus(x, threshold=EXACT_FROM).div_(scale)
    return values, x.sigmoid_().mul_(slope / scale) if needs_grad else None


def _choose(targets: Tensor, absent: float, present: float) -> Tensor:
    """Return one number where the target is 0, the other where it is 1."""
    return torch.rsub(targets, absent, alpha=absent - present)
