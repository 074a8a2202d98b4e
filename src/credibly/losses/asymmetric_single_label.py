"""Asymmetric loss for exactly one label per row, on a softmax."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses.base import (
    ABSENT_SCORE,
    LinkFormula,
    Reduction,
    softmax_log_odds,
    working_precision,
)
from credibly.losses.families import RowLoss
from credibly.types import LogOdds, Scores


class AsymmetricSingleLabel(RowLoss):
    r"""Asymmetric loss for exactly one label per row: a softmax with a focal weight per sign.

    $$\ell(z, y) = -\sum_k t_k\, w_k \log p_k, \qquad p = \varsigma(z), \qquad
      t_k = (1 - \varepsilon)\,1[k = y] + \frac{\varepsilon}{L}, \qquad
      w_k = \begin{cases}(1 - p_k)^{\gamma_+} & k = y\\ p_k^{\gamma_-} & \text{else}\end{cases}$$

    It is ``ASLSingleLabel`` of the official code of Ben-Baruch et al. (2021); their paper has no
    single-label form. Without smoothing ($\varepsilon = 0$), only the term of the present label
    remains, and $\gamma_-$ has no effect; with $\gamma_+ = 0$ too, it is the cross-entropy. Not
    proper: the weights and the smoothing both move the minimiser. The softmax is a link by
    convention, so calibrate the probabilities.

    With several labels in a row, the first part of $t$ is divided evenly among them. Rows without a
    label are ignored. Unknown labels are excluded from the row and from $L$.

    Args:
        gamma_pos: $\gamma_+ \ge 0$.
        gamma_neg: $\gamma_- \ge 0$.
        smoothing: $\varepsilon$ in [0, 1); ``eps`` in the official code.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = AsymmetricSingleLabel()
        >>> loss(torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 2]))
        tensor(0.8043)
    """

    name = "asl-single"
    properness = "none"
    single_label = True
    exclusive = True

    def __init__(
        self,
        gamma_pos: float = 0.0,
        gamma_neg: float = 4.0,
        smoothing: float = 0.1,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.gamma_pos = checks.at_least("gamma_pos", gamma_pos, 0.0)
        self.gamma_neg = checks.at_least("gamma_neg", gamma_neg, 0.0)
        self.smoothing = checks.fraction("smoothing", smoothing, high_open=True)

    def log_odds(self, scores: Scores) -> LogOdds:
        return softmax_log_odds(working_precision(scores))

    def formula(self) -> LinkFormula:
        return {"link": "softmax"}

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Return the logs of the rates. Their softmax is the share of each label."""
        return torch.log(torch.as_tensor(label_rates).double()).to(torch.get_default_dtype())

    def row_values(self, scores: Scores, targets: Tensor) -> tuple[Tensor, Tensor]:
        known = targets >= 0
        weights = torch.where(known, targets, 0.0)
        count = weights.sum(1, keepdim=True)
        labelled = count > 0
        inside = torch.where(known, scores, ABSENT_SCORE)
        log_odds = softmax_log_odds(torch.where(labelled, inside, 0.0))
        log_share, log_rest = logsigmoid(log_odds), logsigmoid(-log_odds)
        # With a single known label, all other terms are empty, and the loss is 0.
        log_rest = log_rest.clamp(min=ABSENT_SCORE)
        own = weights / torch.where(labelled, count, 1.0)
        labels = known.sum(1, keepdim=True).clamp(min=1).to(own.dtype)
        goal = (1 - self.smoothing) * own + self.smoothing / labels
        present = torch.exp(self.gamma_pos * log_rest)
        absent = torch.exp(self.gamma_neg * log_share)
        factor = weights * present + (1 - weights) * absent
        values = torch.where(known, -goal * factor * log_share, 0.0).sum(1)
        return values, labelled.squeeze(1)
