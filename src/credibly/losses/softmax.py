"""Softmax cross-entropy for zero, one or many labels."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from credibly import checks
from credibly.losses.base import LinkFormula, Reduction, softmax_log_odds, working_precision
from credibly.losses.families import RowLoss
from credibly.losses.linear.chunks import LinearForm
from credibly.losses.linear.rows import SoftmaxLinear
from credibly.types import LogOdds, Scores

ZeroLabelRule = Literal["uniform", "max_confidence", "none_class"]


class Softmax(RowLoss):
    r"""Softmax cross-entropy; several labels of a row share its weight evenly.

    $$\ell(z, y) = \mathrm{LSE}_k(z_k) - \sum_k \frac{y_k}{\sum_j y_j}\, z_k$$

    With one observed label per row, this is the usual cross-entropy, with gradient
    $\varsigma_j(z) - 1[j = y]$ (Garcin et al. 2023, Eq. 4, prints that of $\varsigma_y$ instead),
    and strictly proper. With several labels, the softmax estimates a label's *share* of its row,
    not the probability that it is present. The mean is over rows that take part.

    ``zero_label`` determines how rows without labels are used; by default they are ignored.

    * ``"uniform"``: $\mathrm{KL}(\text{uniform} \,\|\, \varsigma(z))$; Lee et al. (2018), Eq. 1.
    * ``"max_confidence"``: $\max_k \log \varsigma_k(z)$; Hein et al. (2019).
    * ``"none_class"``: one more class, "none of them", with a fixed score of 0. This is no
      restriction, because the softmax ignores a shift of all scores. Models keep one output per
      label.

    Both sources print $E_\text{labelled}[\ell] + \beta\, E_\text{without}[\ell]$; ``zero_weight``
    is $\beta$. Without it, every row of a batch has the same weight.

    Unknown labels are excluded from the targets and from the normalizer.

    Args:
        zero_label: how to use rows without labels; see above.
        zero_weight: $\beta \ge 0$, or None; for ``"uniform"`` and ``"max_confidence"`` (1 in
            the sources). Rows are then scaled so that the mean over all rows is the sum above.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = Softmax(zero_label="none_class")
        >>> scores = torch.tensor([[2.0, 1.0, -1.0], [-1.0, -2.0, -3.0]])
        >>> loss(scores, torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
        tensor(0.6902)
        >>> loss.probabilities(scores)
        tensor([[0.6439, 0.2369, 0.0321],
                [0.2369, 0.0871, 0.0321]])
    """

    name = "softmax"
    properness = "strict"
    exclusive = True

    def __init__(
        self,
        zero_label: ZeroLabelRule | None = None,
        zero_weight: float | None = None,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        choices = (None, "uniform", "max_confidence", "none_class")
        self.zero_label = checks.choice("zero_label", zero_label, choices)
        if zero_weight is not None and zero_label not in ("uniform", "max_confidence"):
            raise checks.InputError(
                '`zero_weight` is for `zero_label="uniform"` or `"max_confidence"`; got '
                f"{zero_label!r}. Leave it out, or choose one of them."
            )
        self.zero_weight = (
            None if zero_weight is None else checks.at_least("zero_weight", zero_weight, 0.0)
        )

    def log_odds(self, scores: Scores) -> LogOdds:
        scores = working_precision(scores)
        if self.zero_label != "none_class":
            return softmax_log_odds(scores)
        none = torch.zeros_like(scores[..., :1])
        return softmax_log_odds(torch.cat([scores, none], -1))[..., :-1]

    def formula(self) -> LinkFormula:
        return {"link": "softmax", "none_class": self.zero_label == "none_class"}

    def top_log_odds(self, scores: Scores, log_sum: Tensor) -> LogOdds:
        if self.zero_label == "none_class":
            log_sum = torch.logaddexp(log_sum, torch.zeros_like(log_sum))
        # A share that rounds to exactly 1 would have infinite log-odds.
        top = math.log1p(-torch.finfo(torch.float64).eps)
        log_share = (scores.double() - log_sum[:, None]).clamp(max=top)
        return log_share - torch.log(-torch.expm1(log_share))

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Return scores whose softmax is the share of each label among all labels.

        For ``"none_class"``, the rate of rows without labels is one minus the sum of the label
        rates. If the sum is at least one, it is the rate under independence of labels.
        """
        rates = torch.as_tensor(label_rates).double()
        shares = torch.log(rates) - torch.log(rates.sum())
        if self.zero_label == "none_class":
            left = 1 - rates.sum()
            none = left if left > 0 else torch.prod(1 - rates)
            shares = shares + torch.logit(1 - none)
        return shares.to(torch.get_default_dtype())

    def linear_form(self) -> LinearForm | None:
        by_sums = self.zero_label in (None, "none_class")
        return SoftmaxLinear(self) if by_sums else None

    def row_values(self, scores: Scores, targets: Tensor) -> tuple[Tensor, Tensor]:
        known = targets >= 0
        weights = torch.where(known, targets, 0.0)
        count = weights.sum(-1)
        taking_part = known.any(-1) if self.zero_label else count > 0
        # A row of only −inf would have a NaN gradient, so ignored rows are set to zeros.
        inside = torch.where(known, scores, -torch.inf)
        inside = torch.where(taking_part[:, None], inside, 0.0)
        if self.zero_label == "none_class":
            inside = torch.cat([inside, torch.zeros_like(inside[:, :1])], 1)
        shares = torch.log_softmax(inside, -1)
        log_share = torch.where(known, shares[:, : scores.shape[1]], 0.0)
        values = -(weights * log_share).sum(-1) / torch.where(count > 0, count, 1.0)
        if self.zero_label:
            values = torch.where(count > 0, values, self._without_label(shares, log_share, known))
        return values * self.row_factors(count > 0, taking_part).to(values.dtype), taking_part

    def row_factors(self, labelled: Tensor, taking_part: Tensor) -> Tensor:
        """Return factors that make the mean over rows the labelled mean + β × the others'."""
        if self.zero_weight is None:
            return torch.ones_like(labelled, dtype=torch.float64)
        rows, inside = taking_part.sum().double(), (labelled & taking_part).sum()
        outside = rows - inside
        weight = torch.where(labelled, 1.0, self.zero_weight).double()
        return weight * rows / torch.where(labelled, inside, outside).clamp(min=1)

    def _without_label(self, shares: Tensor, log_share: Tensor, known: Tensor) -> Tensor:
        """Return the loss of a row without label; ``shares`` may end with that of "none"."""
        if self.zero_label == "none_class":
            return -shares[:, -1]
        if self.zero_label == "max_confidence":
            return torch.where(known, log_share, -torch.inf).amax(-1)
        size = known.sum(-1).clamp(min=1)
        return -log_share.sum(-1) / size - torch.log(size.to(log_share.dtype))
