"""The two-way loss, value and gradient in closed form, for scores of ordinary range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_rows
from credibly.losses.fused.kernels.two_way import two_way
from credibly.types import Scores, Targets

if TYPE_CHECKING:
    from credibly.losses.two_way import TwoWay

# Largest score over temperature whose exp, sums of it and their inverses stay well in range.
_SAFE = {torch.float32: 40.0, torch.float64: 300.0}
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class TwoWayForm(FusedForm):
    """Sums of exponentials per row and per column; out of range, the formula by autograd."""

    loss: TwoWay

    def on_cpu(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        """Return both in two passes, one for the sums and one for the gradient; float32 only."""
        if scores.dtype != torch.float32 or not scores.numel():
            targets = torch.where(targets >= 0, targets, -1.0)
            return self.in_torch(scores, targets, needs_grad)
        loss = self.loss
        value, gradient = run_rows(
            two_way,
            scores,
            targets,
            needs_grad,
            (loss.temperature_pos, loss.temperature_neg, loss.margin),
            (loss.ways != "labels", loss.ways != "samples"),
            _SAFE[torch.float32],
        )
        if math.isnan(value.item()):  # a NaN, or a range that needs a shift of its own for each sum
            return self._by_autograd(scores, targets, needs_grad)
        return value, gradient

    def in_torch(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        """Return both without reading values back from the device, except for the range."""
        t_pos, t_neg = self.loss.temperature_pos, self.loss.temperature_neg
        low, high = scores.aminmax() if scores.numel() else (torch.inf, torch.inf)
        safe = _SAFE[scores.dtype] * min(t_pos, t_neg)
        if not (-safe <= float(low) and float(high) <= safe):
            return self._by_autograd(scores, targets, needs_grad)
        # A weight for each side, 1 − |y| and max(y, 0): both are 0 where the label is unknown.
        absent = torch.exp(scores if t_neg == 1 else scores / t_neg)
        absent.addcmul_(absent, targets.abs(), value=-1)
        present = torch.exp(scores / -t_pos).mul_(targets.relu())
        # Rows, then columns behind them; first the sums over negatives, then over positives.
        sums = torch.cat((absent.sum(1), absent.sum(0), present.sum(1), present.sum(0)))
        rows = len(scores)
        value, slopes = self._slopes(sums.double().view(2, -1), rows)
        if not needs_grad:
            return value.to(scores.dtype), None
        hard, weak = slopes.to(scores.dtype).unbind()
        absent.mul_(hard[:rows, None] + hard[rows:])
        return value.to(scores.dtype), absent.sub_(present.mul_(weak[:rows, None] + weak[rows:]))

    def plain(self, scores: Scores, targets: Targets) -> Tensor:
        return self.loss.plain_mean(scores, torch.where(targets >= 0, targets, -1.0))

    def _slopes(self, sums: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Return the loss from both sums of every set, and its slopes by them."""
        # A set that drops out has the log of 0: softplus and sigmoid of −inf are 0 as they should.
        loss = self.loss
        hard, weak = sums.log().unbind()
        inner = torch.add(hard * loss.temperature_neg, weak, alpha=loss.temperature_pos)
        if loss.margin:
            inner += loss.margin
        shares = (inner > -torch.inf).double()
        for part, other in ((shares[:rows], "labels"), (shares[rows:], "samples")):
            if loss.ways == other:
                part.zero_()
            else:
                part.div_(part.sum().clamp_(min=1))
        value = torch.dot(softplus(inner, threshold=50), shares)
        return value, inner.sigmoid_().mul_(shares) / sums.clamp_(min=_TINY)

    def _by_autograd(self, scores: Tensor, targets: Tensor, needs_grad: bool) -> ValueAndGradient:
        with torch.set_grad_enabled(needs_grad):
            inner = scores.detach().requires_grad_(needs_grad)
            value = self.plain(inner, targets)
            gradient = torch.autograd.grad(value, inner)[0] if needs_grad else None
        return value.detach(), gradient
