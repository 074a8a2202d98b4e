"""Losses that treat each label on its own: a pair of partial losses, and the link they imply."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from credibly import checks
from credibly.losses._base import Loss, as_matrix_targets, working_precision
from credibly.types import LogOdds, Scores, Targets, Values


class BinaryLoss(Loss):
    r"""Mean over known entries of $y\,\ell_+(v) + (1-y)\,\ell_-(v)$.

    A subclass gives ``positive`` ($\ell_+$) and ``negative`` ($\ell_-$), which must be
    differentiable by autograd, and ``log_odds`` where it has a closed form; otherwise the link is
    derived: the conditional risk $\eta\,\ell_+ + (1-\eta)\,\ell_-$ is stationary where
    $\mathrm{logit}\,\eta = \log \ell_-'(v) - \log(-\ell_+'(v))$.
    """

    labelwise = True

    @abstractmethod
    def positive(self, scores: Scores) -> Values:
        """Partial loss of a label that is present."""

    @abstractmethod
    def negative(self, scores: Scores) -> Values:
        """Partial loss of a label that is absent."""

    def forward(self, scores: Scores, targets: Targets) -> Tensor:
        scores, targets = self._prepare(scores, targets)
        return self._mean(scores, targets)

    def values(self, scores: Scores, targets: Targets) -> Values:
        """One value an entry; 0 where the target is unknown."""
        return self._values(*self._prepare(scores, targets))

    def log_odds(self, scores: Scores) -> LogOdds:
        return self.derived_log_odds(scores)

    def derived_log_odds(self, scores: Scores) -> LogOdds:
        """The link that the partial losses imply, by autograd; differentiable itself."""
        scores = working_precision(scores)
        outer = torch.is_grad_enabled() and scores.requires_grad
        with torch.enable_grad():
            inner = scores if outer else scores.detach().requires_grad_()
            down = torch.autograd.grad(self.positive(inner).sum(), inner, create_graph=outer)[0]
            up = torch.autograd.grad(self.negative(inner).sum(), inner, create_graph=outer)[0]
            return torch.log(up) - torch.log(-down)

    def printed_log_odds(self, scores: Scores) -> LogOdds:
        """How the method's authors read the scores; overridden where that is not the link."""
        return self.log_odds(scores)

    def _prepare(self, scores: Scores, targets: Targets) -> tuple[Scores, Targets]:
        checks.float_scores(scores)
        scores = working_precision(scores)
        return scores, as_matrix_targets(scores, targets)

    def _mean(self, scores: Scores, targets: Targets) -> Tensor:
        """Overridden where value and gradient have a fused form."""
        known = (targets >= 0).sum().clamp(min=1)
        return self._values(scores, targets).sum() / known

    def _values(self, scores: Scores, targets: Targets) -> Values:
        # Unknown entries are replaced before the formula: masking after it would let the
        # gradient of an infinite or NaN score through as 0 × NaN.
        known = targets >= 0
        scores = torch.where(known, scores, 0.0)
        values = targets * self.positive(scores) + (1 - targets) * self.negative(scores)
        return torch.where(known, values, 0.0)
