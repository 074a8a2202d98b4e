"""The report's opening: what these probabilities are worth, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly import metrics
from credibly.predictions import Predictions
from credibly.types import Array

LEVELS = (0.8, 0.9, 0.7, 0.6, 0.5, 0.3, 0.2, 0.1)
ENOUGH = 50
_NOISE_ROWS = 20_000
_SURE = 3.0  # standard errors; with a hundred honest labels one is named wrongly every fourth time


@dataclass(frozen=True)
class Verdict:
    """Sentences for people, and the labels they name."""

    sentences: tuple[str, ...]
    too_high: tuple[str, ...]
    """Labels whose probabilities promise more than there is."""
    too_low: tuple[str, ...]
    """Labels that are there more often than their probabilities say."""


def verdict(predictions: Predictions) -> Verdict:
    """Judge one predictions file.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((2000, 3))
        >>> honest = Predictions.from_arrays(
        ...     probabilities=p, targets=rng.random((2000, 3)) < p, labels=["a", "b", "c"])
        >>> print(verdict(honest).sentences[0])
        When this model says 80 %, the label is there 79 % of the time (95 % band: 76 to 82 %).
    """
    if predictions.targets is None:
        expected = predictions.probabilities.sum(1, dtype=np.float64).mean()
        return Verdict(
            (
                "These predictions come without truth, so nothing can be said about how right "
                f"they are. They expect {expected:.2f} labels a row.",
            ),
            (),
            (),
        )
    p, y = predictions.probabilities, predictions.targets
    high, low = _biased(p, y, predictions.labels)
    calibrated = bool(predictions.metadata.get("calibrator"))
    spoken = [_at_a_level(p, y), _overall(p, y, calibrated), _labels(high, low)]
    return Verdict(tuple(filter(None, spoken)), high, low)


def _at_a_level(p: Array, y: Array) -> str:
    known = y >= 0
    for level in LEVELS:
        near = known & (np.abs(p - level) <= 0.05)
        count = int(near.sum())
        if count >= ENOUGH:
            present = float(y[near].sum())
            low, high = metrics.proportion_interval(present, count)
            return (
                f"When this model says {100 * level:.0f} %, the label is there "
                f"{100 * present / count:.0f} % of the time "
                f"(95 % band: {100 * low:.0f} to {100 * high:.0f} %)."
            )
    return "This model is hardly ever undecided: too few probabilities lie between 5 and 95 %."


def _overall(p: Array, y: Array, calibrated: bool) -> str:
    error = float(metrics.calibration_error(p, y, "ace", coding="unknown"))
    if np.isnan(error):
        return "There are too few rows to judge calibration."
    chance = float(
        metrics.calibration_noise(p[:_NOISE_ROWS], y[:_NOISE_ROWS], repeats=5, coding="unknown")
    )
    off = f"On average over probabilities of every size it is off by {100 * error:.1f} points"
    if error < max(0.03, 1.3 * chance):
        return f"{off}: well calibrated (exactly right ones would show {100 * chance:.1f} here)."
    word = "usable" if error < 0.08 else "badly calibrated"
    cure = "" if calibrated else " `credibly calibrate` on held-out rows would help."
    return f"{off}: {word} (exactly right ones would show {100 * chance:.1f} here).{cure}"


def _biased(p: Array, y: Array, labels: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels whose number of hits is too far from its expectation to be chance."""
    known = y >= 0
    gap = np.where(known, p - y, 0.0).sum(0, dtype=np.float64)
    spread = np.sqrt(np.where(known, p * (1 - p), 0.0).sum(0, dtype=np.float64))
    distance = gap / np.maximum(spread, 1e-9)
    order = np.argsort(-np.abs(distance), kind="stable")
    high = tuple(labels[t] for t in order if distance[t] > _SURE)
    low = tuple(labels[t] for t in order if distance[t] < -_SURE)
    return high, low


def _labels(high: tuple[str, ...], low: tuple[str, ...]) -> str:
    if not high and not low:
        return "No label stands out as untrustworthy."
    parts = []
    if high:
        parts.append(f"promises too much: {_listed(high)}")
    if low:
        parts.append(f"promises too little: {_listed(low)}")
    return "Labels to distrust: " + "; ".join(parts) + "."


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
