"""Decisions as torch modules: probabilities (n, L) in, a bool matrix (n, L) out.

Each module gives exactly the sets of ``predict``, also where probabilities equal the threshold or
each other. To that end it compares in float64, which holds every half and single precision number
exactly, and keeps its numbers as attributes: ``module.half()`` would round a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class AtLeast(nn.Module):
    """Return the labels with a probability of at least ``thresholds``.

    Args:
        thresholds: one for all labels, or one per label; compared in the precision of the
            probabilities, so that 0.7 reaches 0.7.
    """

    def __init__(self, thresholds: Sequence[float]) -> None:
        super().__init__()
        self.thresholds = tuple(thresholds)

    def forward(self, probabilities: Tensor) -> Tensor:
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64)
        return probabilities >= thresholds.to(probabilities)


class Above(nn.Module):
    """Return the labels with a probability above a threshold.

    Args:
        thresholds: one for all labels, or one per label.
        tied_labels: of labels exactly at the threshold, those with a lower index than this are in.
    """

    def __init__(self, thresholds: Sequence[float], *, tied_labels: int = 0) -> None:
        super().__init__()
        self.thresholds, self.tied_labels = tuple(thresholds), tied_labels

    def forward(self, probabilities: Tensor) -> Tensor:
        exact = probabilities.double()
        thresholds = torch.tensor([self.thresholds], dtype=torch.float64, device=exact.device)
        above = exact > thresholds
        if self.tied_labels == 0:
            return above
        first = torch.arange(exact.shape[1], device=exact.device) < self.tied_labels
        return above | ((exact == thresholds) & first)


class MostProbable(nn.Module):
    """Return the ``k`` most probable labels of each row; of equal ones, those that come first."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, probabilities: Tensor) -> Tensor:
        exact = probabilities.double()
        lowest = exact.topk(self.k, dim=1).values[:, -1:]
        above, tied = exact > lowest, exact == lowest
        free = self.k - above.long().sum(dim=1, keepdim=True)
        return above | (tied & (tied.long().cumsum(dim=1) <= free))


class UpToScore(nn.Module):
    """Return the labels whose LAC score, 1 − probability, is at most ``quantile``."""

    def __init__(self, quantile: float) -> None:
        super().__init__()
        self.quantile = quantile

    def forward(self, probabilities: Tensor) -> Tensor:
        return 1 - probabilities.double() <= self.quantile


class UpToCumulativeScore(nn.Module):
    """Return the labels whose APS or RAPS score is at most ``quantile``, and the most probable.

    Args:
        quantile: largest nonconformity score that is let in.
        penalty: added to the score for each label beyond the first ``free_size``; 0 for APS.
        free_size: number of labels without a penalty.
    """

    def __init__(self, quantile: float, *, penalty: float, free_size: int) -> None:
        super().__init__()
        self.quantile, self.penalty, self.free_size = quantile, penalty, free_size

    def forward(self, probabilities: Tensor) -> Tensor:
        ranked, order = _sorted(probabilities.double())
        rank = torch.arange(ranked.shape[1], device=ranked.device)
        # As in ``predict``: the penalty of a label beyond ``free_size``, then one addition.
        beyond = (rank + 1 - self.free_size).clamp(min=0).double()
        scores = ranked.cumsum(dim=1) + self.penalty * beyond
        inside = (scores <= self.quantile) | (rank == 0)
        return torch.zeros_like(inside).scatter(1, order, inside)


def _sorted(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each row, largest first; of equal values, the one that comes first."""
    if torch.onnx.is_in_onnx_export():
        # Has no stable sort, and needs none: ONNX puts the lower of two tied indices first.
        return values.sort(dim=1, descending=True)
    return values.sort(dim=1, descending=True, stable=True)
