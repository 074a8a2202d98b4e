"""Two-way Multi-Label Loss (Kobayashi, CVPR 2023)."""

from __future__ import annotations

from credibly.papers.protocol import PLAIN_START, Preset

PRESETS: dict[str, Preset] = {
    # The supplement prints no schedule; this is the public ASL script's, which it compares with:
    # Adam at 1e-4 in one cycle, averaged weights, 448 pixels.
    "twl": Preset(
        {
            "loss": "twl",
            "model": "timm:resnet50",
            "weights": "pretrained",
            **PLAIN_START,
            "optimizer": "adamw",
            "learning_rate": 1e-4,
            "weight_decay": 1e-4,
            "schedule": "onecycle",
            "warmup": 0.2,
            "ema": 0.9997,
            "batch_size": 128,
            "image_size": 448,
            "epochs": 40,
            "select": "map",
        }
    ),
    # The supplement's transfer protocol: L-BFGS, 45 weights from 1e-6 to 1e5. The paper reports
    # the best on test; here held-out rows choose.
    "twl-probe": Preset(
        {
            "loss": "twl",
            "model": "linear",
            "solver": "lbfgs",
            "sweep": "l2",
            "prior_bias": False,
        }
    ),
}
