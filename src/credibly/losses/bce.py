"""Binary cross-entropy."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly.losses._base import working_precision
from credibly.losses._binary import BinaryLoss
from credibly.losses._fused import fused, run_flat
from credibly.losses._kernels.spa import spa_at
from credibly.losses.spa import softplus_pair
from credibly.types import LogOdds, Scores, Targets, Values

# SPA with scales and slopes 1 and no shifts: one set of closed forms serves both.
_SIDES = ((1.0, 1.0, 0.0), (1.0, 1.0, 0.0))


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

    def _mean(self, scores: Scores, targets: Targets) -> Tensor:
        return fused(scores, targets, cpu=_on_cpu, anywhere=_in_torch, plain=super()._mean)


def _on_cpu(scores: Scores, targets: Targets, wanted: bool) -> tuple[Tensor, Tensor | None]:
    return run_flat(spa_at, scores, targets, wanted, *_SIDES)


def _in_torch(scores: Scores, targets: Targets, wanted: bool) -> tuple[Tensor, Tensor | None]:
    return softplus_pair(scores, targets, wanted, *_SIDES)
