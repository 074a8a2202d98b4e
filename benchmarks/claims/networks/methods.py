"""Every method of every setup: images, EfficientNet-Lite0 from ImageNet weights, few epochs.

The same number of rates is tried for every method of a setup; the runs of seed 0 serve as trials,
and held-out rows choose.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.claims.calibrated.methods import SHAPES
from benchmarks.claims.plan import Method
from benchmarks.claims.transfer import TRANSFERRED

SEEDS = (0, 1, 2)
MORE_SEEDS = (*SEEDS, 3, 4)
WEIGHTS = "$CREDIBLY_ASSETS/efficientnet-lite0.safetensors"
LITE: dict[str, Any] = {
    "model": "efficientnet-lite0",
    "weights": WEIGHTS,
    "head_start": False,
    "epochs": 3,
    "batch_size": 32,
    "warmup": 0.1,
    "select": "last",
}
SOLVED_FIRST = {"head_start": True, "fixed_norms": True, "learning_rate": 3e-4}
STARTED: dict[str, Any] = {**LITE, **SOLVED_FIRST}
"""Our own way: the last layer is solved first, and norms keep their statistics."""

FROZEN: dict[str, Any] = {
    **{"model": "efficientnet-lite0", "weights": WEIGHTS, "head_start": False, "frozen": True},
    **{"features": True, "solver": "lbfgs", "sweep": "l2"},
}
"""A linear model of the features of the weights, its penalty chosen by held-out rows."""

ADAMW = ({"learning_rate": 1.5e-3},)
EITHER = ({"learning_rate": 3e-4}, {"learning_rate": 1e-3})
SGD = ({"learning_rate": 0.3}, {"learning_rate": 1.5})
BY_SGD = {"optimizer": "sgd", "momentum": 0.9}

SETUPS: dict[str, tuple[str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "coco": ("coco80-images:1500", {**LITE, "image_size": 96}, ADAMW),
    "coco, sgd": ("coco80-images:1500", {**LITE, **BY_SGD, "image_size": 96}, SGD),
    "ucmerced": ("ucmerced-images", {**LITE, "image_size": 96}, ADAMW),
    "voc": ("voc2012-images:1500", {**LITE, "image_size": 112}, ADAMW),
    "ucmerced, sgd": ("ucmerced-images", {**LITE, **BY_SGD, "image_size": 96}, SGD),
    "coco, 64 px": ("coco80-images:1500", {**LITE, "image_size": 64}, ADAMW),
    "coco, 15 epochs": ("coco80-images:500", {**LITE, "image_size": 64, "epochs": 15}, ADAMW),
    "coco, 15 epochs, best": (
        "coco80-images:500",
        {**LITE, "image_size": 64, "epochs": 15, "select": "nll"},
        ADAMW,
    ),
    "coco, head start": ("coco80-images:1500", {**STARTED, "image_size": 96}, ({},)),
    "ucmerced, head start": ("ucmerced-images", {**STARTED, "image_size": 96}, ({},)),
    "voc, head start": ("voc2012-images:1500", {**STARTED, "image_size": 112}, ({},)),
    "coco, 15 epochs, head start": (
        "coco80-images:500",
        {**STARTED, "image_size": 64, "epochs": 15},
        ({},),
    ),
    "coco, head start, free norms": (
        "coco80-images:1500",
        {**STARTED, "fixed_norms": False, "image_size": 96},
        EITHER,
    ),
    "coco, fixed norms alone": (
        "coco80-images:1500",
        {**STARTED, "head_start": False, "image_size": 96},
        EITHER,
    ),
    "coco, frozen": ("coco80-images:1500", {**FROZEN, "image_size": 96}, ({},)),
    "ucmerced, frozen": ("ucmerced-images", {**FROZEN, "image_size": 96}, ({},)),
    "voc, frozen": ("voc2012-images:1500", {**FROZEN, "image_size": 112}, ({},)),
}
"""By name: data, budget, and what the trials of every method try."""

LOSSES: dict[str, tuple[str, bool]] = {
    "bce": ("bce", False),
    "spa": ("spa", False),
    "bce, prior": ("bce", True),
    "spa, prior": ("spa", True),
    "bce+twl, prior": ("bce+twl", True),
    "twl": ("twl", False),
    "asl, detached": ("asl(gamma_pos=0,gamma_neg=4,margin=0.05,detach_weight=true)", False),
    "spa+lpr": ("spa+lpr(weight=1)", False),
    "focal": ("focal", False),
}
"""The loss, and whether the last biases start at the labels' rates."""

