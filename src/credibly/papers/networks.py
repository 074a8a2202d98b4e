"""Networks that the papers train from scratch, for images of 32 pixels."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3×3 convolutions before each 2×2 maximum."""


class VGG16(nn.Module):
    """Thirteen 3×3 convolutions in five stages, then the mean over positions.

    This is the variant of CIFAR experiments: batch normalisation after each convolution, and one
    linear layer (the model's head) instead of the three fully connected layers, which need images
    of 224 pixels.

    References:
        Simonyan & Zisserman, Very Deep Convolutional Networks (2015), configuration D.
    """

    num_features = STAGES[-1][0]

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width, count in STAGES:
            for _ in range(count):
                layers += [
                    nn.Conv2d(channels, width, 3, padding=1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                nn.init.zeros_(module.bias)  # pyright: ignore[reportArgumentType]

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).mean(dim=(2, 3))


class SmallResNet(nn.Module):
    """A 3×3 stem, then stages of basic blocks; each stage but the first halves the side.

    ``resnet20-32`` is the CIFAR network of the paper: three stages of three blocks with 16, 32 and
    64 channels, and shortcuts without parameters. ``resnet18-32`` is the ImageNet network of 18
    layers (stages of two blocks with 64 to 512 channels, 1×1 convolutions as shortcuts) with the
    small stem and without the first pooling.

    Args:
        channels: number of input channels.
        widths: channels of each stage.
        blocks: residual blocks per stage.
        projection: shortcuts that change the shape are 1×1 convolutions; otherwise they take
            every second pixel, with zeros for the new channels.

    References:
        He et al., Deep Residual Learning for Image Recognition (2016), sections 4.1 and 4.2.
    """

    def __init__(
        self,
        channels: int = 3,
        widths: tuple[int, ...] = (16, 32, 64),
        blocks: int = 3,
        *,
        projection: bool = False,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        layers: list[nn.Module] = []
        width = widths[0]
        for stage, wider in enumerate(widths):
            for number in range(blocks):
                stride = 2 if stage > 0 and number == 0 else 1
                layers.append(_BasicBlock(width, wider, stride, projection))
                width = wider
        self.layers = nn.Sequential(*layers)
        self.num_features = width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        maps = torch.relu(self.norm(self.stem(images)))
        return self.layers(maps).mean(dim=(2, 3))


def resnet20(channels: int = 3) -> SmallResNet:
    """Build ``resnet20-32``."""
    return SmallResNet(channels)


def resnet18(channels: int = 3) -> SmallResNet:
    """Build ``resnet18-32``."""
    return SmallResNet(channels, (64, 128, 256, 512), 2, projection=True)


class _BasicBlock(nn.Module):
    """Two 3×3 convolutions, added to the input of the block."""

    def __init__(self, width: int, wider: int, stride: int, projection: bool) -> None:
        super().__init__()
        self.stride, self.new_channels = stride, wider - width
        self.conv1 = nn.Conv2d(width, wider, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(wider)
        self.conv2 = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(wider)
        changes = stride > 1 or wider != width
        self.shortcut: nn.Module | None = None
        if changes and projection:
            self.shortcut = nn.Sequential(
                nn.Conv2d(width, wider, 1, stride, bias=False), nn.BatchNorm2d(wider)
            )

    def forward(self, maps: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(maps)))
        inner = self.norm2(self.conv2(inner))
        return torch.relu(inner + self._skip(maps))

    def _skip(self, maps: Tensor) -> Tensor:
        if self.shortcut is not None:
            return self.shortcut(maps)
        if self.stride > 1:
            maps = maps[:, :, :: self.stride, :: self.stride]
        before = self.new_channels // 2
        after = self.new_channels - before
        return F.pad(maps, (0, 0, 0, 0, before, after)) if self.new_channels else maps


class DenseNet(nn.Module):
    """Three dense blocks, in which each layer adds ``growth`` channels to all earlier ones.

    A plain layer is BN, ReLU, 3×3 convolution. Blocks are connected by a 1×1 convolution and a 2×2
    mean. With ``bottleneck`` (DenseNet-BC), a 1×1 convolution to 4 × ``growth`` channels precedes
    each 3×3 convolution, the network starts with 2 × ``growth`` channels, and the 1×1 convolutions
    between blocks halve the number of channels. The features are the mean over positions after a
    last BN and ReLU.

    Args:
        channels: number of input channels.
        depth: number of layers with weights, including the classifier.
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
                kind = _BottleneckLayer if bottleneck else _DenseLayer
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


class _DenseLayer(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.convolution = nn.Conv2d(width, growth, 3, padding=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([maps, self.convolution(torch.relu(self.norm(maps)))], dim=1)


class _BottleneckLayer(_DenseLayer):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__(4 * growth, growth)
        self.first_norm = nn.BatchNorm2d(width)
        self.narrow = nn.Conv2d(width, 4 * growth, 1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        narrow = self.narrow(torch.relu(self.first_norm(maps)))
        return torch.cat([maps, self.convolution(torch.relu(self.norm(narrow)))], dim=1)


densenet40_12 = partial(DenseNet, growth=12)
densenet40_40 = DenseNet
densenet_bc40_40 = partial(DenseNet, bottleneck=True)
