"""The axes along which a linear model is solved quickest."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from credibly.types import Array


MOST_AXES = 4096
"""Finding more takes minutes."""


@dataclasses.dataclass(frozen=True)
class Axes:
    """Orthonormal directions of features, along which the curvature of a loss is nearly diagonal.

    The optimum under an L2 penalty is a combination of the rows. Along the axes of the rows it has
    the same loss and the same norm, with as many weights per label as there are axes.

    Attributes:
        directions: (d, k), k the smaller of the numbers of rows and of features; None for the
            features themselves, where finding others would take too long.
        lengths: (k,), the mean square of the rows along each.
    """

    directions: Tensor | None
    lengths: Tensor

    @classmethod
    def of(cls, inputs: Tensor) -> Axes:
        """Return the axes of rows, (n, d) in float64."""
        count, width = inputs.shape
        if min(count, width) > MOST_AXES:
            return cls(None, inputs.square().mean(dim=0))
        if count < width:
            _, singular, rows = torch.linalg.svd(inputs, full_matrices=False)
            return cls(rows.T.contiguous(), singular.square() / count)
        lengths, directions = torch.linalg.eigh(inputs.T @ inputs / count)
        return cls(directions, lengths.clamp(min=0))

    def along(self, inputs: Tensor) -> Tensor:
        """Return rows by their coordinates along the axes."""
        return inputs if self.directions is None else inputs @ self.directions

    def head(self, given: nn.Linear) -> nn.Linear:
        """Return a last layer of zeros for rows along the axes, with the biases of the given."""
        head = nn.Linear(len(self.lengths), given.out_features, dtype=self.lengths.dtype)
        nn.init.zeros_(head.weight)
        with torch.no_grad():
            head.bias.copy_(given.bias)
        return head

    @torch.no_grad()
    def put_back(self, head: nn.Linear, into: nn.Linear) -> None:
        """Set a last layer to one that was solved along the axes."""
        weight = head.weight
        into.weight.copy_(weight if self.directions is None else weight @ self.directions.T)
        into.bias.copy_(head.bias)

    def units(self, targets: Tensor, l2: float, terms: int) -> Array:
        """Return one over the root of the curvature of weights and biases at the labels' rates."""
        known = targets >= 0
        rates = (torch.where(known, targets, 0).sum(dim=0) + 0.5) / (known.sum(dim=0) + 1)
        curvature = (known.sum(dim=0).clamp(min=1) / terms * rates * (1 - rates))[:, None]
        weights = curvature * self.lengths + l2 / terms
        return torch.cat([weights.flatten(), curvature.flatten()]).rsqrt().numpy()
