"""What predictions are worth, in plain words."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np

from credibly import metrics
from credibly.predictions import Predictions
from credibly.summaries._bias import biased_labels
from credibly.targets import Targets
from credibly.types import Array

LEVELS = (0.8, 0.9, 0.7, 0.6, 0.5, 0.3, 0.2, 0.1)
ENOUGH = 50
_NOISE_ROWS, _NOISE_CELLS = 500, 2**21
_TELLING = 0.05
"""Calibration is not judged where exactly right probabilities would show a larger gap than this."""
_CONTROLS = ("RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI")


@dataclass(frozen=True)
class Verdict:
    """Sentences for people, and the labels that they name."""

    sentences: tuple[str, ...]
    too_high: tuple[str, ...]
    """Labels that are present less often than their probabilities say."""
    too_low: tuple[str, ...]
    """Labels that are present more often than their probabilities say."""


def verdict(
    predictions: Predictions,
    *,
    biased: tuple[Array, Array] | None = None,
    average_precision: Array | None = None,
) -> Verdict:
    """Return what can be said of one prediction: calibration, accuracy, labels to distrust.

    Args:
        predictions: with truth, or without (then little can be said).
        biased: what ``biased_labels`` returns for these, where it is known already.
        average_precision: (labels,) of the probabilities, where it is known already.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((2000, 3))
        >>> honest = Predictions.from_arrays(
        ...     probabilities=p, targets=rng.random((2000, 3)) < p, labels=["a", "b", "c"])
        >>> print(verdict(honest).sentences[0])
        When this model says 80 %, the label is there 79 % of the time (95 % band: 76 to 82 %).
    """
    p, y = predictions.probabilities, predictions.targets
    if y is None or not (y >= 0).any():
        expected = p.sum(1, dtype=np.float64).mean() if len(p) else 0.0
        sentence = (
            "These predictions come without truth, so nothing can be said about how right they "
            f"are. They expect {expected:.2f} labels per row."
        )
        return Verdict((sentence,), (), ())
    high, low = biased_labels(p, y) if biased is None else biased
    too_high = tuple(predictions.labels[t] for t in high)
    too_low = tuple(predictions.labels[t] for t in low)
    calibrated = bool(predictions.metadata.get("calibrator"))
    ranked = p if predictions.scores is None else predictions.scores
    sentences = (
        _at_a_level(p, y),
        _overall(p, y, calibrated),
        _accuracy(ranked, p, y, average_precision if predictions.scores is None else None),
        _labels(too_high, too_low),
    )
    return Verdict(sentences, too_high, too_low)


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
    if int(known.sum()) < ENOUGH:
        return f"Only {int(known.sum())} entries have known truth: too few to say what 80 % means."
    return "This model is hardly ever undecided: too few probabilities lie between 5 and 95 %."


def _overall(p: Array, y: Array, calibrated: bool) -> str:
    few = metrics.MIN_COUNT
    error = float(metrics.calibration_error(p, Targets(y), "ace", min_count=few))
    if np.isnan(error):
        return (
            f"There are too few rows to judge calibration: no bin of probabilities has {few} known "
            "entries."
        )
    rows = min(len(p), max(_NOISE_ROWS, _NOISE_CELLS // max(1, p.shape[1])))
    truth = Targets(y[:rows])
    chance = float(metrics.calibration_noise(p[:rows], truth, repeats=5, min_count=few))
    chance *= (rows / len(p)) ** 0.5  # noise falls with the root of the number of rows
    off = f"On average over probabilities of every size it is off by {100 * error:.1f} points"
    right = f"exactly right ones would show {100 * chance:.1f} here"
    if chance > _TELLING and error < 2 * chance:
        return f"{off}, but {right}: there are too few rows to tell whether it is calibrated."
    if error < max(0.03, 1.3 * chance):
        return f"{off}: well calibrated ({right})."
    word = "usable" if error < 0.08 else "badly calibrated"
    cure = "" if calibrated else " Calibrating it on held-out rows would help (credibly calibrate)."
    return f"{off}: {word} ({right}).{cure}"


def _accuracy(ranked: Array, p: Array, y: Array, known_precision: Array | None) -> str:
    each: Array = (
        metrics.average_precision(ranked, Targets(y))
        if known_precision is None
        else known_precision
    )
    scored = ~np.isnan(each)
    if not scored.any():
        return "No label is known to be present anywhere, so accuracy cannot be judged."
    known = y >= 0
    rates = np.where(known, y, 0).sum(0, dtype=np.float64)[scored] / known.sum(0)[scored]
    precision, chance = float(each[scored].mean()), float(rates.mean())
    gain = (precision - chance) / max(1 - chance, 1e-9)
    word = "weak" if gain < 0.3 else "fair" if gain < 0.6 else "good"
    sentence = (
        f"Its ranking is {word}: mAP is {100 * precision:.0f} %, where a random order would have "
        f"{100 * chance:.0f} %."
    )
    carries = (y >= 0.5).any(1)
    empty = float((p[carries] < 0.5).all(1).mean()) if carries.any() else 0.0
    if empty > 0.5:
        sentence += f" At one half, {100 * empty:.0f} % of the rows that carry a label get none."
    return sentence


def _labels(high: tuple[str, ...], low: tuple[str, ...]) -> str:
    if not high and not low:
        return "No label is present clearly more or less often than its probabilities say."
    parts = []
    if high:
        parts.append(f"probabilities too high: {_listed(high)}")
    if low:
        parts.append(f"probabilities too low: {_listed(low)}")
    return "Labels to distrust: " + "; ".join(parts) + "."


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(_isolated, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _isolated(name: str) -> str:
    """Return a name that does not turn the text around it, if it is written from right to left.

    Controls of direction inside the name are left out: they could end the isolation.

    Example:
        >>> _isolated("dog"), _isolated("\u05d3") == "\u2068\u05d3\u2069", _isolated("a\u202eb")
        ('dog', True, 'ab')
    """
    kinds = [(letter, unicodedata.bidirectional(letter)) for letter in name]
    plain = "".join(letter for letter, kind in kinds if kind not in _CONTROLS)
    turns = any(kind in ("R", "AL", "AN") for _, kind in kinds)
    return f"\u2068{plain}\u2069" if turns else plain
