"""VGG16 with batch normalisation, for images of 32 pixels and more."""

from __future__ import annotations

from torch import Tensor, nn

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3×3 convolutions before each 2×2 maximum."""


class VGG16(nn.Module):
    """Thirteen 3×3 convolutions in five stages, then the mean over places.

    The form that CIFAR experiments use: batch normalisation after each convolution, and one linear
    layer (the model's head) in place of the three fully connected layers, which need images of 224
    pixels.

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
