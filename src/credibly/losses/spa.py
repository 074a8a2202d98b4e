"""Strictly proper asymmetric loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from credibly import checks
from credibly.losses._base import working_precision
from credibly.losses._binary import BinaryLoss
from credibly.losses._fused import (
    EXACT_FROM,
    all_hard,
    blend_sides,
    chunks,
    fused,
    run_flat,
    run_rows,
    weights_of,
)
from credibly.losses._kernels.chebyshev import tables
from credibly.losses._kernels.spa import spa_at
from credibly.losses._kernels.spa_pairs import spa_pairs_at
from credibly.losses.label_pairs import pairs_in_torch, plain_label_pairs
from credibly.types import LogOdds, Scores, Targets, Values

Side = tuple[float, float, float]
"""Scale, slope and shift of one side of the loss."""


class SPA(BinaryLoss):
    r"""Strictly proper asymmetric loss: easy negatives cost little, probabilities stay right.

    $$\ell_+(v) = \tfrac{1}{\zeta_+}\,\mathrm{softplus}(-k_+(v - b_+)), \qquad
      \ell_-(v) = \tfrac{1}{\zeta_-}\,\mathrm{softplus}(k_-(v - b_-))$$

    Strictly proper for all positive scales and slopes and all real shifts, with the link

    $$g(v) = \log\frac{k_-\zeta_+}{k_+\zeta_-} + \log\sigma(k_-(v - b_-))
      - \log\sigma(-k_+(v - b_+))$$

    Cheng & Vasconcelos (2024), Eqs. 16–17; both signs of Eq. 17 are corrected here: as printed it
    decreases in $v$. Even odds sit at $v = 0.952$ with the defaults, so never threshold scores
    at 0.

    Args:
        scale_pos: $\zeta_+ > 0$, divides the loss of present labels.
        slope_pos: $k_+ > 0$.
        shift_pos: $b_+$, any real number.
        scale_neg: $\zeta_- > 0$, divides the loss of absent labels.
        slope_neg: $k_- > 0$.
        shift_neg: $b_-$, any real number.

    Example:
        >>> import torch
        >>> SPA()(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(0.6514)
        >>> SPA().probabilities(torch.tensor([[0.0, 0.952]]))
        tensor([[0.0538, 0.5000]])
    """

    name = "spa"
    properness = "strict"

    def __init__(
        self,
        scale_pos: float = 1.0,
        slope_pos: float = 1.0,
        shift_pos: float = 0.0,
        scale_neg: float = 5.0,
        slope_neg: float = 3.0,
        shift_neg: float = 1.0,
    ) -> None:
        super().__init__()
        self.scale_pos = checks.positive("scale_pos", scale_pos)
        self.slope_pos = checks.positive("slope_pos", slope_pos)
        self.shift_pos = checks.finite("shift_pos", shift_pos)
        self.scale_neg = checks.positive("scale_neg", scale_neg)
        self.slope_neg = checks.positive("slope_neg", slope_neg)
        self.shift_neg = checks.finite("shift_neg", shift_neg)
        self.log_ratio = math.log(slope_neg / scale_neg) - math.log(slope_pos / scale_pos)

    def positive(self, scores: Scores) -> Values:
        return -logsigmoid(self.slope_pos * (scores - self.shift_pos)) / self.scale_pos

    def negative(self, scores: Scores) -> Values:
        return -logsigmoid(-self.slope_neg * (scores - self.shift_neg)) / self.scale_neg

    def log_odds(self, scores: Scores) -> LogOdds:
        # log ℓ₋′ − log(−ℓ₊′) directly; through the probabilities it would saturate near ±20.
        scores = working_precision(scores)
        up = logsigmoid(self.slope_neg * (scores - self.shift_neg))
        down = logsigmoid(-self.slope_pos * (scores - self.shift_pos))
        return self.log_ratio + up - down

    def _mean(self, scores: Scores, targets: Targets) -> Tensor:
        return fused(
            scores, targets, cpu=self._on_cpu, anywhere=self._in_torch, plain=super()._mean
        )

    def _on_cpu(
        self, scores: Scores, targets: Targets, wanted: bool
    ) -> tuple[Tensor, Tensor | None]:
        return run_flat(spa_at, scores, targets, wanted, *self._sides)

    def _in_torch(
        self, scores: Scores, targets: Targets, wanted: bool
    ) -> tuple[Tensor, Tensor | None]:
        return softplus_pair(scores, targets, wanted, *self._sides)

    def with_label_pairs(self, scores: Scores, targets: Targets, weight: float) -> Tensor:
        """This loss, its link and the pairs of `LabelPairs` in one pass."""

        def on_cpu(v: Tensor, y: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
            double = v.dtype == torch.float64
            return run_rows(spa_pairs_at, v, y, wanted, *self._sides, weight, tables(double))

        def in_torch(v: Tensor, y: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
            return self._pairs_in_torch(v, y, wanted, weight)

        def plain(v: Tensor, y: Tensor) -> Tensor:
            return super(SPA, self)._mean(v, y) + plain_label_pairs(self.log_odds(v), y, weight)

        return fused(scores, targets, cpu=on_cpu, anywhere=in_torch, plain=plain)

    def _pairs_in_torch(
        self, scores: Scores, targets: Targets, wanted: bool, weight: float
    ) -> tuple[Tensor, Tensor | None]:
        # The unknown take no part, not even with a score of NaN.
        scores = torch.where(targets >= 0, scores, 0.0)
        present, absent, count = weights_of(targets)
        up = (scores - self.shift_neg).mul_(self.slope_neg)
        down = (scores - self.shift_pos).mul_(-self.slope_pos)
        values, values_pos = (softplus(x, threshold=EXACT_FROM) for x in (up, down))
        log_odds = (up - values).sub_(down).add_(values_pos).add_(self.log_ratio)
        extra, slopes = pairs_in_torch(log_odds, targets, wanted, weight)
        value = values.mul_(absent).sum() / self.scale_neg
        value = (value + values_pos.mul_(present).sum() / self.scale_pos) / count
        if slopes is None:
            return value + extra, None
        up.sigmoid_().mul_(self.slope_neg)
        down.sigmoid_().mul_(self.slope_pos)
        slopes.mul_((self.slope_neg + self.slope_pos) - up - down)
        up.mul_(absent.div_(count * self.scale_neg))
        down.mul_(present.div_(count * self.scale_pos))
        return value + extra, slopes.add_(up).sub_(down)

    @property
    def _sides(self) -> tuple[Side, Side]:
        return (
            (self.scale_pos, self.slope_pos, self.shift_pos),
            (self.scale_neg, self.slope_neg, self.shift_neg),
        )

    def extra_repr(self) -> str:
        return (
            f"scale_pos={self.scale_pos:g}, slope_pos={self.slope_pos:g}, "
            f"shift_pos={self.shift_pos:g}, scale_neg={self.scale_neg:g}, "
            f"slope_neg={self.slope_neg:g}, shift_neg={self.shift_neg:g}"
        )


def softplus_pair(
    scores: Scores, targets: Targets, wanted: bool, pos: Side, neg: Side
) -> tuple[Tensor, Tensor | None]:
    """Value and gradient in closed form."""
    targets = targets.contiguous()
    if all_hard(targets):
        return _hard_softplus(scores, targets, wanted, pos, neg)

    def positive(scores: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        return _softplus(scores, wanted, pos[0], -pos[1], pos[2])

    def negative(scores: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        return _softplus(scores, wanted, *neg)

    return blend_sides(scores, targets, wanted, positive, negative)


def _softplus(
    scores: Tensor, wanted: bool, scale: float, slope: float, shift: float
) -> tuple[Tensor, Tensor | None]:
    x = (scores - shift).mul_(slope)
    values = softplus(x, threshold=EXACT_FROM).div_(scale)
    return values, x.sigmoid_().mul_(slope / scale) if wanted else None


def _hard_softplus(
    scores: Scores, targets: Targets, wanted: bool, pos: Side, neg: Side
) -> tuple[Tensor, Tensor | None]:
    """For targets 0 or 1: a softplus of (slope · score + offset), both chosen by the target."""
    (scale_pos, slope_pos, shift_pos), (scale_neg, slope_neg, shift_neg) = pos, neg
    count = max(scores.numel(), 1)
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    total = 0.0
    for v, y, x in chunks(scores.reshape(-1), targets.view(-1), out.view(-1)):
        offset = _choose(y, -slope_neg * shift_neg, slope_pos * shift_pos)
        torch.addcmul(offset, v, _choose(y, slope_neg, -slope_pos), out=x)
        values = softplus(x, threshold=EXACT_FROM)
        total += values.sum().item() / scale_neg
        total += torch.dot(values, y).item() * (1 / scale_pos - 1 / scale_neg)
        if wanted:
            absent, present = slope_neg / scale_neg, slope_pos / scale_pos
            x.sigmoid_().mul_(_choose(y, absent / count, -present / count))
    return torch.scalar_tensor(total / count, dtype=scores.dtype), out if wanted else None


def _choose(targets: Tensor, absent: float, present: float) -> Tensor:
    """One number where the target is 0, the other where it is 1."""
    return torch.rsub(targets, absent, alpha=absent - present)
