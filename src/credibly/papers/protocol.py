"""What the papers' protocols have in common: the type, and settings that several share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A training protocol: what its paper says, and no more.

    Where a paper is silent the value is ours; docs/guide/training.md has the sentences of the
    papers beside the settings. ``-ours`` variants add what this package adds to any run: biases
    that start at the labels' rates, and a calibrator.

    Attributes:
        settings: fields of ``cr.train.Settings``.
        data: options of ``cr.data.load``.
        losses: what a loss's bare name stands for in the tables of the paper.
    """

    settings: Mapping[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=dict)

    def loss(self, name: str) -> str:
        """Return the loss that a name stands for under this protocol."""
        return self.losses.get(name, name)


# None of the papers mentions biases set to rates, a last layer solved first, batch norms that keep
# their statistics, or a calibrator after training.
PLAIN_START: dict[str, Any] = {"prior_bias": False, "head_start": False, "fixed_norms": False}
AS_PRINTED: dict[str, Any] = {**PLAIN_START, "calibrate": "none"}
OURS: dict[str, Any] = {
    "prior_bias": True,
    "head_start": None,  # as the default decides
    "fixed_norms": None,
    "calibrate": "affine",
}

SGD: dict[str, Any] = {
    "optimizer": "sgd",
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "warmup": 0.0,
}
