"""Residual networks whose first layer keeps the resolution, for 32-pixel images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
        projection: shortcuts that change the shape are 1×1 convolutions; else every second pixel
            with zeros as the new channels.

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
    """Two 3×3 convolutions, added to the block's input."""

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
