"""Every method of every setup: images, EfficientNet-Lite0 from ImageNet weights, few epochs.

The same number of rates is tried for every method of a setup; the runs of seed 0 serve as trials,
and held-out rows choose.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claims.plan import Method

SEEDS = (0, 1, 2)
WEIGHTS = "$CREDIBLY_ASSETS/efficientnet-lite0.safetensors"
LITE: dict[str, Any] = {
    "model": "efficientnet-lite0",
    "weights": WEIGHTS,
    "epochs": 3,
    "batch_size": 32,
    "warmup": 0.1,
    "select": "last",
}
ADAMW = ({"learning_rate": 1.5e-3}, {"learning_rate": 4e-3})
SGD = ({"learning_rate": 0.02}, {"learning_rate": 0.1})
BY_SGD = {"optimizer": "sgd", "momentum": 0.9}

SETUPS: dict[str, tuple[str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "coco": ("coco80-images:2000", {**LITE, "image_size": 96}, ADAMW),
    "coco, sgd": ("coco80-images:2000", {**LITE, **BY_SGD, "image_size": 96}, SGD),
    "ucmerced": ("ucmerced-images", {**LITE, "image_size": 96}, ADAMW),
    "voc": ("voc2012-images:2000", {**LITE, "image_size": 112}, ADAMW),
    "ucmerced, sgd": ("ucmerced-images", {**LITE, **BY_SGD, "image_size": 96}, SGD),
}
"""By name: data, budget, and what the trials of every method try."""

LOSSES: dict[str, tuple[str, bool]] = {
    "bce": ("bce", False),
    "spa": ("spa", False),
    "bce, prior": ("bce", True),
    "spa, prior": ("spa", True),
    "twl": ("twl", False),
    "asl, detached": ("asl(gamma_pos=0,gamma_neg=4,margin=0.05,detach_weight=true)", False),
    "focal": ("focal", False),
}
"""The loss, and whether the last biases start at the labels' rates."""

FEWER = {"coco, sgd": ("bce", "spa", "bce, prior", "spa, prior")}
FEWER["ucmerced, sgd"] = FEWER["coco, sgd"]
LPR = "spa+lpr(weight=1)"


def methods() -> list[Method]:
    """Losses in each setup; LPR starts from the rate chosen for SPA."""
    found: list[Method] = []
    for setup, (data, budget, grid) in SETUPS.items():
        for name, (loss, prior) in LOSSES.items():
            if name in FEWER.get(setup, LOSSES):
                settings = {**budget, "loss": loss, "prior_bias": prior}
                found.append(_method(name, setup, data, settings, grid))
        if setup not in FEWER:
            found.append(_method("spa+lpr", setup, data, {"loss": LPR}, ({},), like="spa"))
    return found


def _method(
    name: str,
    setup: str,
    data: str,
    settings: dict[str, Any],
    grid: tuple[dict[str, Any], ...],
    like: str | None = None,
) -> Method:
    return Method(name, setup, data, settings, grid, like=like, seeds=SEEDS, own_trials=False)
