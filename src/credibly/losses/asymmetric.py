"""Asymmetric loss, with the link that belongs to the gradient in use."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses._base import Properness, working_precision
from credibly.losses._binary import BinaryLoss
from credibly.losses._fused import blend_sides, fused, run_flat
from credibly.losses._kernels.asymmetric import asymmetric_at
from credibly.types import LogOdds, Scores, Targets, Values


class Asymmetric(BinaryLoss):
    r"""Asymmetric loss (ASL): focal weights that differ by sign, and a margin for easy negatives.

    $$\ell_+(v) = -(1-p)^{\gamma_+} \log p, \qquad
      \ell_-(v) = -p_m^{\gamma_-} \log(1 - p_m), \qquad p = \sigma(v),\; p_m = (p - m)_+$$

    Ben-Baruch et al. (2021), Eq. 7. Scores are no log-odds here; the link follows from the two
    derivatives, $g = \log \ell_-' - \log(-\ell_+')$. With $h(w;\gamma) = \gamma w^{\gamma-1}
    (-\log(1-w)) + w^\gamma / (1-w)$ it is $g(v) = \log h(p_m;\gamma_-) - \log h(1-p;\gamma_+)$
    (Cheng & Vasconcelos 2024, Eq. 13).

    Not proper with the sigmoid; recoverable through its link, except where $p \le m$: there the
    gradient for absent labels is 0, so the estimate is a probability of exactly 0. With
    ``gamma_pos=0`` the top is lost too: $g$ stays finite as $v \to \infty$.

    The official training code detaches the focal weights, which changes the gradient, hence where
    training comes to rest, hence the link: set ``detach_weight=True`` for models trained with it.
    It also sums over entries; here the mean over known entries is taken.

    Args:
        gamma_neg: $\gamma_- \ge 0$.
        gamma_pos: $\gamma_+ \ge 0$.
        margin: $m$ in [0, 1).
        detach_weight: whether the weights $(1-p)^{\gamma_+}$ and $p_m^{\gamma_-}$ are constants
            for the gradient. The value is the same.

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

    def __init__(
        self,
        gamma_neg: float = 4.0,
        gamma_pos: float = 1.0,
        margin: float = 0.05,
        detach_weight: bool = False,
    ) -> None:
        super().__init__()
        self.gamma_neg = checks.at_least("gamma_neg", gamma_neg, 0.0)
        self.gamma_pos = checks.at_least("gamma_pos", gamma_pos, 0.0)
        self.margin = checks.fraction("margin", margin, high_open=True)
        self.detach_weight = self.detached = bool(detach_weight)

    def positive(self, scores: Scores) -> Values:
        log_present = logsigmoid(scores)
        return self._weight(logsigmoid(-scores), self.gamma_pos) * -log_present

    def negative(self, scores: Scores) -> Values:
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

    def printed_log_odds(self, scores: Scores) -> LogOdds:
        """Its authors read scores through a sigmoid."""
        return scores

    def _weight(self, log_base: Tensor, gamma: float) -> Tensor:
        # exp(γ log w), not w ** γ: its derivative stays finite for γ < 1 as w → 0.
        weight = torch.exp(gamma * log_base)
        return weight.detach() if self.detach_weight else weight

    def _shifted(self, scores: Scores) -> tuple[Tensor, Tensor, Tensor]:
        """Where p > m, log p_m and log(1 − p_m); elsewhere finite stand-ins."""
        if self.margin == 0:
            above = torch.ones_like(scores, dtype=torch.bool)
            return above, logsigmoid(scores), logsigmoid(-scores)
        shifted = torch.sigmoid(scores) - self.margin
        # `not ≤` so that NaN counts as above and comes out as NaN.
        above = ~(shifted <= 0)
        shifted = torch.where(above, shifted, 0.5)
        # 1 − p_m = (1 − p) + m keeps its digits when p is near 1, log1p(−p_m) when p is small.
        rest = torch.sigmoid(-scores) + self.margin
        near_one = scores > 0
        log_rest = torch.where(
            near_one,
            torch.log(torch.where(near_one, rest, 1.0)),
            torch.log1p(-torch.where(near_one, 0.5, shifted)),
        )
        return above, torch.log(shifted), log_rest

    def _mean(self, scores: Scores, targets: Targets) -> Tensor:
        return fused(
            scores, targets, cpu=self._on_cpu, anywhere=self._in_torch, plain=super()._mean
        )

    def _on_cpu(
        self, scores: Scores, targets: Targets, wanted: bool
    ) -> tuple[Tensor, Tensor | None]:
        arguments = (self.gamma_pos, self.gamma_neg, self.margin, not self.detach_weight)
        return run_flat(asymmetric_at, scores, targets, wanted, *arguments)

    def _in_torch(
        self, scores: Scores, targets: Targets, wanted: bool
    ) -> tuple[Tensor, Tensor | None]:
        return blend_sides(scores, targets, wanted, self._positive_side, self._negative_side)

    def _positive_side(self, scores: Scores, wanted: bool) -> tuple[Tensor, Tensor | None]:
        values, slopes = self._focal_side(-scores, self.gamma_pos, wanted)
        return values, None if slopes is None else slopes.neg_()

    def _negative_side(self, scores: Scores, wanted: bool) -> tuple[Tensor, Tensor | None]:
        if self.margin == 0:
            return self._focal_side(scores, self.gamma_neg, wanted)
        p, q = torch.sigmoid(scores), scores.neg().sigmoid_()
        t = p.sub(self.margin).clamp_(min=0)
        log_rest = self._log_rest(scores, t, q)
        lower = _lower_power(t, self.gamma_neg)
        weight = lower * t if self.gamma_neg else (t > 0).to(t.dtype)
        if not wanted:
            return log_rest.mul_(weight).neg_(), None
        slopes = weight / (q + self.margin)
        if not self.detach_weight and self.gamma_neg:
            slopes.addcmul_(lower, log_rest, value=-self.gamma_neg)
        return log_rest.mul_(weight).neg_(), slopes.mul_(p.mul_(q))

    def _log_rest(self, scores: Tensor, t: Tensor, q: Tensor) -> Tensor:
        """log(1 − t) for t = p_m, q = 1 − p."""
        log_rest = t.neg().log1p_()
        # 1 − t was rounded to within eps/2, which counts if it may be as small as that: then
        # q + m keeps its digits where p is near 1.
        if self.margin < 2**18 * torch.finfo(t.dtype).eps:
            log_rest = torch.where(scores > 0, (q + self.margin).log_(), log_rest)
        return log_rest

    def _focal_side(self, x: Tensor, gamma: float, wanted: bool) -> tuple[Tensor, Tensor | None]:
        """σ(x)^γ softplus(x) and its slope σ(x)^γ (γ σ(−x) softplus(x) + σ(x))."""
        t, loss = torch.sigmoid(x), logsigmoid(-x).neg_()
        weight = _power(t, gamma)
        if not wanted:
            return loss.mul_(weight), None
        factor = 0.0 if self.detach_weight else gamma
        slopes = torch.sigmoid(-x).mul_(loss).mul_(factor).add_(t).mul_(weight)
        return loss.mul_(weight), slopes

    def extra_repr(self) -> str:
        return (
            f"gamma_neg={self.gamma_neg:g}, gamma_pos={self.gamma_pos:g}, "
            f"margin={self.margin:g}, detach_weight={self.detach_weight}"
        )


