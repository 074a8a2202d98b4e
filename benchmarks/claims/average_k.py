"""The average-K loss: label sets of a given mean size from one observed label a row."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.calibrated import RATES
from benchmarks.claims.plan import Method

BUDGET: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 256}
CNN: dict[str, Any] = {"model": "cnn", "epochs": 16, "batch_size": 64, "learning_rate": 3e-3}
SETUPS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "tinyimagenet:tail": ({**BUDGET, "batch_size": 64}, (2, 3, 5, 10)),
    "cifar10h": (BUDGET, (2, 3, 5)),
    "tinyimagenet": (BUDGET, (2, 3, 5, 10)),
}
TRIED_AT = 5
DROPOUT = tuple({"dropout": value} for value in (0.2, 0.5, 0.7))

BY_SIZE: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "ce": ("softmax", DROPOUT),
    "an": ("an", DROPOUT),
    "epr": ("epr", tuple({"loss": f"epr(weight={value:g})"} for value in (0.01, 0.1, 1))),
    "role": ("role", DROPOUT),
    "topk": ("topk", tuple({"loss": f"topk(noise={value:g})"} for value in (0.2, 1, 3))),
    "avgk": ("avgk", tuple({"loss": f"avgk(alpha={value:g})"} for value in (0.3, 1, 3))),
}
"""Trained and stopped for one size: the loss, and what three further trials try."""

SHARED = {"spa": "spa", "quasibinary": "quasibinary"}
"""Trained without regard to size, thresholded for each."""


def methods() -> list[Method]:
    """Settings are chosen at one size, by held-out average-K accuracy, and kept for the others."""
    found: list[Method] = []
    for data, (budget, sizes) in SETUPS.items():
        for name, (loss, own) in BY_SIZE.items():
            settings = {
                **budget,
                "loss": loss,
                "average_size": float(TRIED_AT),
                "select": "average-k",
                "prior_bias": False,
            }
            rate = f"{name}, rate"
            found.append(Method(rate, data, data, settings, RATES, "average-k", seeds=()))
            found.append(Method(f"{name}, own", data, data, {}, own, "average-k", rate, seeds=()))
            for size in sizes:
                at = {"average_size": float(size)}
                found.append(Method(f"{name}, K = {size}", data, data, at, like=f"{name}, own"))
        for name, loss in SHARED.items():
            settings = {**budget, "loss": loss, "prior_bias": True}
            found.append(Method(name, data, data, settings, RATES))
    for name in ("ce", "topk", "avgk"):
        settings = {**CNN, "loss": BY_SIZE[name][0], "average_size": 2.0, "select": "average-k"}
        settings["prior_bias"] = False
        found.append(Method(f"{name}, K = 2", "digits:one", "digits:one", settings))
    return found
