"""Small backbones that train on a laptop: nothing, one hidden layer, a few convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from credibly.models.sparse_inputs import Dropout, Linear


def hidden_layer(inputs: int, hidden: int, dropout: float) -> nn.Module:
    """The backbone of ``mlp``: dropout on the inputs too, half as much as before the head."""
    return nn.Sequential(Dropout(dropout / 2), Linear(inputs, hidden), nn.ReLU())


class Convolutions(nn.Module):
    """Five 3×3 convolutions, the second and fourth halving the side; then mean and maximum.

    Group instead of batch normalisation: a row's scores do not depend on its batch, so one
    process and many give the same gradients. The maximum over places says whether a digit is
    there, wherever it is; the mean says how much of it.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for wide, stride in ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            wide *= width
            layers += [
                nn.Conv2d(channels, wide, 3, stride=stride, padding=1, bias=False),
                nn.GroupNorm(groups(wide), wide),
                nn.ReLU(inplace=True),
            ]
            channels = wide
        self.layers = nn.Sequential(*layers)
        self.num_features = 2 * channels

    def forward(self, images: Tensor) -> Tensor:
        maps = self.layers(images)
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)


def groups(channels: int) -> int:
    """How many groups to normalise in: of eight channels where that divides, else one."""
    return channels // 8 if channels % 8 == 0 else 1