RANKING = {
    "sample-wise": "twl(ways=samples)",
    "class-wise": "twl(ways=labels)",
    "T = 1": "twl(temperature_pos=1)",
    "ε = 1, T = 1": "twl(temperature_pos=1,margin=1)",
    "warp": "warp",
    "rml": "rml",
    "softmax": "softmax",
}
"""The two-way paper's ways, temperature, margin and rivals, by the names of its study."""

FROM_ZERO = {"quasibinary": "quasibinary", "softmax": "softmax", **RANKING}
RANKED = ("ucmerced", "coco")
"""What is trained from zero biases beside the others, and where."""

SHAPED = ({"loss": "spa"}, *SHAPES[1:])
"""SPA in the paper's shape, and in five others."""

SCENES: dict[str, Any] = {"model": "cnn", "batch_size": 32, "learning_rate": 3e-3}
LONGER = {"digits, 20 epochs": 20, "digits, 60 epochs": 60}
LONGER_LOSSES = ("bce", "spa", "bce, prior", "twl", "bce+twl, prior")
"""Does a loss only learn sooner? The embedded scenes and their small CNN, short and long."""

SWITCHES = ("coco, sgd", "ucmerced, sgd", "coco, 64 px", "coco, 15 epochs", "coco, 15 epochs, best")
STARTED_SETUPS = ("coco, head start", "ucmerced, head start", "voc, head start")
STARTED_LONG = "coco, 15 epochs, head start"
ONE_OF_BOTH = ("coco, head start, free norms", "coco, fixed norms alone")
FROZEN_SETUPS = ("coco, frozen", "ucmerced, frozen", "voc, frozen")
FEWER = {
    **dict.fromkeys(SWITCHES, ("bce", "spa", "bce, prior", "spa, prior")),
    **dict.fromkeys(STARTED_SETUPS, ("bce", "spa", "twl", "spa+lpr")),
    STARTED_LONG: ("bce", "spa", "twl"),
    **dict.fromkeys((*ONE_OF_BOTH, *FROZEN_SETUPS), ("bce, prior",)),
}
"""Setups that switch one thing on or off have these losses alone. Where the last layer is solved
first, its first biases do not matter."""

COMPARED = {
    **dict.fromkeys(("coco", "ucmerced", "voc"), ("bce", "twl", "asl, detached")),
    **dict.fromkeys(STARTED_SETUPS, ("bce",)),
    **dict.fromkeys(FROZEN_SETUPS, ("bce, prior",)),
}
"""What the study of the default compares it with, as published: five seeds, as on features."""

WITH_START = (*STARTED_SETUPS, STARTED_LONG)
BY_RULE = tuple(s for s in SETUPS if s not in (*WITH_START, *ONE_OF_BOTH, *FROZEN_SETUPS))
"""Setups that the verdicts rest on: fine-tuned from a random last layer, as papers do. Those with a
head start came later, and are judged by the same rules in a table of their own."""

LIKE = dict.fromkeys((name for name in LOSSES if name != "bce"), "bce")
LIKE_BY_SGD = {"bce, prior": "bce", "spa, prior": "spa"}
"""Whose rate a loss takes over. AdamW does not mind the scale of a loss, so one rate serves all;
by SGD each loss has trials of its own, whatever its first biases."""

CIFAR: dict[str, Any] = {
    "model": "resnet20-32",
    "epochs": 10,
    "batch_size": 64,
    "optimizer": "sgd",
    "momentum": 0.9,
    "warmup": 0.0,
    "schedule": "step",
    "milestones": (0.5, 0.75),
    "select": "last",
}
CIFAR_RATES = ({"learning_rate": 0.1}, {"learning_rate": 0.03})
"""The quasibinary paper's protocol (rate 0.1, divided by ten twice), a twentieth of its epochs. In
so few steps 0.1 is too much for some losses, so that each has a trial at 0.03 too."""

AS_WITH_FIFTY = {
    **dict.fromkeys(("binary", "binary, prior", "quasibinary, running"), 0.1),
    **dict.fromkeys(("softmax", "quasibinary"), 0.03),
}
"""With 100 classes each takes the rate that its trials with 50 chose, to save their time."""

