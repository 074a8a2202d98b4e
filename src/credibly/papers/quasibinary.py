"""Quasibinary Classifier for Images with Zero and Multiple Labels (Liao et al., 2021)."""

from __future__ import annotations

from typing import Any

from credibly.papers.protocol import AS_PRINTED, OURS, SGD, Preset

# The common protocol. Its "momentum 1e-4" is read as the weight decay.
_CIFAR: dict[str, Any] = {
    **SGD,
    **AS_PRINTED,
    "loss": "quasibinary",
    "learning_rate": 0.1,
    "schedule": "step",
    "milestones": (0.5, 0.75),
    "batch_size": 64,
    "epochs": 200,
}

PRESETS: dict[str, Preset] = {
    "quasibinary-cifar": Preset({**_CIFAR, "model": "resnet18-32"}),
    "quasibinary-cifar-vgg16": Preset({**_CIFAR, "model": "vgg16"}),
    "quasibinary-cifar-densenet": Preset({**_CIFAR, "model": "densenet40-12"}),
    "quasibinary-cifar-ours": Preset({**_CIFAR, **OURS, "model": "resnet18-32"}),
    # The multi-label part: VGG16, 20 epochs. Optimizer and rate are ours.
    "quasibinary-coco": Preset(
        {
            **_CIFAR,
            "model": "timm:vgg16",
            "weights": "pretrained",
            "image_size": 224,
            "learning_rate": 1e-3,
            "epochs": 20,
        }
    ),
}
