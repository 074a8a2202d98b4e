"""A weighted sum of the scores of several models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Stack(nn.Module):
    """Add up the scores of models, each with its weight.

    Scores of ``bce`` are log-odds and those of ``softmax`` are logarithms of shares, so the sum
    with weights 1/N is the mean in log-odds of N members.

    Args:
        members: models that take the same inputs and return scores of the same shape.
        weights: one per member; equal ones that sum to 1 if not given.

    Example:
        >>> stack = Stack([nn.Identity(), nn.Identity()], [1.0, 0.5])
        >>> stack(torch.ones(1, 2))
        tensor([[1.5000, 1.5000]])
    """

    weights: Tensor

    def __init__(
        self, members: Sequence[nn.Module], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        even = [1 / max(len(members), 1)] * len(members)
        self.register_buffer("weights", torch.tensor(even if weights is None else list(weights)))

    def forward(self, inputs: Tensor) -> Tensor:
        parts = [
            weight * member(inputs)
            for weight, member in zip(self.weights, self.members, strict=True)
        ]
        return torch.stack(parts).sum(dim=0)
