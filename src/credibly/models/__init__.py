"""From inputs to scores: a standardising first layer, a backbone, and a linear head.

>>> import torch, credibly as cr
>>> model = cr.models.build("mlp", (4,), num_labels=3, hidden=8)
>>> model(torch.zeros(2, 4)).shape, model.head.bias.shape
(torch.Size([2, 3]), torch.Size([3]))
"""

from credibly.models.building import MODELS, build
from credibly.models.cached_features import cache_features
from credibly.models.network import (
    LIMIT,
    VIEWS,
    Head,
    Network,
    Scorer,
    Standardize,
    column_moments,
)
from credibly.models.stack import Stack
from credibly.models.text import TextNetwork, Tfidf, build_text
from credibly.models.tree_growing import Booster, BoostingOptions, ForestOptions, grow_forest
from credibly.models.trees import TREES, Trees

__all__ = [
    "LIMIT",
    "MODELS",
    "TREES",
    "VIEWS",
    "Booster",
    "BoostingOptions",
    "ForestOptions",
    "Head",
    "Network",
    "Scorer",
    "Stack",
    "Standardize",
    "TextNetwork",
    "Tfidf",
    "Trees",
    "build",
    "build_text",
    "cache_features",
    "column_moments",
    "grow_forest",
]
