"""Small backbones that train on a laptop: nothing, one hidden layer, a few convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def hidden_layer(inputs: int, hidden: int, dropout: float) -> nn.Module:
    """The backbone of ``mlp``: dropout on the inputs too, half as much as before the head."""
    return nn.Sequential(nn.Dropout(dropout / 2), nn.Linear(inputs, hidden), nn.ReLU())


class Convolutions(nn.Module):
    """Three stages of two 3×3 convolutions, halving the side between them; then mean and max.

    Group instead of batch normalisation: a row's scores do not depend on its batch, so one
    process and many give the same gradients. The maximum over places says whether a digit is
    there, wherever it is; the mean says how much of it.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        stages = []
        for stage in range(3):
            wide = width << stage
            for _ in range(2):
                stages += [
                    nn.Conv2d(channels, wide, 3, padding=1, bias=False),
                    nn.GroupNorm(max(1, wide // 8), wide),
                    nn.ReLU(inplace=True),
                ]
                channels = wide
            if stage < 2:
                stages.append(nn.MaxPool2d(2, ceil_mode=True))
        self.stages = nn.Sequential(*stages)
        self.num_features = 2 * channels

    def forward(self, images: Tensor) -> Tensor:
        maps = self.stages(images)
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)
