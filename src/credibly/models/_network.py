"""What every model is: standardise, backbone, dropout, head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.types import Array


class Standardize(nn.Module):
    """(input − mean) / scale, a column or channel at a time; fixed, and saved with the model.

    Buffers, not parameters: they are fitted once on training rows, follow the model to any device
    and into any export, and no optimiser touches them.

    Example:
        >>> layer = Standardize(2).fit(np.array([[1.0, 5.0], [3.0, 5.0]]))
        >>> layer(torch.tensor([[3.0, 5.0]]))
        tensor([[1., 0.]])
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def fit(self, values: Array) -> Standardize:
        """Mean and deviation of the rows of ``values``; a constant column keeps scale 1."""
        # In blocks, in float64: exact enough, and never a copy of the whole.
        total, square = np.zeros(values.shape[1]), np.zeros(values.shape[1])
        shift = values[:1].astype(np.float64).reshape(-1) if len(values) else 0.0
        for start in range(0, len(values), 65536):
            block = values[start : start + 65536].astype(np.float64) - shift
            total += block.sum(axis=0)
            square += (block**2).sum(axis=0)
        mean = total / max(len(values), 1)
        deviation = np.sqrt(np.maximum(square / max(len(values), 1) - mean**2, 0))
        constant = deviation <= 1e-6 * np.maximum(np.abs(mean + shift), 1e-30)
        return self.set(mean + shift, np.where(constant, 1.0, deviation))

    def set(self, mean: Any, scale: Any) -> Standardize:
        self.mean.copy_(torch.as_tensor(np.asarray(mean)))
        self.scale.copy_(torch.as_tensor(np.asarray(scale)))
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        shape = (1, -1) + (1,) * (inputs.ndim - 2)
        return (inputs - self.mean.view(shape)) / self.scale.view(shape)


class Network(nn.Module):
    """Scores of a batch, through ``standardize``, ``backbone``, ``dropout`` and ``head``.

    ``head`` is the last ``nn.Linear``: its columns are the scores of all labels, and, for losses
    with two scores a label, then the second scores of all labels. A frozen backbone stays in
    evaluation mode, gets no gradient, and its output can be cached (``cache_features``).
    """

    def __init__(
        self,
        name: str,
        input_shape: tuple[int, ...],
        standardize: Standardize,
        backbone: nn.Module,
        num_features: int,
        num_scores: int,
        *,
        dropout: float = 0.0,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.input_shape, self.frozen = name, tuple(input_shape), frozen
        self.num_features = num_features
        self.standardize, self.backbone = standardize, backbone
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(num_features, num_scores)
        if frozen:
            backbone.requires_grad_(False)
            backbone.eval()

    def train(self, mode: bool = True) -> Network:
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees: (rows, num_features)."""
        if inputs.ndim != 1 + len(self.input_shape) or inputs.shape[1] != self.input_shape[0]:
            shape = ", ".join(map(str, self.input_shape))
            raise InputError(
                f"{self.name} takes inputs of shape (rows, {shape}); got {tuple(inputs.shape)}."
            )
        if self.frozen:
            with torch.no_grad():
                return self.backbone(self.standardize(inputs))
        return self.backbone(self.standardize(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.dropout(self.features(inputs)))
