"""What a network learned with one loss is worth for other labels (paper 002, linear probes).

A CNN is trained on scenes of the digits 0 to 4 and frozen; its features describe new scenes, whose
labels are the digits 5 to 9. ``digits:through-LOSS`` is the name of such rows, for a linear probe.
"""

from __future__ import annotations

import tempfile

import torch

from benchmarks.claims.sets import with_labels
from credibly import data, models
from credibly.data import Data
from credibly.models import Network
from credibly.train import Settings, fit

ROWS = 4000
OTHER_SCENES = 1000
"""Added to the seed of the scenes that the features describe."""

UNTRAINED = "nothing"


def features(loss: str, seed: int) -> Data:
    """New scenes through a network trained with ``loss``; ``nothing`` leaves it untrained."""
    scenes = with_labels(data.digits(ROWS, seed=seed), range(5))
    others = with_labels(data.digits(ROWS, seed=OTHER_SCENES + seed), range(5, 10))
    with tempfile.TemporaryDirectory(prefix="credibly-claims-") as folder:
        network = _network(scenes, loss, seed, f"{folder}/run")
        return models.cache_features(network, others, f"{folder}/features")


def _network(scenes: Data, loss: str, seed: int, folder: str) -> Network:
    if loss == UNTRAINED:
        torch.manual_seed(seed)
        return models.build("cnn", scenes)
    settings = Settings(
        loss=loss,
        model="cnn",
        epochs=16,
        batch_size=64,
        learning_rate=3e-3,
        prior_bias=False,
        seed=seed,
        split_seed=seed,
    )
    return fit(scenes, folder, settings).model