CLASSES = (10, 50, 100)
CIFAR_SETUPS = tuple(f"cifar100:{classes}" for classes in CLASSES)
ONE_LABEL = {
    "binary": ("bce", False),
    "binary, prior": ("bce", True),
    "softmax": ("softmax", False),
    "quasibinary": ("quasibinary", False),
    "quasibinary, running": ("quasibinary(penalty=running)", False),
}

ENLARGED: dict[str, Any] = {**LITE, "image_size": 64, "learning_rate": 1.5e-3}
"""From ImageNet weights. Ten epochs from scratch leave a network too weak to tell rows without a
label, or to return sets of few classes."""

FROM_WEIGHTS = "cifar100:50, fine-tuned"
FROM_WEIGHTS_LOSSES = ("binary", "binary, prior", "softmax", "quasibinary")
SUMMED = {"binary, summed": False, "binary, prior, summed": True}
"""Binary losses summed over classes and not averaged: under SGD, the rate times their number, and
weight decay by it. By first biases at the rates."""

NO_LABEL = "cifar100:60+40"
NO_LABEL_LOSSES = {
    "binary": ("bce", False),
    "binary, prior": ("bce", True),
    "softmax + uniform": ("softmax(zero_label=uniform)", False),
    "softmax + max confidence": ("softmax(zero_label=max_confidence)", False),
    "quasibinary": ("quasibinary", False),
}
"""Rows of two classes in every five have no label."""

THROUGH = "flowers102, transfer"
"""Linear probes for flowers on networks trained on CIFAR-100 and frozen."""

FLOWERS = "flowers102:tail"
FLOWERS_SIZE = 5
FLOWERS_SIZES = (2, 3, 5, 10)
SETS_BUDGET: dict[str, Any] = {
    **ENLARGED,
    "average_size": float(FLOWERS_SIZE),
    "prior_bias": False,
}
WITH_A_BUDGET: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "ce": ("softmax", ({"dropout": 0.0}, {"dropout": 0.2})),
    "avgk": ("avgk", ({"loss": "avgk(alpha=0.1)"}, {"loss": "avgk(alpha=1)"})),
    "an": ("an", ({"dropout": 0.0}, {"dropout": 0.2})),
    "epr": ("epr", ({"loss": "epr(weight=0.01)"}, {"loss": "epr(weight=0.1)"})),
    "topk": ("topk", ({"loss": "topk(noise=0.2)"}, {"loss": "topk(noise=1)"})),
    "role": ("role", ({"dropout": 0.0}, {"dropout": 0.2})),
}
"""Losses for sets of an average size, and what two trials of each try."""

WITHOUT_SIZE = ("ce", "an")
"""Losses that do not know the size: one network serves all of them."""

LONG_TAIL = "flowers102:tail, 12 epochs"
LONG_LOSSES = ("ce", "avgk")
STARTED_TAIL = "flowers102:tail, head start"
CIFAR_SETS = "cifar100:50, sets"
SETS_SETUPS = {
    FLOWERS: FLOWERS_SIZES,
    **dict.fromkeys((LONG_TAIL, STARTED_TAIL, CIFAR_SETS), (FLOWERS_SIZE,)),
}
"""Where sets are made, and the sizes that losses are trained for."""

HEADS: dict[str, Any] = {"model": "mlp", "hidden": 512, "epochs": 6, "batch_size": 256}
FEATURES = "coco80-features"
"""Heads on frozen features of all of COCO."""


