"""Asymmetric loss and focal loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly import targets as coding
from credibly.losses.base import LinkFormula, Properness, Reduction, working_precision
from credibly.losses.families import BinaryLoss
from credibly.losses.fused.entries import EntryLoop, asymmetric_loop
from credibly.losses.fused.form import FusedForm
from credibly.losses.linear.chunks import LinearForm
from credibly.types import LogOdds, Scores


class Asymmetric(BinaryLoss):
    r"""Asymmetric loss (ASL): focal loss with a weight per sign and a margin for easy negatives.

    $$\ell_+(v) = -(1-p)^{\gamma_+} \log p, \qquad
      \ell_-(v) = -p_m^{\gamma_-} \log(1 - p_m), \qquad p = \sigma(v),\; p_m = (p - m)_+$$

    Ben-Baruch et al. (2021), Eq. 7. Scores are not log-odds here; the link follows from the two
    derivatives, $g = \log \ell_-' - \log(-\ell_+')$. With $h(w;\gamma) = \gamma w^{\gamma-1}
    (-\log(1-w)) + w^\gamma / (1-w)$ it is $g(v) = \log h(p_m;\gamma_-) - \log h(1-p;\gamma_+)$
    (Cheng & Vasconcelos 2024, Eq. 13).

    Not proper with the sigmoid. Its link recovers the true rates, except where $p \le m$. There the
    gradient for absent labels is 0, and the link gives a probability of exactly 0. With
    ``gamma_pos=0``, high probabilities are not recovered either, because $g$ stays finite as $v \to
    \infty$.

    The official training code detaches the focal weights. This changes the gradient, and therefore
    the link. Set ``detach_weight=True`` for models trained with that code. It also sums over
    entries; this class takes the mean over known entries.

    With ``gap_target``, $\gamma_-$ follows the data, as the paper's adaptive asymmetry does (its
    Eq. 11; sign, gap and rate are ours). After each batch in training mode, $\gamma_- \leftarrow
    (\gamma_- + \lambda(\Delta_{target} - \Delta))_+$, where $\Delta$ is the mean of $p$ over
    positives less the mean of $1 - p$ over negatives. A larger $\gamma_-$ widens the gap, so this
    sign closes in on the target. Batches without positives or without negatives change nothing.
    $\gamma_-$ is then a buffer, saved with the loss, and the link uses its last value.

    Args:
        gamma_neg: $\gamma_- \ge 0$; with ``gap_target``, its initial value.
        gamma_pos: $\gamma_+ \ge 0$.
        margin: $m$ in [0, 1).
        detach_weight: whether the weights $(1-p)^{\gamma_+}$ and $p_m^{\gamma_-}$ are constants
            for the gradient. The value is the same.
        gap_target: $\Delta_{target}$ in [-1, 1], or None to keep $\gamma_-$.
        gap_rate: $\lambda > 0$.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.
        label_weight: factors of both sides, one per label; see `BinaryLoss`.

    Example:
        >>> loss = Asymmetric()
        >>> loss(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(0.5965)
        >>> loss.probabilities(torch.tensor([[-3.0, 0.0, 2.0]]))
        tensor([[0.0000, 0.1473, 0.9633]])
        >>> Asymmetric(detach_weight=True).probabilities(torch.tensor([[-3.0, 0.0, 2.0]]))
        tensor([[0.0000, 0.0694, 0.9541]])
    """

    name = "asl"
    properness: Properness = "recoverable"
    published = "sigmoid"
    gamma_neg: float | Tensor

    def __init__(
        self,
        gamma_neg: float = 4.0,
        gamma_pos: float = 1.0,
        margin: float = 0.05,
        detach_weight: bool = False,
        gap_target: float | None = None,
        gap_rate: float = 0.01,
        *,
        reduction: Reduction = "mean",
        label_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, label_weight=label_weight)
        gamma_neg = checks.at_least("gamma_neg", gamma_neg, 0.0)
        self.gap_target = self.gap_rate = None
        if gap_target is None:
            self.gamma_neg = gamma_neg
        else:
            self.gap_target = checks.between("gap_target", gap_target, -1.0, 1.0)
            self.gap_rate = checks.positive("gap_rate", gap_rate)
            self.register_buffer("gamma_neg", torch.tensor(gamma_neg, dtype=torch.float64))
        self.gamma_pos = checks.at_least("gamma_pos", gamma_pos, 0.0)
        self.margin = checks.fraction("margin", margin, high_open=True)
        self.detach_weight = self.detached = bool(detach_weight)

    def forward(self, scores: Scores, targets: Tensor, weight: Tensor | None = None) -> Tensor:
        value = super().forward(scores, targets, weight)
        if self.gap_target is None or self.gap_rate is None or not self.training:
            return value
        scores, targets = self._prepare(scores.detach(), targets)
        p, targets = torch.sigmoid(scores), coding.unknown_to_minus_one(targets)
        present = targets.clamp(min=0)
        absent = torch.where(targets >= 0, 1 - targets, 0.0)
        gap = (present * p).sum() / present.sum() - (absent * (1 - p)).sum() / absent.sum()
        step = torch.nan_to_num(self.gap_target - gap, nan=0.0)  # NaN: no positives or no negatives
        # A new tensor, because backward still needs the value of this batch.
        self.gamma_neg = (self.gamma_neg + self.gap_rate * step).clamp(min=0)
        return value

    def linear_form(self) -> LinearForm | None:
        return super().linear_form() if self.gap_target is None else None

    def positive(self, scores: Scores) -> Tensor:
        log_present = logsigmoid(scores)
        return self._weight(logsigmoid(-scores), self.gamma_pos) * -log_present

    def negative(self, scores: Scores) -> Tensor:
        above, log_shifted, log_rest = self._shifted(scores)
        weighted = self._weight(log_shifted, self.gamma_neg) * -log_rest
        return torch.where(above, weighted, 0.0)

    def log_odds(self, scores: Scores) -> LogOdds:
        scores = working_precision(scores)
        above, log_shifted, log_rest = self._shifted(scores)
        log_present, log_absent = logsigmoid(scores), logsigmoid(-scores)
        if self.detach_weight:
            odds = self.gamma_neg * log_shifted - log_rest
            odds = odds + log_present - self.gamma_pos * log_absent
        else:
            odds = _log_derivative(log_shifted, log_rest, self.gamma_neg)
            odds = odds - _log_derivative(log_absent, log_present, self.gamma_pos)
        return torch.where(above, odds, -torch.inf)

    def formula(self) -> LinkFormula:
        names = ("gamma_pos", "margin", "detach_weight")
        numbers = {name: getattr(self, name) for name in names}
        return {"link": "asymmetric", "gamma_neg": float(self.gamma_neg), **numbers}

    def _weight(self, log_base: Tensor, gamma: float | Tensor) -> Tensor:
        # exp(γ log w), not w ** γ: its derivative stays finite for γ < 1 as w → 0.
        weight = torch.exp(gamma * log_base)
        return weight.detach() if self.detach_weight else weight

    def _shifted(self, scores: Scores) -> tuple[Tensor, Tensor, Tensor]:
        """Return a mask of p > m, log p_m and log(1 − p_m); elsewhere, finite placeholders."""
        if self.margin == 0:
            above = torch.ones_like(scores, dtype=torch.bool)
            return above, logsigmoid(scores), logsigmoid(-scores)
        shifted = torch.sigmoid(scores) - self.margin
        # `not ≤`, so that NaN counts as above and the result is NaN.
        above = ~(shifted <= 0)
        shifted = torch.where(above, shifted, 0.5)
        # 1 − p_m = (1 − p) + m is accurate if p is near 1, log1p(−p_m) if p is small.
        rest = torch.sigmoid(-scores) + self.margin
        near_one = scores > 0
        log_rest = torch.where(
            near_one,
            torch.log(torch.where(near_one, rest, 1.0)),
            torch.log1p(-torch.where(near_one, 0.5, shifted)),
        )
        return above, torch.log(shifted), log_rest

    def loop(self) -> FusedForm | None:
        if type(self) not in (Asymmetric, Focal) or isinstance(self.gamma_neg, Tensor):
            return None
        follow = not self.detach_weight
        loop, numbers = asymmetric_loop(self.gamma_pos, self.gamma_neg, self.margin, follow)
        return EntryLoop(self, loop, numbers)


def _log_derivative(log_base: Tensor, log_rest: Tensor, gamma: float | Tensor) -> Tensor:
    """Return log h(w; γ) from log w and log(1 − w)."""
    # −log(1 − w)/w → 1 + w/2 + w²/3 as w → 0, where the quotient would be 0/0.
    base = torch.exp(log_base)
    small = base < 1e-5
    quotient = -log_rest / torch.where(small, 1.0, base)
    quotient = torch.where(small, 1 + base * (0.5 + base / 3), quotient)
    return gamma * log_base - log_rest + torch.log1p(gamma * torch.exp(log_rest) * quotient)


class Focal(Asymmetric):
    r"""Focal loss: well-predicted entries have less weight.

    $$\ell_+(v) = -(1-p)^{\gamma_+} \log p, \qquad \ell_-(v) = -p^{\gamma_-} \log(1-p), \qquad
      p = \sigma(v)$$

    Lin et al. (2017), Eq. 4, with an exponent for each sign. Not proper with the sigmoid, which is
    underconfident. Its link recovers the true rates. It equals `Asymmetric` without a margin; for
    positive exponents, the link is increasing and reaches every probability.

    Args:
        gamma_pos: $\gamma_+ \ge 0$.
        gamma_neg: $\gamma_- \ge 0$.
        detach_weight: whether the focal weights are constants for the gradient.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.
        label_weight: factors of both sides, one per label; see `BinaryLoss`.

    Example:
        >>> import torch
        >>> Focal()(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(0.9117)
        >>> Focal().probabilities(torch.tensor([[-2.0, 0.0, 2.0]]))
        tensor([[0.0045, 0.5000, 0.9955]])
    """

    name = "focal"

    def __init__(
        self,
        gamma_pos: float = 2.0,
        gamma_neg: float = 2.0,
        detach_weight: bool = False,
        *,
        reduction: Reduction = "mean",
        label_weight: Tensor | None = None,
    ) -> None:
        super().__init__(
            gamma_neg,
            gamma_pos,
            0.0,
            detach_weight,
            reduction=reduction,
            label_weight=label_weight,
        )
