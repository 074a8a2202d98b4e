"""Robust multi-label loss: WARP with a ramp for the hinge, and a ramp for each label."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly import checks
from credibly.losses.base import Reduction
from credibly.losses.families import RowLoss
from credibly.losses.warp import hinge_sums, rank_weights
from credibly.types import Scores


class RobustMultiLabel(RowLoss):
    r"""Robust multi-label loss (RML): a ranking loss that limits the influence of outliers.

    $$\ell_i = \frac{1}{L_i} \Bigl[\sum_{p \in P_i} w(r_p) \sum_{n \in N_i} R(v_p - v_n)
      + \kappa \sum_{p \in P_i} R(v_p) + \kappa \sum_{n \in N_i} R(-v_n)\Bigr]$$

    $$R(t) = H_1(t) - (1 - \lambda)\, H_s(t), \qquad H_a(t) = \max(0, a - t)$$

    with WARP's weights $w(r)$ on exact ranks. The ramp $R$ is a hinge that is flat (up to the leak
    $\lambda$) below $s$. The form is the supervised part of Cevikalp et al. (2019) as in their
    public code ($s = -0.8$, $\kappa = 5$, $\lambda = 0.1$, sampled ranks). The division by the
    number $L_i$ of known labels and the mean over rows are ours. The default leak is 0, not the
    code's 0.1: their paper defines the ramp as $H_1 - H_s$, which is flat below $s$, and only then
    does the loss of outliers stop growing. Use ``leak=0.1`` to match the code.

    A label is positive above one half, negative otherwise. All rows with a known label take part.
    No link: scores only rank. A NaN score makes its row NaN.

    Args:
        ramp: $s < 1$, the end of the ramp.
        single_weight: $\kappa \ge 0$, weight of the terms of single labels.
        leak: $\lambda$ in [0, 1]; with 0 the loss of outliers stops growing, 1 is the plain
            hinge.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> scores = torch.tensor([[2.0, 1.5, -1.0], [-3.0, 1.0, 0.5]])
        >>> RobustMultiLabel().values(scores, torch.tensor([[1, 0, 0], [1, 0, 0]]))
        tensor([ 3.1667, 10.3000])
    """

    name = "rml"
    properness = "none"
    has_link = False
    published = "sigmoid"

    def __init__(
        self,
        ramp: float = -0.8,
        single_weight: float = 5.0,
        leak: float = 0.0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.ramp = checks.finite("ramp", ramp)
        if ramp >= 1:
            raise checks.InputError(
                f"`ramp` must lie below 1, where the hinge begins; got {ramp!r}."
            )
        self.single_weight = checks.at_least("single_weight", single_weight, 0)
        self.leak = checks.fraction("leak", leak)

    def row_values(self, scores: Scores, targets: Tensor) -> tuple[Tensor, Tensor]:
        positive, negative = targets > 0.5, (targets >= 0) & (targets <= 0.5)
        known = positive | negative
        safe = torch.where(known, scores, 0.0).double()
        ranks, near = hinge_sums(safe, positive, negative, margin=1.0)
        _, far = hinge_sums(safe, positive, negative, margin=self.ramp)
        pairs = rank_weights(ranks, scores.shape[1]) * (near - (1 - self.leak) * far)
        right = torch.where(positive, safe, -safe)
        ramps = torch.relu(1 - right) - (1 - self.leak) * torch.relu(self.ramp - right)
        labels = torch.where(known, self.single_weight * ramps, 0.0)
        values = (pairs + labels).sum(1) / known.sum(1).clamp(min=1)
        return values.to(scores.dtype), known.any(1)