def methods() -> list[Method]:
    """Losses in each setup; those of ``LIKE`` take over the rate of another."""
    found: list[Method] = []
    for setup, (data, budget, grid) in SETUPS.items():
        for name, (loss, prior) in LOSSES.items():
            if name not in FEWER.get(setup, LOSSES):
                continue
            like = LIKE_BY_SGD if "optimizer" in budget else LIKE
            settings: dict[str, Any] = {"loss": loss, "prior_bias": prior}
            if name in like and like[name] in FEWER.get(setup, LOSSES):
                found.append(_method(name, setup, data, settings, ({},), like=like[name]))
            else:
                found.append(_method(name, setup, data, {**budget, **settings}, grid))
    for setup in RANKED:
        for name, loss in FROM_ZERO.items():
            settings = {"loss": loss, "prior_bias": False}
            data = SETUPS[setup][0]
            found.append(_method(name, setup, data, settings, ({},), like="bce"))
        found.append(_method("spa, tuned", setup, SETUPS[setup][0], {}, SHAPED, like="spa"))
    for setup, epochs in LONGER.items():
        for name in LONGER_LOSSES:
            loss, prior = LOSSES[name]
            settings = {**SCENES, "epochs": epochs, "loss": loss, "prior_bias": prior}
            method = _method(name, setup, "digits", settings, ({},))
            found.append(dataclasses.replace(method, seeds=(1, 2, 3)))
    for data in CIFAR_SETUPS:
        for name, (loss, prior) in ONE_LABEL.items():
            settings = {**CIFAR, "loss": loss, "prior_bias": prior}
            grid = CIFAR_RATES
            if data == CIFAR_SETUPS[-1]:
                grid = ({"learning_rate": AS_WITH_FIFTY[name]},)
            found.append(_method(name, data, data, settings, grid, by="top1"))
    for data, classes in zip(CIFAR_SETUPS[:-1], CLASSES, strict=False):
        grid = tuple({"learning_rate": classes * rate["learning_rate"]} for rate in CIFAR_RATES)
        for name, prior in SUMMED.items():
            settings = {**CIFAR, "weight_decay": 1e-4 / classes, "loss": "bce", "prior_bias": prior}
            found.append(_method(name, data, data, settings, grid, by="top1"))
    for name in FROM_WEIGHTS_LOSSES:
        loss, prior = ONE_LABEL[name]
        settings = {**ENLARGED, "loss": loss, "prior_bias": prior}
        found.append(_method(name, FROM_WEIGHTS, "cifar100:50", settings))
    settings = {**ENLARGED, **SOLVED_FIRST, "loss": "softmax", "prior_bias": False}
    found.append(_method("softmax, head start", FROM_WEIGHTS, "cifar100:50", settings))
    for name, (loss, prior) in NO_LABEL_LOSSES.items():
        settings = {**ENLARGED, "loss": loss, "prior_bias": prior}
        found.append(_method(name, NO_LABEL, NO_LABEL, settings))
    found += _with_a_budget()
    probe = {"loss": "softmax", "model": "linear", "solver": "lbfgs", "sweep": "l2"}
    for loss in TRANSFERRED:
        found.append(_method(loss, THROUGH, f"flowers102:through-{loss}", probe, ({},)))
    return found


def _with_a_budget() -> list[Method]:
    """Losses for sets; at other sizes with what the trials of the first size chose."""
    found = []
    setups = {
        FLOWERS: (FLOWERS, {**SETS_BUDGET, "epochs": 4}, tuple(WITH_A_BUDGET)),
        LONG_TAIL: (FLOWERS, {**SETS_BUDGET, "epochs": 12}, LONG_LOSSES),
        STARTED_TAIL: (FLOWERS, {**SETS_BUDGET, **SOLVED_FIRST, "epochs": 4}, ("ce",)),
        CIFAR_SETS: ("cifar100:50", SETS_BUDGET, tuple(WITH_A_BUDGET)),
    }
    for setup, (data, budget, losses) in setups.items():
        for name in losses:
            loss, grid = WITH_A_BUDGET[name]
            first = f"{name}, K = {FLOWERS_SIZE}"
            settings = {**budget, "loss": loss}
            found.append(_method(first, setup, data, settings, grid, by="average-k"))
            for size in SETS_SETUPS[setup]:
                if size != FLOWERS_SIZE:
                    own = {} if name in WITHOUT_SIZE else {"average_size": float(size)}
                    found.append(_method(f"{name}, K = {size}", setup, data, own, like=first))
    return found


def heads() -> list[Method]:
    """The same losses as heads on frozen features of all of COCO, five seeds."""
    grid = ({"learning_rate": 1e-3}, {"learning_rate": 3e-3})
    return [
        Method(
            name,
            FEATURES,
            FEATURES,
            {**HEADS, "loss": loss, "prior_bias": prior},
            grid,
            seeds=(0, 1, 2, 3, 4),
            own_trials=False,
        )
        for name, (loss, prior) in LOSSES.items()
    ]


def _method(
    name: str,
    setup: str,
    data: str,
    settings: dict[str, Any],
    grid: tuple[dict[str, Any], ...] = ({},),
    like: str | None = None,
    by: str = "nll",
) -> Method:
    seeds = MORE_SEEDS if name in COMPARED.get(setup, ()) else SEEDS
    return Method(name, setup, data, settings, grid, by, like, seeds=seeds, own_trials=False)
