"""Online estimation of labels: unobserved labels are estimated along with the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from credibly import checks
from credibly.losses.base import LinkFormula, Reduction, working_precision
from credibly.losses.families import BatchLoss
from credibly.types import LogOdds, Scores


class OnlineEstimation(BatchLoss):
    r"""Regularized online label estimation (ROLE), from one observed label per row.

    $$\ell = \tfrac12\bigl[\ell'(F \mid \tilde Y) + \ell'(\tilde Y \mid F)\bigr], \qquad
      \ell'(F \mid \tilde Y) = \frac{1}{|B| L} \sum_{i,j} \bigl[\mathrm{BCE}(f_{ij}, \tilde y_{ij})
      - 1[j = y_i] \log f_{ij}\bigr] + \Bigl(\frac{\hat K(F) - K}{L}\Bigr)^2$$

    $F = \sigma(\text{scores})$. $\tilde Y = \sigma(\Theta)$ are estimates of the labels of the
    training rows, learned at the same time. $\Theta$, (training rows, labels), is a parameter of
    this module, so pass ``loss.parameters()`` to the optimizer too. The quantity behind the bar is
    a constant. Cole et al. (2021), scaled as in their public code. $\Theta$ starts at random around
    even odds. When a row is seen for the first time, its observed labels are set to 0.995.

    In training, each batch must name its rows by ``indices``, except for a batch of all rows in
    order. In evaluation mode there are no estimates, and the loss consists of the observed labels
    and the expected number. The sigmoid is a link by convention and not a proper one: calibrate.
    Memory is training rows × labels on every process. Each process estimates the rows that it sees,
    so rows should stay with their process.

    Unknown entries and rows of unknowns are ignored. Soft targets weight their term. A NaN score
    makes the loss NaN, because $\hat K$ couples all rows. A weight multiplies the value of its row.

    Args:
        num_rows: number of rows of the training set.
        num_labels: $L$.
        average_size: $K$, the expected number of labels per row.
        spread: maximum distance of the initial estimates from one half, in [0, ½).
        seed: seed of the random start.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = OnlineEstimation(num_rows=10, num_labels=3, average_size=1.5)
        >>> scores = torch.tensor([[2.0, -1.0, 0.0], [0.0, 3.0, 0.0]])
        >>> loss(scores, torch.tensor([0, 1]), indices=torch.tensor([7, 2])).shape
        torch.Size([])
        >>> loss.estimates(torch.tensor([7]))[0, 0]
        tensor(0.9950)
    """

    name = "role"
    detached = True
    published = "softmax"
    needs_indices = True
    seen: Tensor

    def __init__(
        self,
        num_rows: int,
        num_labels: int,
        average_size: float,
        spread: float = 0.1,
        seed: int = 0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.num_rows = int(checks.at_least("num_rows", num_rows, 1))
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self.average_size = checks.average_size(average_size, self.num_labels)
        self.spread, self.seed = checks.fraction("spread", 2 * spread, high_open=True) / 2, seed
        checks.fits_memory("the estimates of `role`", self.num_rows, self.num_labels)
        generator = torch.Generator().manual_seed(seed)
        start = 2 * torch.rand(self.num_rows, self.num_labels, generator=generator) - 1
        self.estimate_log_odds = nn.Parameter(start * _logit(0.5 + self.spread))
        self.register_buffer("seen", torch.zeros(self.num_rows, dtype=torch.bool))

    def log_odds(self, scores: Scores) -> LogOdds:
        return working_precision(scores)

    def formula(self) -> LinkFormula:
        return {"link": "shift"}

    @torch.no_grad()
    def estimates(self, indices: Tensor) -> Tensor:
        """Return estimated probabilities of the labels of these training rows."""
        return torch.sigmoid(self.estimate_log_odds[indices])

    def batch_values(
        self,
        scores: Scores,
        targets: Tensor,
        weight: Tensor | None,
        *,
        update_state: bool,
        indices: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return one value per row, each with the regularizer of the batch; 0 where unknown."""
        if scores.shape[1] != self.num_labels:
            raise checks.InputError(
                f"`scores` must have {self.num_labels} columns, as `num_labels` says; "
                f"got {scores.shape[1]}. Build the loss with the number of labels of the model."
            )
        known = targets >= 0
        scores = torch.where(known, scores, 0.0)
        targets = torch.where(known, targets, 0.0)
        values = self._half(scores, None, targets, known)
        if self.training:
            indices = self._checked(indices, len(scores))
            self._observe(indices, targets)
            estimates = self.estimate_log_odds[indices].to(scores.dtype)
            values = self._half(scores, estimates, targets, known)
            values = (values + self._half(estimates, scores, targets, known)) / 2
        taking_part = known.any(1)
        values = torch.where(taking_part, values, 0.0)
        if weight is not None:
            values = values * weight
        return values * (self.num_labels if self.reduction == "rows" else 1), taking_part.sum()

    def _half(
        self, log_odds: Tensor, others: Tensor | None, targets: Tensor, known: Tensor
    ) -> Tensor:
        """Return ℓ′ of one side given the other, per row; without it, the remaining terms."""
        cost = -targets * logsigmoid(log_odds)
        if others is not None:
            given = torch.sigmoid(others.detach())
            cost = cost - given * logsigmoid(log_odds) - (1 - given) * logsigmoid(-log_odds)
        rows = known.any(1).sum().clamp(min=1)
        mean = torch.where(known, torch.sigmoid(log_odds), 0.0).sum() / rows
        excess = (mean - self.average_size) / self.num_labels
        return torch.where(known, cost, 0.0).sum(1) / self.num_labels + excess**2

    def _checked(self, indices: Tensor | None, rows: int) -> Tensor:
        device = self.estimate_log_odds.device
        if indices is None and rows == self.num_rows:
            return torch.arange(rows, device=device)
        if indices is None or indices.shape != (rows,):
            came = "none" if indices is None else f"shape {tuple(indices.shape)}"
            raise checks.InputError(
                f"`indices` must say which of the {self.num_rows} training rows each of these "
                f"{rows} rows is; got {came}. Call `loss(scores, targets, indices=…)`, or "
                "`loss.eval()` for rows that are not training rows."
            )
        if (
            indices.is_cpu
            and rows
            and not 0 <= int(indices.min()) <= int(indices.max()) < self.num_rows
        ):
            raise checks.InputError(
                f"`indices` must lie in [0, {self.num_rows - 1}]; "
                f"got [{int(indices.min())}, {int(indices.max())}]."
            )
        return indices.to(device)

    @torch.no_grad()
    def _observe(self, indices: Tensor, targets: Tensor) -> None:
        """Set observed labels to .995 in the estimates of rows that are seen for the first time."""
        new = ~self.seen[indices]
        rows = self.estimate_log_odds[indices]
        sure = new[:, None] & (targets.to(rows.device) == 1)
        self.estimate_log_odds[indices] = torch.where(sure, _logit(0.995), rows)
        self.seen[indices] = True


def _logit(probability: float) -> float:
    return float(torch.logit(torch.tensor(probability, dtype=torch.float64)))
