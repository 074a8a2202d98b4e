"""What is trained for which K; settings are chosen by held-out average-K accuracy."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.calibrated import RATES
from benchmarks.claims.plan import Method

BUDGET: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 256}
CNN: dict[str, Any] = {"model": "cnn", "epochs": 16, "batch_size": 64, "learning_rate": 3e-3}
SETUPS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "tinyimagenet:tail": ({**BUDGET, "batch_size": 64}, (2, 3, 5, 10)),
    "cifar10h": (BUDGET, (2, 3, 5)),
    "tinyimagenet": ({**BUDGET, "epochs": 10}, (2, 3, 5, 10)),
}
TAIL = "tinyimagenet:tail"
BATCHES = (1, 4, 16, 64, 256)
ALPHAS = (0.01, 0.1, 0.3, 1, 3, 10, 100)
THREE = (1, 2, 3)
DEALT_ANEW = ("cifar10h@search", "tinyimagenet@search")
"""Held-out and test rows dealt from one heap: does a threshold carry over if nothing shifts?"""

VALIDATED = {
    "tinyimagenet:tail@search": (5, 3, (1e-3, 3e-3)),
    "cifar10h@search": (2, 1, (3e-3, 1e-3)),
}
"""Which head to read, asked of validation rows: K, and the α and rates that trials chose."""

TRIED_AT = 5
TRIED_AT_FOR = {"cifar10h": 2}
"""Sizes at which trials choose; with ten classes five are nearly always enough."""

AT_K = "average-k"
"""The held-out figure that chooses epochs and settings."""

DROPOUT = tuple({"dropout": value} for value in (0.2, 0.5, 0.7))

BY_SIZE: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "ce": ("softmax", DROPOUT),
    "an": ("an", DROPOUT),
    "epr": ("epr", tuple({"loss": f"epr(weight={value:g})"} for value in (0.005, 0.01, 0.1))),
    "role": ("role", DROPOUT),
    "topk": ("topk", tuple({"loss": f"topk(noise={value:g})"} for value in (0.2, 1, 3))),
    "avgk": ("avgk", tuple({"loss": f"avgk(alpha={value:g})"} for value in (0.3, 1, 3))),
}
"""Trained and stopped for one size: the loss, and what three further trials try."""

TAIL_CHOSE = {"ce": 1, "an": 1, "epr": 0, "role": 0, "topk": 2, "avgk": 2}
"""Which of the three ``tinyimagenet:tail`` preferred; the whole of it takes that over."""

DIGITS: dict[str, tuple[dict[str, Any], ...]] = {
    "ce": RATES,
    "topk": BY_SIZE["topk"][1],
    "avgk": tuple({"loss": f"avgk(alpha={value:g})"} for value in (0.1, 0.3, 1)),
}
"""End to end: what three trials of each try. With α = 1 the CNN learns nothing in these epochs."""

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
                "average_size": float(TRIED_AT_FOR.get(data, TRIED_AT)),
                "select": AT_K,
                "prior_bias": False,
            }
            rate = f"{name}, rate"
            found.append(Method(rate, data, data, settings, RATES, AT_K, seeds=()))
            if data == "tinyimagenet":  # what its tail chose
                own = own[TAIL_CHOSE[name] : TAIL_CHOSE[name] + 1]
            found.append(Method(f"{name}, own", data, data, {}, own, AT_K, rate, seeds=()))
            for size in sizes:
                at = {"average_size": float(size)}
                found.append(Method(f"{name}, K = {size}", data, data, at, like=f"{name}, own"))
        for name, loss in SHARED.items():
            settings = {**budget, "loss": loss, "prior_bias": True}
            found.append(Method(name, data, data, settings, RATES))
    for data, (size, alpha, rates) in VALIDATED.items():
        settings = {**SETUPS[data.partition("@")[0]][0], "average_size": float(size)}
        settings |= {"select": AT_K, "prior_bias": False}
        for (name, loss), rate in zip(
            (("ce", "softmax"), ("avgk", f"avgk(alpha={alpha})")), rates, strict=True
        ):
            own = {**settings, "loss": loss, "learning_rate": rate}
            found.append(Method(f"{name}, K = {size}", data, data, own))
    for data in DEALT_ANEW:
        settings = {**BUDGET, "loss": "softmax", "learning_rate": 3e-3}
        found.append(Method("ce", data, data, settings))
    for name, own in DIGITS.items():
        settings = {**CNN, "loss": BY_SIZE[name][0], "average_size": 2.0, "select": AT_K}
        settings["prior_bias"] = False
        found.append(Method(f"{name}, K = 2", "digits:one", "digits:one", settings, own, AT_K))
    return found + _batches_and_alphas()


def _batches_and_alphas() -> list[Method]:
    """The two-head loss at K = 5 on the tail: by batch size, rates tried anew, and by α."""
    budget, _ = SETUPS[TAIL]
    settings = {**budget, "loss": "avgk(alpha=3)", "average_size": 5.0, "select": AT_K}
    settings["prior_bias"] = False
    rates = ({"learning_rate": 1e-4}, *RATES)
    batches = [
        Method(
            f"avgk, batch {size}",
            TAIL,
            TAIL,
            {**settings, "batch_size": size},
            rates,
            AT_K,
            seeds=THREE,
        )
        for size in BATCHES
    ]
    alphas = [
        Method(
            f"avgk, α = {alpha}",
            TAIL,
            TAIL,
            {"loss": f"avgk(alpha={alpha})"},
            like="avgk, rate",
            seeds=THREE,
        )
        for alpha in ALPHAS
    ]
    return batches + alphas
