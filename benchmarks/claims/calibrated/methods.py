"""Every method of every setup: one budget and one number of trials for all of a setup."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.plan import Method

RATES = ({"learning_rate": 3e-4}, {"learning_rate": 1e-3}, {"learning_rate": 3e-3})
FAST = ({"learning_rate": 1e-3}, {"learning_rate": 3e-3}, {"learning_rate": 1e-2})
PROBE = (
    {"learning_rate": 1e-3, "dropout": 0.0},
    {"learning_rate": 1e-3, "dropout": 0.5},
    {"learning_rate": 3e-3, "dropout": 0.5},
)
MLP: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 20}
LINEAR: dict[str, Any] = {"model": "linear", "epochs": 20}

SETUPS: dict[str, tuple[str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "voc2012, linear": ("voc2012", LINEAR, PROBE),
    "voc2012, mlp": ("voc2012", MLP, RATES),
    "scene": ("scene", {**MLP, "batch_size": 32}, RATES),
    "yeast": ("yeast", {**MLP, "batch_size": 32}, RATES),
    "emotions": ("emotions", {**MLP, "batch_size": 16}, RATES),
    "medical": ("medical", {**LINEAR, "batch_size": 16, "epochs": 40}, FAST),
    "bibtex": ("bibtex", {**LINEAR, "batch_size": 64}, FAST),
    "synthetic": ("synthetic", LINEAR, FAST),
    "dependent": ("synthetic:dependent", LINEAR, FAST),
    "digits, cnn": ("digits", {"model": "cnn", "epochs": 20, "batch_size": 32}, FAST[1:2]),
}
"""By name: data, budget, and what the three trials of every method try."""

ZERO = {
    "bce": "bce",
    "focal": "focal",
    "asl": "asl",
    "asl, detached": "asl(detach_weight=true)",
    "twl": "twl",
    "spa": "spa",
    "quasibinary": "quasibinary",
    "softmax": "softmax",
}
PAIRS = ("spa", "bce", "focal", "asl")
PRIOR = ("bce", "asl, detached", "spa", "spa+lpr")
WEIGHTS = (0.3, 1, 3)
SHAPES = tuple(
    {"loss": f"spa(scale_neg={scale},slope_neg={slope},shift_neg={shift})"}
    for scale, slope, shift in ((5, 3, 1), (2, 3, 1), (5, 1, 1), (1, 1, 0), (10, 3, 1), (5, 3, 0))
)
"""The paper's shape of SPA, and five others; (1, 1, 0) is BCE."""

SWEPT = ("voc2012, linear", "scene", "yeast", "medical", "synthetic", "dependent")
SWEEP = (0.03, 0.1, 1, 3, 10)


def methods(setups: list[str] | None = None) -> list[Method]:
    """Every method of every setup: biases from zero, LPR with its weight chosen, prior biases."""
    found: list[Method] = []
    for setup in setups or list(SETUPS):
        data, budget, grid = SETUPS[setup]
        for name, loss in ZERO.items():
            settings = {**budget, "loss": loss, "prior_bias": False}
            found.append(Method(name, setup, data, settings, grid))
        for base in PAIRS:
            tried = WEIGHTS[: len(grid)]  # without trials the weight chosen everywhere else
            weights = tuple({"loss": f"{base}+lpr(weight={weight})"} for weight in tried)
            found.append(Method(f"{base}+lpr", setup, data, {}, weights, like=base))
        for base in PRIOR:
            settings = {"prior_bias": True}
            found.append(Method(f"{base}, prior", setup, data, settings, like=base))
        if setup in SWEPT:
            for weight in SWEEP:
                settings = {"loss": f"spa+lpr(weight={weight})"}
                found.append(Method(f"spa+lpr, λ = {weight}", setup, data, settings, like="spa"))
            found.append(Method("spa, tuned", setup, data, {}, SHAPES, like="spa"))
    return found
