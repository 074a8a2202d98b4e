"""Strictly proper asymmetric loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import _checks
from credibly.losses._base import working_precision
from credibly.losses._binary import BinaryLoss
from credibly.losses._fused import blend_sides, fused, run_flat, run_rows
from credibly.losses._kernels.chebyshev import tables
from credibly.losses._kernels.spa import spa_at
from credibly.losses._kernels.spa_pairs import spa_pairs_at
from credibly.losses.label_pairs import pairs_in_torch, plain_label_pairs
from credibly.types import LogOdds, Scores, Targets, Values


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
        self.scale_pos = _checks.positive("scale_pos", scale_pos)
        self.slope_pos = _checks.positive("slope_pos", slope_pos)
        self.shift_pos = _checks.finite("shift_pos", shift_pos)
        self.scale_neg = _checks.positive("scale_neg", scale_neg)
        self.slope_neg = _checks.positive("slope_neg", slope_neg)
        self.shift_neg = _checks.finite("shift_neg", shift_neg)
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
            value, gradient = self._in_torch(v, y, wanted)
            extra, slopes = pairs_in_torch(self.log_odds(v), y, wanted, weight)
            if gradient is None or slopes is None:
                return value + extra, None
            # The unknown took no part: their slope is 0, and must stay 0 for a score of NaN.
            rise = torch.where(y >= 0, self._log_odds_slope(v), 0.0)
            return value + extra, gradient.addcmul_(slopes, rise)

        def plain(v: Tensor, y: Tensor) -> Tensor:
            return super(SPA, self)._mean(v, y) + plain_label_pairs(self.log_odds(v), y, weight)

        return fused(scores, targets, cpu=on_cpu, anywhere=in_torch, plain=plain)

    def _log_odds_slope(self, scores: Scores) -> Tensor:
        up = torch.sigmoid(-self.slope_neg * (scores - self.shift_neg))
        down = torch.sigmoid(self.slope_pos * (scores - self.shift_pos))
        return up.mul_(self.slope_neg).add_(down, alpha=self.slope_pos)

    @property
    def _sides(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
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
    scores: Scores,
    targets: Targets,
    wanted: bool,
    pos: tuple[float, float, float],
    neg: tuple[float, float, float],
) -> tuple[Tensor, Tensor | None]:
    """Value and gradient in closed form; ``pos`` and ``neg`` are (scale, slope, shift)."""

    def positive(scores: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        return _softplus(scores, wanted, pos[0], -pos[1], pos[2])

    def negative(scores: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
        return _softplus(scores, wanted, *neg)

    return blend_sides(scores, targets, wanted, positive, negative)


def _softplus(
    scores: Tensor, wanted: bool, scale: float, slope: float, shift: float
) -> tuple[Tensor, Tensor | None]:
    opposite = (scores - shift).mul_(-slope)
    values = logsigmoid(opposite).mul_(-1 / scale)
    return values, opposite.neg_().sigmoid_().mul_(slope / scale) if wanted else None
