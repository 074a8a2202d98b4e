"""Let timm import a torchvision that was not built for this torch."""

import torch

# Such a torchvision lacks its own operators; declaring their signatures is enough to import it, and
# nothing here calls them.
_OPERATORS = torch.library.Library("torchvision", "DEF")
if not hasattr(torch.ops.torchvision, "nms"):
    _OPERATORS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _OPERATORS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
