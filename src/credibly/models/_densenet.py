"""DenseNet for 32-pixel images, as the CIFAR experiments use it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DenseNet(nn.Module):
    """Three dense blocks of (depth − 4) / 3 layers; each layer adds ``growth`` channels.

    Huang et al. (2017), without bottleneck and compression: DenseNet (L = 40, k = 40) is
    ``densenet40-40``. Layers are BN, ReLU, 3×3 convolution; between blocks a 1×1 convolution and
    2×2 mean. The features are the mean over places after a last BN and ReLU.
    """

    def __init__(self, channels: int = 3, depth: int = 40, growth: int = 40) -> None:
        super().__init__()
        layers = (depth - 4) // 3
        width = 16
        stages: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for block in range(3):
            for _ in range(layers):
                stages.append(_Layer(width, growth))
                width += growth
            if block < 2:
                stages += [
                    *(nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
                    nn.Conv2d(width, width, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
        stages += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        self.stages = nn.Sequential(*stages)
        self.num_features = width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        return self.stages(images).mean(dim=(2, 3))


class _Layer(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.convolution = nn.Conv2d(width, growth, 3, padding=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([maps, self.convolution(torch.relu(self.norm(maps)))], dim=1)
