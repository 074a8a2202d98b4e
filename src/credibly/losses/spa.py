"""Strictly proper asymmetric loss."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses.base import LinkFormula, Reduction, working_precision
from credibly.losses.families import BinaryLoss
from credibly.types import LogOdds, Scores


class SPA(BinaryLoss):
    r"""Strictly proper asymmetric loss (SPA): easy negatives have little weight.

    $$\ell_+(v) = \tfrac{1}{\zeta_+}\,\mathrm{softplus}(-k_+(v - b_+)), \qquad
      \ell_-(v) = \tfrac{1}{\zeta_-}\,\mathrm{softplus}(k_-(v - b_-))$$

    Strictly proper for all positive scales and slopes and all real shifts, with the link

    $$g(v) = \log\frac{k_-\zeta_+}{k_+\zeta_-} + \log\sigma(k_-(v - b_-))
      - \log\sigma(-k_+(v - b_+))$$

    Cheng & Vasconcelos (2024), Eqs. 16–17; both signs of Eq. 17 are corrected here, because the
    printed link decreases in $v$. With the defaults, $v = 0.952$ corresponds to a probability of ½.
    Do not threshold scores at 0.

    Args:
        scale_pos: $\zeta_+ > 0$, divides the loss of present labels.
        slope_pos: $k_+ > 0$.
        shift_pos: $b_+$, any real number.
        scale_neg: $\zeta_- > 0$, divides the loss of absent labels.
        slope_neg: $k_- > 0$.
        shift_neg: $b_-$, any real number.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.
        label_weight: factors of both sides, one per label; see `BinaryLoss`.

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
        *,
        reduction: Reduction = "mean",
        label_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, label_weight=label_weight)
        self.scale_pos = checks.positive("scale_pos", scale_pos)
        self.slope_pos = checks.positive("slope_pos", slope_pos)
        self.shift_pos = checks.finite("shift_pos", shift_pos)
        self.scale_neg = checks.positive("scale_neg", scale_neg)
        self.slope_neg = checks.positive("slope_neg", slope_neg)
        self.shift_neg = checks.finite("shift_neg", shift_neg)
        self.log_ratio = math.log(slope_neg / scale_neg) - math.log(slope_pos / scale_pos)

    def positive(self, scores: Scores) -> Tensor:
        return -logsigmoid(self.slope_pos * (scores - self.shift_pos)) / self.scale_pos

    def negative(self, scores: Scores) -> Tensor:
        return -logsigmoid(-self.slope_neg * (scores - self.shift_neg)) / self.scale_neg

    def log_odds(self, scores: Scores) -> LogOdds:
        # log ℓ₋′ − log(−ℓ₊′) directly. Computed from probabilities, it would saturate near ±20.
        scores = working_precision(scores)
        up = logsigmoid(self.slope_neg * (scores - self.shift_neg))
        down = logsigmoid(-self.slope_pos * (scores - self.shift_pos))
        return self.log_ratio + up - down

    def formula(self) -> LinkFormula:
        return {"link": "spa", **{name: getattr(self, name) for name in self.arguments()}}

    def softplus_numbers(self) -> tuple[float, ...] | None:
        present = -self.slope_pos, self.slope_pos * self.shift_pos, 1 / self.scale_pos
        absent = self.slope_neg, -self.slope_neg * self.shift_neg, 1 / self.scale_neg
        return (*present, *absent) if type(self) is SPA else None
