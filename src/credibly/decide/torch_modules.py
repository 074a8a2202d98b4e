"""Decisions as torch modules: probabilities (n, L) in, a bool matrix (n, L) out.

Each module gives exactly the sets of ``predict``, also where probabilities equal the threshold or
each other. To that end it compares in float64, which holds every half and single precision number
exactly, and keeps its numbers as attributes: ``module.half()`` would round a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from credibly.runtime import STEPS, just_above, just_below


class Above(nn.Module):
    """Return the labels with a probability above a threshold.

    Args:
        thresholds: one for all labels, or one per label.
    """

    def __init__(self, thresholds: Sequence[float]) -> None:
        super().__init__()
        self.thresholds = tuple(thresholds)

    def forward(self, probabilities: Tensor) -> Tensor:
        exact = probabilities.double()
        return exact > torch.tensor([self.thresholds], dtype=torch.float64, device=exact.device)


class AboveWithTies(nn.Module):
    """Return the labels above ``threshold``; of those at it up to rounding, the first ones.

    Args:
        threshold: one for all labels.
        tied_labels: of labels at the threshold, those with a lower index than this are in.
    """

    def __init__(self, threshold: float, tied_labels: int) -> None:
        super().__init__()
        self.above, self.at = just_above(threshold), just_below(threshold)
        self.tied_labels = tied_labels

    def forward(self, probabilities: Tensor) -> Tensor:
        exact = probabilities.double()
        first = torch.arange(exact.shape[1], device=exact.device) < self.tied_labels
        return (exact > self.above) | ((exact > self.at) & first)


class MostProbable(nn.Module):
    """Return the ``k`` most probable labels of each row; of equal ones, those that come first."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, probabilities: Tensor) -> Tensor:
        exact = probabilities.double()
        lowest = exact.topk(self.k, dim=1).values[:, -1:]
        above = exact > just_above(lowest)
        tied = (exact > just_below(lowest)) & ~above
        free = self.k - above.long().sum(dim=1, keepdim=True)
        return above | (tied & (tied.long().cumsum(dim=1) <= free))


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
        ranked, order = _sorted(torch.round(probabilities.double() * STEPS) / STEPS)
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


MODULES: dict[str, Callable[..., nn.Module]] = {
    "above": Above,
    "above-with-ties": AboveWithTies,
    "most-probable": MostProbable,
    "up-to-sum": UpToCumulativeScore,
}
"""The modules by the names of the comparisons in `credibly.runtime`."""
