"""Binary cross-entropy."""

from __future__ import annotations

from torch.nn.functional import logsigmoid

from credibly.losses._base import working_precision
from credibly.losses._binary import BinaryLoss
from credibly.types import LogOdds, Scores, Values


class BCE(BinaryLoss):
    r"""Binary cross-entropy on scores: the logistic loss, label by label.

    $$\ell_+(v) = \mathrm{softplus}(-v), \qquad \ell_-(v) = \mathrm{softplus}(v)$$

    Strictly proper; its link is the sigmoid, so log-odds are the scores themselves. Equal to
    ``nn.BCEWithLogitsLoss`` where every target is known.

    Example:
        >>> import torch
        >>> BCE()(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(1.4100)
    """

    name = "bce"
    properness = "strict"

    def positive(self, scores: Scores) -> Values:
        return -logsigmoid(scores)

    def negative(self, scores: Scores) -> Values:
        return -logsigmoid(-scores)

    def log_odds(self, scores: Scores) -> LogOdds:
        return working_precision(scores)
