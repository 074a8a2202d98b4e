"""What a network learned with one loss is worth for other labels (paper 002, linear probes).

A CNN is trained on scenes of the digits 0 to 4 and frozen; its features describe new scenes, whose
labels are the digits 5 to 9. ``digits:through-LOSS`` is the name of such rows, for a linear probe.
``flowers102:through-LOSS`` are flowers, 32 pixels wide, through a ResNet-20 trained on 50 classes
of CIFAR-100.
"""

from __future__ import annotations

import dataclasses
import tempfile
from typing import Any

import numpy as np
import torch

from benchmarks.claims.sets import with_labels
from credibly import data, models
from credibly.data import Data
from credibly.models.network import NetworkModule
from credibly.train import fit, recipe

ROWS = 4000
OTHER_SCENES = 1000
"""Added to the seed of the scenes that the features describe."""

UNTRAINED = "nothing"
TRANSFERRED = ("bce", "softmax", "twl", UNTRAINED)
SCENES: dict[str, Any] = {"model": "cnn", "epochs": 16, "batch_size": 64, "learning_rate": 3e-3}
CIFAR: dict[str, Any] = {**SCENES, "model": "resnet20-32", "epochs": 10, "select": "last"}
"""By AdamW, which does not mind the scale of a loss."""


def through_scenes(loss: str, seed: int) -> Data:
    """New scenes through a network trained with ``loss``; ``nothing`` leaves it untrained."""
    scenes = with_labels(data.digits(ROWS, seed=seed), range(5))
    others = with_labels(data.digits(ROWS, seed=OTHER_SCENES + seed), range(5, 10))
    return _features(scenes, others, loss, seed, SCENES)


def through_cifar(classes: Data, flowers: Data, loss: str, seed: int) -> Data:
    """Flowers through a network trained on CIFAR-100's classes with ``loss``."""
    assert flowers.images is not None
    rows, side = len(flowers.images), 32
    blocks = flowers.images.reshape(rows, side, -1, side, flowers.images.shape[1] // side, 3)
    small = blocks.mean(axis=(2, 4)).round().astype(np.uint8)
    others = dataclasses.replace(flowers, images=small)
    return _features(classes, others, loss, seed, CIFAR)


def _features(classes: Data, others: Data, loss: str, seed: int, budget: dict[str, Any]) -> Data:
    with tempfile.TemporaryDirectory(prefix="credibly-claims-") as folder:
        network = _network(classes, loss, seed, budget, f"{folder}/run")
        return models.cache_features(network, others, f"{folder}/features")


def _network(
    classes: Data, loss: str, seed: int, budget: dict[str, Any], folder: str
) -> NetworkModule:
    if loss == UNTRAINED:
        torch.manual_seed(seed)
        return models.build(budget["model"], classes)
    how = recipe(**budget, loss=loss, prior_bias=False, split_seed=seed)
    return fit(classes, how, folder=folder, seed=seed).model
