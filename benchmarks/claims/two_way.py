"""The two-way multi-label loss: ways, temperatures, margins, and the losses it is compared with."""

from __future__ import annotations

from benchmarks.claims.calibrated import SETUPS
from benchmarks.claims.plan import Method

CHOSEN = ("voc2012, linear", "scene", "yeast")
MAIN = {
    "bce": "bce",
    "softmax": "softmax",
    "asl, detached": "asl(detach_weight=true)",
    "warp": "warp",
    "rml": "rml",
    "two-way": "twl",
    "sample-wise": "twl(ways=samples)",
    "class-wise": "twl(ways=labels)",
}
TEMPERATURES = (0.5, 1, 2, 8)
MARGINS = (1, 2, 4)


def methods() -> list[Method]:
    """Epochs and settings are chosen by held-out mAP, which is what this paper reports."""
    found: list[Method] = []
    for setup in CHOSEN:
        data, budget, grid = SETUPS[setup]
        for name, loss in MAIN.items():
            settings = {**budget, "loss": loss, "prior_bias": False, "select": "map"}
            found.append(Method(name, setup, data, settings, grid, by="map"))
        sweep = {f"T = {value:g}": f"temperature_pos={value:g}" for value in TEMPERATURES}
        sweep |= {
            f"ε = {value:g}, T = 1": f"temperature_pos=1,margin={value:g}" for value in MARGINS
        }
        for name, arguments in sweep.items():
            settings = {"loss": f"twl({arguments})"}
            found.append(Method(name, setup, data, settings, like="two-way"))
    for name in ("bce", "softmax", "asl, detached", "two-way"):
        settings = {"loss": MAIN[name], "solver": "lbfgs", "sweep": "l2", "prior_bias": False}
        found.append(Method(name, "voc2012, L-BFGS probe", "voc2012", settings, seeds=(1, 2, 3)))
    return found
