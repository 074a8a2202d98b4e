"""Other libraries, in the environment that `make test-frameworks` builds; skipped elsewhere."""

import importlib.util

import torch

# A torchvision that was not built for this torch lacks its own operators; declaring their
# signatures is enough to import it, and nothing here calls them.
if importlib.util.find_spec("torchvision") is not None:
    _OPERATORS = torch.library.Library("torchvision", "DEF")
    if not hasattr(torch.ops.torchvision, "nms"):
        _OPERATORS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _OPERATORS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
