"""A Two-Head Loss Function for Deep Average-K Classification (Garcin et al., 2023)."""

from __future__ import annotations

from typing import Any

from credibly.papers.protocol import AS_PRINTED, SGD, Preset

_CIFAR100: dict[str, Any] = {
    **SGD,
    **AS_PRINTED,
    "loss": "avgk+published",
    "nesterov": True,
    "learning_rate": 0.1,
    "schedule": "step",
    "milestones": (0.5, 0.75),
    "batch_size": 64,
    "epochs": 300,
    "average_size": 5.0,
    "select": "average-k",
}
# The paper takes the softmax of whatever head predicts (Algorithm 1, Eqs. 16–17), and builds ROLE
# on EPR as Eq. 8 prints it, a sum over labels.
_LOSSES = {
    "avgk": "avgk+published",
    "an": "an+published",
    "epr": "epr+published",
    "role": "role(reduction=rows)+published",
    "topk": "topk+published",
}
# 45,000 of the 50,000 training images train; 5,000 choose.
_HELD_OUT = {"calibration": 0.1}

PRESETS: dict[str, Preset] = {
    # DenseNet40-40 in both variants: plain (10.7 M parameters), and BC as the authors' code has it.
    "avgk-cifar100": Preset({**_CIFAR100, "model": "densenet40-40"}, _HELD_OUT, _LOSSES),
    "avgk-cifar100-bc": Preset({**_CIFAR100, "model": "densenet-bc40-40"}, _HELD_OUT, _LOSSES),
    # Pl@ntNet-300K: divided by ten at epoch 25 of 30.
    "avgk-plantnet": Preset(
        {
            **_CIFAR100,
            "model": "timm:resnet18",
            "weights": "pretrained",
            "learning_rate": 2e-3,
            "milestones": (25 / 30,),
            "batch_size": 32,
            "epochs": 30,
        },
        losses=_LOSSES,
    ),
}
