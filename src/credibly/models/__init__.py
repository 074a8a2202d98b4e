"""From inputs to scores: a standardising first layer, a backbone, and a linear head.

>>> import torch, credibly as cr
>>> model = cr.models.build("mlp", (4,), num_labels=3, hidden=8)
>>> model(torch.zeros(2, 4)).shape, model.head.bias.shape
(torch.Size([2, 3]), torch.Size([3]))
"""

from credibly.models._build import MODELS, build
from credibly.models._features import cache_features
from credibly.models._network import VIEWS, Head, Network, Scorer, Standardize
from credibly.models._text import TextNetwork, Tfidf, build_text

__all__ = [
    "MODELS",
    "VIEWS",
    "Head",
    "Network",
    "Scorer",
    "Standardize",
    "TextNetwork",
    "Tfidf",
    "build",
    "build_text",
    "cache_features",
]
