"""Asymmetric and focal loss, value and gradient in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly.losses.fused.elementwise import blend_sides
from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_flat
from credibly.losses.fused.kernels.asymmetric import asymmetric_at
from credibly.types import Scores, Targets

if TYPE_CHECKING:
    from credibly.losses.asymmetric import Asymmetric


@dataclass(frozen=True)
class AsymmetricForm(FusedForm):
    """σ(x)^γ softplus(x) on both sides, with the margin on the negative one."""

    loss: Asymmetric

    def on_cpu(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        loss = self.loss
        arguments = (loss.gamma_pos, loss.gamma_neg, loss.margin, not loss.detach_weight)
        return run_flat(asymmetric_at, scores, targets, needs_grad, *arguments)

    def in_torch(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        return blend_sides(scores, targets, needs_grad, self._positive, self._negative)

    def plain(self, scores: Scores, targets: Targets) -> Tensor:
        return self.loss.plain_mean(scores, targets)

    def _positive(self, scores: Scores, needs_grad: bool) -> ValueAndGradient:
        values, slopes = self._focal(-scores, self.loss.gamma_pos, needs_grad)
        return values, None if slopes is None else slopes.neg_()

    def _negative(self, scores: Scores, needs_grad: bool) -> ValueAndGradient:
        gamma, margin = self.loss.gamma_neg, self.loss.margin
        if margin == 0:
            return self._focal(scores, gamma, needs_grad)
        p, q = torch.sigmoid(scores), scores.neg().sigmoid_()
        t = p.sub(margin).clamp_(min=0)
        log_rest = _log_rest(scores, t, q, margin)
        lower = _lower_power(t, gamma)
        weight = lower * t if gamma else (t > 0).to(t.dtype)
        if not needs_grad:
            return log_rest.mul_(weight).neg_(), None
        slopes = weight / (q + margin)
        if not self.loss.detach_weight and gamma:
            slopes.addcmul_(lower, log_rest, value=-gamma)
        return log_rest.mul_(weight).neg_(), slopes.mul_(p.mul_(q))

    def _focal(self, x: Tensor, gamma: float, needs_grad: bool) -> ValueAndGradient:
        """Return σ(x)^γ softplus(x) and its slope σ(x)^γ (γ σ(−x) softplus(x) + σ(x))."""
        t, loss = torch.sigmoid(x), logsigmoid(-x).neg_()
        weight = _power(t, gamma)
        if not needs_grad:
            return loss.mul_(weight), None
        factor = 0.0 if self.loss.detach_weight else gamma
        slopes = torch.sigmoid(-x).mul_(loss).mul_(factor).add_(t).mul_(weight)
        return loss.mul_(weight), slopes


def _log_rest(scores: Tensor, t: Tensor, q: Tensor, margin: float) -> Tensor:
    """Return log(1 − t) for t = p_m, q = 1 − p."""
    log_rest = t.neg().log1p_()
    # 1 − t was rounded to within eps/2, which counts if it may be as small as that: then
    # q + m keeps its digits where p is near 1.
    if margin < 2**18 * torch.finfo(t.dtype).eps:
        log_rest = torch.where(scores > 0, (q + margin).log_(), log_rest)
    return log_rest


def _power(t: Tensor, gamma: float) -> Tensor:
    """Return t^γ, with 0⁰ = 0: on the plateau the loss is 0. Products for small whole γ."""
    if gamma == 0:
        return (t > 0).to(t.dtype)
    if gamma in (1, 2, 3, 4):
        square = t * t if gamma > 1 else t
        return {1: t, 2: square}[gamma] if gamma < 3 else square * (t if gamma == 3 else square)
    return torch.pow(t, gamma)


def _lower_power(t: Tensor, gamma: float) -> Tensor:
    """Return t^(γ−1) for γ > 0; anything finite at t = 0, where the loss is 0."""
    if gamma in (2, 3, 4):
        return _power(t, gamma - 1)
    if gamma in (0, 1):
        return torch.ones_like(t)
    return torch.pow(torch.where(t > 0, t, 1.0), gamma - 1)
