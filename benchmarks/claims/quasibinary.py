"""The quasibinary classifier: one label as classes grow, no label, several, and its normalizer."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.calibrated import RATES
from benchmarks.claims.plan import Method

SMALL: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 64}
LARGE: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 256}
CNN: dict[str, Any] = {"model": "cnn", "epochs": 16, "batch_size": 64, "learning_rate": 3e-3}

GROWTH = {
    "tinyimagenet:10": SMALL,
    "tinyimagenet:50": SMALL,
    "tinyimagenet:100": LARGE,
    "tinyimagenet": LARGE,
    "cifar10h": LARGE,
}
ONE = {"binary": "bce", "softmax": "softmax", "quasibinary": "quasibinary"}
ZERO = {
    "binary": "bce",
    "softmax + uniform": "softmax(zero_label=uniform)",
    "softmax + max confidence": "softmax(zero_label=max_confidence)",
    "softmax + none class": "softmax(zero_label=none_class)",
    "quasibinary": "quasibinary",
    "spa": "spa",
}


def methods() -> list[Method]:
    """Growth of classes, chosen by held-out top-1 error; zero labels, chosen by held-out NLL."""
    found: list[Method] = []
    for data, budget in GROWTH.items():
        for name, loss in ONE.items():
            settings = {**budget, "loss": loss, "prior_bias": False}
            found.append(Method(name, data, data, settings, RATES, by="top1"))
        found.append(Method("binary, prior", data, data, {"prior_bias": True}, like="binary"))
    for data, budget, grid in (("tinyimagenet:120+80", LARGE, RATES), ("digits:6+4", CNN, ({},))):
        for name, loss in ZERO.items():
            settings = {**budget, "loss": loss, "prior_bias": False}
            found.append(Method(name, data, data, settings, grid))
        found.append(Method("binary, prior", data, data, {"prior_bias": True}, like="binary"))
    return found
