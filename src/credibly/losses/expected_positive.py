"""Expected positive regularization: observed labels, and the expected number of labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses import collectives
from credibly.losses.base import LinkFormula, Reduction, working_precision
from credibly.losses.families import BatchLoss
from credibly.types import LogOdds, Scores


class ExpectedPositive(BatchLoss):
    r"""Expected positive regularization (EPR), from one observed label per row.

    $$\ell = -\frac{1}{|B|}\sum_i \log\sigma(z_{i y_i}) + \beta\,(\hat K - K)^2, \qquad
      \hat K = \frac{1}{|B|}\sum_{i,j} \sigma(z_{ij})$$

    Only observed labels are learned; the second term keeps the mean number of predicted labels at
    $K$. Cole et al. (2021); Garcin et al. (2023), Eqs. 7–8. Many score matrices satisfy the
    constraint, so the sigmoid is a link by convention and not a proper one: calibrate.

    $|B|$ is the number of rows with a known label. Unknown entries are excluded from $\hat K$. Soft
    targets weight their term. A NaN score makes the loss NaN, because $\hat K$ couples all rows.
    Across processes, in training mode, $\hat K$ and $|B|$ are those of the union of all batches. A
    weight given with a batch multiplies the first term of its row.

    Args:
        average_size: $K$, the expected number of labels per row; at least 1.
        weight: $\beta > 0$; ``None`` takes $1/L$, the balance of the loss's source.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = ExpectedPositive(average_size=1.5)
        >>> loss(torch.tensor([[2.0, -1.0, 0.0], [0.0, 3.0, 0.0]]), torch.tensor([0, 1]))
        tensor(0.1180)
    """

    name = "epr"
    spans_processes = True
    published = "softmax"

    def __init__(
        self, average_size: float, weight: float | None = None, *, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.average_size = checks.average_size(average_size)
        self.weight = None if weight is None else checks.positive("weight", weight)

    def log_odds(self, scores: Scores) -> LogOdds:
        return working_precision(scores)

    def formula(self) -> LinkFormula:
        return {"link": "shift"}

    def batch_values(
        self, scores: Scores, targets: Tensor, weight: Tensor | None, *, update_state: bool
    ) -> tuple[Tensor, Tensor]:
        """Return one value per row, each with the regularizer of the batch, and their number."""
        checks.average_size(self.average_size, scores.shape[1])
        known = targets >= 0
        taking_part = known.any(1)
        rows = collectives.all_reduce_sum(taking_part.sum(), self.training)
        scores = torch.where(known, scores, 0.0)
        observed = -(torch.where(known, targets, 0.0) * logsigmoid(scores)).sum(1)
        excess = self._excess(scores, known, rows)
        balance = 1 / scores.shape[1] if self.weight is None else self.weight
        observed = observed if weight is None else observed * weight
        # Each row contains the whole regularizer, so the mean over rows counts it once.
        return torch.where(taking_part, observed + balance * excess**2, 0.0), rows

    def _excess(self, scores: Scores, known: Tensor, rows: Tensor) -> Tensor:
        predicted = torch.where(known, torch.sigmoid(scores), 0.0).sum(dtype=torch.float64)
        mean = collectives.all_reduce_sum(predicted, self.training) / rows.clamp(min=1)
        return (mean - self.average_size).to(scores.dtype)