def _log_derivative(log_base: Tensor, log_rest: Tensor, gamma: float) -> Tensor:
    """log h(w; γ) from log w and log(1 − w)."""
    # −log(1 − w)/w → 1 + w/2 + w²/3 as w → 0, where the quotient would be 0/0.
    base = torch.exp(log_base)
    small = base < 1e-5
    quotient = -log_rest / torch.where(small, 1.0, base)
    quotient = torch.where(small, 1 + base * (0.5 + base / 3), quotient)
    return gamma * log_base - log_rest + torch.log1p(gamma * torch.exp(log_rest) * quotient)


def _power(t: Tensor, gamma: float) -> Tensor:
    """t^γ, with 0⁰ = 0: on the plateau nothing is left. Products where γ is small and whole."""
    if gamma == 0:
        return (t > 0).to(t.dtype)
    if gamma in (1, 2, 3, 4):
        square = t * t if gamma > 1 else t
        return {1: t, 2: square}[gamma] if gamma < 3 else square * (t if gamma == 3 else square)
    return torch.pow(t, gamma)


def _lower_power(t: Tensor, gamma: float) -> Tensor:
    """t^(γ−1) for γ > 0; anything finite at t = 0, where the loss is 0."""
    if gamma in (2, 3, 4):
        return _power(t, gamma - 1)
    if gamma in (0, 1):
        return torch.ones_like(t)
    return torch.pow(torch.where(t > 0, t, 1.0), gamma - 1)
