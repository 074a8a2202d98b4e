"""Binary cross-entropy."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses.base import LinkFormula, Reduction, working_precision
from credibly.losses.families import BinaryLoss
from credibly.types import LogOdds, Scores


class BCE(BinaryLoss):
    r"""Binary cross-entropy on scores: the logistic loss, label by label.

    $$\ell_+(v) = w\,\mathrm{softplus}(-v), \qquad \ell_-(v) = \mathrm{softplus}(v)$$

    Strictly proper; with $w = 1$ its link is the sigmoid, so log-odds are the scores themselves.
    Equal to ``nn.BCEWithLogitsLoss`` if every target is known.

    A factor ``pos_weight`` on present labels only moves the minimiser: $g(v) = v - \log w$. The
    link of this class accounts for it. A plain sigmoid of the scores overestimates every
    probability if $w > 1$.

    Args:
        pos_weight: $w > 0$, a number or one per label, as in ``nn.BCEWithLogitsLoss``.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.
        label_weight: factors of both sides, one per label; see `BinaryLoss`.

    Example:
        >>> BCE()(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(1.4100)
        >>> BCE(pos_weight=3.0).probabilities(torch.tensor([[0.0, 2.0]]))
        tensor([[0.2500, 0.7112]])
    """

    name = "bce"
    properness = "strict"
    pos_weight: Tensor | None
    per_label = ("label_weight", "pos_weight")

    def __init__(
        self,
        pos_weight: float | Tensor | None = None,
        *,
        reduction: Reduction = "mean",
        label_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction, label_weight=label_weight)
        factor = None if pos_weight is None else _positive_factor(pos_weight)
        self.register_buffer("pos_weight", factor, persistent=False)

    def positive(self, scores: Scores) -> Tensor:
        values = -logsigmoid(scores)
        return values if self.pos_weight is None else values * self.pos_weight.to(values)

    def negative(self, scores: Scores) -> Tensor:
        return -logsigmoid(-scores)

    def log_odds(self, scores: Scores) -> LogOdds:
        scores = working_precision(scores)
        return scores if self.pos_weight is None else scores - self.pos_weight.log().to(scores)

    def formula(self) -> LinkFormula:
        by = 0.0 if self.pos_weight is None else self.pos_weight.log().tolist()
        return {"link": "shift", "by": by}

    def softplus_numbers(self) -> tuple[float, ...] | None:
        plain = type(self) is BCE and self.pos_weight is None
        return (-1.0, 0.0, 1.0, 1.0, 0.0, 1.0) if plain else None


def _positive_factor(weight: float | Tensor) -> Tensor:
    factor = torch.as_tensor(weight, dtype=torch.float64)
    if factor.ndim > 1 or not bool((torch.isfinite(factor) & (factor > 0)).all()):
        raise checks.InputError(
            f"`pos_weight` must be a finite number above 0, or one per label; got {weight!r}."
        )
    return factor
