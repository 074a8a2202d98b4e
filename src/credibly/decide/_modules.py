"""Threshold rules as a torch module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class AboveThreshold(nn.Module):
    """Labels whose probability is above a threshold, one for all labels or one per label.

    Args:
        threshold: a number, or one per label.
        inclusive: whether a probability equal to the threshold is enough.
        tied_labels: for how many of the first labels it is enough in any case.
    """

    threshold: Tensor

    def __init__(self, threshold: Any, *, inclusive: bool = False, tied_labels: int = 0) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.as_tensor(threshold, dtype=torch.float32))
        self.inclusive, self.tied_labels = inclusive, int(tied_labels)

    def forward(self, probabilities: Tensor) -> Tensor:
        if self.inclusive:
            return probabilities >= self.threshold
        above = probabilities > self.threshold
        if self.tied_labels == 0:
            return above
        first = torch.arange(probabilities.shape[1], device=probabilities.device)
        return above | ((probabilities == self.threshold) & (first < self.tied_labels))
