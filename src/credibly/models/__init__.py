"""From inputs to scores: a standardising first layer, a backbone, and a linear head.

>>> import torch, credibly as cr
>>> model = cr.models.build("mlp", (4,), num_labels=3, hidden=8)
>>> model(torch.zeros(2, 4)).shape, model.head.bias.shape
(torch.Size([2, 3]), torch.Size([3]))
"""

from credibly.models.cached_features import cache_features
from credibly.models.network import build

__all__ = ["build", "cache_features"]
