"""Decisions as torch modules, which map probabilities (n, L) to a bool matrix (n, L).

A module gives exactly the sets of ``predict``, even if probabilities equal the threshold or each
other. It compares in float64, which represents every half and single precision number exactly. Its
parameters are attributes, because ``module.half()`` would round buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from credibly.runtime import STEPS, just_above, just_below


class RuleModule(nn.Module):
    """A rule of `credibly.runtime`, given by its name and parameters."""

    def __init__(self, rule: str, **numbers: Any) -> None:
        super().__init__()
        self.rule, self.numbers = _RULES[rule], numbers

    def forward(self, probabilities: Tensor) -> Tensor:
        return self.rule(probabilities.double(), **self.numbers)


def _above(exact: Tensor, thresholds: Sequence[float]) -> Tensor:
    return exact > torch.tensor([thresholds], dtype=torch.float64, device=exact.device)


def _above_with_ties(exact: Tensor, threshold: float, tied_labels: int) -> Tensor:
    first = torch.arange(exact.shape[1], device=exact.device) < tied_labels
    return (exact > just_above(threshold)) | ((exact > just_below(threshold)) & first)


def _most_probable(exact: Tensor, k: int) -> Tensor:
    lowest = exact.topk(k, dim=1).values[:, -1:]
    above = exact > just_above(lowest)
    tied = (exact > just_below(lowest)) & ~above
    free = k - above.long().sum(dim=1, keepdim=True)
    return above | (tied & (tied.long().cumsum(dim=1) <= free))


def _up_to_sum(exact: Tensor, quantile: float, penalty: float, free_size: int) -> Tensor:
    rounded = torch.round(exact * STEPS) / STEPS
    # ONNX has no stable sort and needs none: it puts the lower of two tied indices first.
    stable = {} if torch.onnx.is_in_onnx_export() else {"stable": True}
    ranked, order = rounded.sort(dim=1, descending=True, **stable)
    rank = torch.arange(ranked.shape[1], device=ranked.device)
    # The order of operations is that of ``predict``: first the penalty, then one addition.
    beyond = (rank + 1 - free_size).clamp(min=0).double()
    inside = (ranked.cumsum(dim=1) + penalty * beyond <= quantile) | (rank == 0)
    return torch.zeros_like(inside).scatter(1, order, inside)


_RULES: dict[str, Callable[..., Tensor]] = {
    "above": _above,
    "above-with-ties": _above_with_ties,
    "most-probable": _most_probable,
    "up-to-sum": _up_to_sum,
}
