"""Draws of the simulation of guarantees; numpy only, because other libraries run on them too."""

from __future__ import annotations

import numpy as np

LABELS, ROWS, TRIALS = 20, 500, 500
LEVEL, PRECISION, DELTA = 0.9, 0.8, 0.1
SHARPNESS = 1.5
"""The probabilities are too sharp by this factor on log-odds: no guarantee may rely on them."""


def draw(rows: int, seed: int, *, zero_labels: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities and truth; about 30 % of the rows have no label, or none has none."""
    noise = np.random.default_rng(seed)
    drawn = 2 * rows if not zero_labels else rows
    centres = np.linspace(-3.0, -6.0, LABELS)
    log_odds = centres + 3.5 * noise.normal(size=(drawn, LABELS)) + noise.normal(size=(drawn, 1))
    truth = noise.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))
    probabilities = 1 / (1 + np.exp(-SHARPNESS * log_odds))
    if not zero_labels:
        kept = np.flatnonzero(truth.any(axis=1))[:rows]
        probabilities, truth = probabilities[kept], truth[kept]
    return probabilities, truth.astype(np.int8)
