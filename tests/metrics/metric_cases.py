"""Predictions that every metric must cope with, and metrics written in the plainest way."""

from __future__ import annotations

import numpy as np


def make_case(rows=60, labels=7, seed=0, ties=False, unknown=True, dtype=np.float64):
    """Zero-label rows, all-unknown rows, a label without positives and one never known."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-0.5, 1.5, (rows, labels))
    probabilities = 1 / (1 + np.exp(-log_odds))
    targets = (rng.random((rows, labels)) < probabilities).astype(np.int8)
    targets[:4] = 0
    if labels > 1:
        targets[:, 0] = 0
    if unknown:
        targets[rng.random((rows, labels)) < 0.1] = -1
        targets[:2] = 0
        targets[4:6] = -1
        targets[:, 1] = -1
    if ties:
        probabilities = np.round(probabilities, 1)
    return probabilities.astype(dtype), targets


CASES = {
    "plain": make_case(unknown=False),
    "ties": make_case(unknown=False, ties=True, seed=1),
    "unknown": make_case(seed=2),
    "unknown, ties": make_case(ties=True, seed=3),
    "one label": make_case(labels=1, unknown=False, seed=4),
    "many labels": make_case(rows=20, labels=130, ties=True, unknown=False, seed=5),
    "many labels, unknown": make_case(rows=20, labels=130, ties=True, seed=5),
    "float32": make_case(dtype=np.float32, seed=6),
}


def average_precision(scores, targets):
    """The definition, entry by entry."""
    known = targets >= 0
    scores, targets = scores[known], targets[known]
    present = scores[targets > 0]
    if not present.size:
        return np.nan
    return float(np.mean([(present >= s).sum() / (scores >= s).sum() for s in present]))


def bins_of(probabilities, bins):
    """Bin k holds k/bins ≤ p < (k+1)/bins; 1 is in the last."""
    edges = np.arange(bins + 1) / bins
    return np.minimum(np.searchsorted(edges, probabilities, "right") - 1, bins - 1)


def calibration_error(probabilities, targets, kind, bins, min_count=0):
    """The definition, bin by bin; ECE is over all bins that are not empty."""
    min_count = 0 if kind == "ece" else min_count
    known = targets >= 0
    p, y = probabilities[known].astype(np.float64), targets[known].astype(np.float64)
    place = bins_of(p, bins)
    kept = [k for k in range(bins) if (place == k).sum() >= max(min_count, 1)]
    gaps = np.array([abs(p[place == k].mean() - y[place == k].mean()) for k in kept])
    counts = np.array([(place == k).sum() for k in kept])
    if not kept:
        return np.nan
    return {
        "ece": (gaps * counts).sum() / counts.sum(),
        "ace": gaps.mean(),
        "mce": gaps.max(),
    }[kind]
