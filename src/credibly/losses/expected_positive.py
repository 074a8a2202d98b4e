"""Expected positive regularization: observed labels, and a number of labels to expect."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses import _processes
from credibly.losses._base import Loss, as_matrix_targets, working_precision
from credibly.types import LogOdds, Scores, Targets, Values


class ExpectedPositive(Loss):
    r"""Expected positive regularization (EPR), from one observed label a row.

    $$\ell = -\frac{1}{|B|}\sum_i \log\sigma(z_{i y_i}) + \beta\,(\hat K - K)^2, \qquad
      \hat K = \frac{1}{|B|}\sum_{i,j} \sigma(z_{ij})$$

    Only observed labels are learned; the second term keeps the mean number of predicted labels at
    $K$. Cole et al. (2021); Garcin et al. (2023), Eqs. 7–8. Many score matrices satisfy the
    constraint, so the sigmoid is a link by convention and not a proper one: calibrate.

    $|B|$ counts rows with a known label; unknown entries are left out of $\hat K$. Soft targets
    weigh their term. A NaN score makes the loss NaN, as $\hat K$ couples all rows. Across
    processes, in training mode, $\hat K$ and $|B|$ are those of the union of all batches.

    Args:
        average_size: $K$, the number of labels to expect a row; at least 1.
        weight: $\beta > 0$; ``None`` takes $1/L$, the balance of the loss's source.

    Example:
        >>> loss = ExpectedPositive(average_size=1.5)
        >>> loss(torch.tensor([[2.0, -1.0, 0.0], [0.0, 3.0, 0.0]]), torch.tensor([0, 1]))
        tensor(0.1180)
    """

    name = "epr"
    properness = "none"

    def __init__(self, average_size: float, weight: float | None = None) -> None:
        super().__init__()
        self.average_size = checks.average_size(average_size)
        self.weight = None if weight is None else checks.positive("weight", weight)

    def forward(self, scores: Scores, targets: Targets) -> Tensor:
        values, rows = self._rows(scores, targets)
        # Each row holds the regularizer of all: as many of them as rows make up for the division.
        return _processes.summed(values.sum(), self.training) / rows.clamp(min=1)

    def values(self, scores: Scores, targets: Targets) -> Values:
        """One value a row, each with the regularizer of the batch; 0 for rows of unknowns."""
        return self._rows(scores, targets)[0]

    def log_odds(self, scores: Scores) -> LogOdds:
        return working_precision(scores)

    def extra_repr(self) -> str:
        return f"average_size={self.average_size:g}, weight={self.weight}"

    def _rows(self, scores: Scores, targets: Targets) -> tuple[Values, Tensor]:
        checks.matrix_scores(scores)
        scores = working_precision(scores)
        targets = as_matrix_targets(scores, targets)
        checks.average_size(self.average_size, scores.shape[1])
        known = targets >= 0
        taking_part = known.any(1)
        rows = _processes.summed(taking_part.sum(), self.training)
        scores = torch.where(known, scores, 0.0)
        observed = -(torch.where(known, targets, 0.0) * logsigmoid(scores)).sum(1)
        excess = self._excess(scores, known, rows)
        weight = 1 / scores.shape[1] if self.weight is None else self.weight
        return torch.where(taking_part, observed + weight * excess**2, 0.0), rows

    def _excess(self, scores: Scores, known: Tensor, rows: Tensor) -> Tensor:
        predicted = torch.where(known, torch.sigmoid(scores), 0.0).sum(dtype=torch.float64)
        mean = _processes.summed(predicted, self.training) / rows.clamp(min=1)
        return (mean - self.average_size).to(scores.dtype)
