"""Focal loss."""

from __future__ import annotations

from torch import Tensor

from credibly.losses.asymmetric import Asymmetric
from credibly.losses.base import Reduction


class Focal(Asymmetric):
    r"""Focal loss: entries that are already right count less.

    $$\ell_+(v) = -(1-p)^{\gamma_+} \log p, \qquad \ell_-(v) = -p^{\gamma_-} \log(1-p), \qquad
      p = \sigma(v)$$

    Lin et al. (2017), Eq. 4, with an exponent for each sign. Not proper with the sigmoid (it is
    underconfident), recoverable through its link: `Asymmetric` with no margin, whose link is
    increasing and reaches every probability for positive exponents.

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
    arguments = ("gamma_pos", "gamma_neg", "detach_weight")

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
