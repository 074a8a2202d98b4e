"""DenseNet for 32-pixel images, as the CIFAR experiments use it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DenseNet(nn.Module):
    """Three dense blocks; each layer adds ``growth`` channels to all that came before.

    A plain layer is BN, ReLU, 3×3 convolution; between blocks stand a 1×1 convolution and a 2×2
    mean. With ``bottleneck`` (DenseNet-BC) a 1×1 convolution to 4 × ``growth`` channels precedes
    each 3×3 convolution, the network starts with 2 × ``growth`` channels, and the 1×1
    convolutions between blocks halve the number of channels. The features are the mean over
    places after a last BN and ReLU.

    Args:
        channels: number of input channels.
        depth: number of layers with weights, counting the classifier.
        growth: channels that each layer adds.
        bottleneck: build DenseNet-BC instead of the plain network.

    References:
        Huang et al., Densely Connected Convolutional Networks (2017), Table 2.
    """

    def __init__(
        self, channels: int = 3, depth: int = 40, growth: int = 40, *, bottleneck: bool = False
    ) -> None:
        super().__init__()
        layers = (depth - 4) // (6 if bottleneck else 3)
        width = 2 * growth if bottleneck else 16
        stages: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for block in range(3):
            for _ in range(layers):
                kind = _BottleneckLayer if bottleneck else _Layer
                stages.append(kind(width, growth))
                width += growth
            if block < 2:
                narrow = width // 2 if bottleneck else width
                stages += [
                    *(nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
                    nn.Conv2d(width, narrow, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
                width = narrow
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


class _BottleneckLayer(_Layer):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__(4 * growth, growth)
        self.first_norm = nn.BatchNorm2d(width)
        self.narrow = nn.Conv2d(width, 4 * growth, 1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        narrow = self.narrow(torch.relu(self.first_norm(maps)))
        return torch.cat([maps, self.convolution(torch.relu(self.norm(narrow)))], dim=1)
