"""Say in plain words whether probabilities can be trusted."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

import numpy as np

from credibly import metrics
from credibly.app.views.biased_labels import biased_labels
from credibly.predictions import Predictions
from credibly.targets import Targets
from credibly.types import Array

LEVELS = (0.8, 0.9, 0.7, 0.6, 0.5, 0.3, 0.2, 0.1)
ENOUGH = 50
_NOISE_ROWS, _NOISE_CELLS = 500, 2**21
_TELLING = 0.05
"""Calibration is not judged where exactly right probabilities would show a larger gap than this."""
_CONTROLS = ("RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI")


Grade = Literal["good", "fair", "poor", "unknown"]
WORDS: dict[Grade, str] = {
    "good": "well calibrated",
    "fair": "usable with care",
    "poor": "not calibrated",
    "unknown": "cannot be judged",
}


@dataclass(frozen=True)
class Verdict:
    """Sentences for people, the labels that they name, and a grade.

    Attributes:
        sentences: the first one says what a probability of 80 % means.
        too_high: labels that are present less often than their probabilities say.
        too_low: labels that are present more often than their probabilities say.
        grade: the worst of three: the calibration error, the share of labels that are clearly off,
            and how many labels are expected against how many there are.
    """

    sentences: tuple[str, ...]
    too_high: tuple[str, ...]
    too_low: tuple[str, ...]
    grade: Grade = "unknown"

    @property
    def word(self) -> str:
        """Return the grade in words."""
        return WORDS[self.grade]


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
        When it says 80 %, the label is there 79 % of the time.
    """
    p, y = predictions.probabilities, predictions.targets
    if y is None or not (y >= 0).any():
        expected = p.sum(1, dtype=np.float64).mean() if len(p) else 0.0
        sentence = (
            "These predictions come without truth, so their accuracy cannot be judged. They expect "
            f"{expected:.3g} labels per row."
        )
        return Verdict((sentence,), (), ())
    high, low = biased_labels(p, y) if biased is None else biased
    too_high = tuple(predictions.labels[t] for t in high)
    too_low = tuple(predictions.labels[t] for t in low)
    calibrated = bool(predictions.metadata.get("calibrator"))
    level, overall = _overall(p, y, calibrated)
    count, counts = _counts(p, y)
    flagged = _flagged_grade(len(too_high) + len(too_low), len(predictions.labels))
    ranked = p if predictions.scores is None else predictions.scores
    sentences = (
        _at_a_level(p, y),
        overall,
        *([counts] if counts else []),
        _accuracy(ranked, p, y, average_precision if predictions.scores is None else None),
        _labels(too_high, too_low),
    )
    grades = (level, flagged, count)
    worst: Grade = "poor" if "poor" in grades else "fair" if "fair" in grades else "good"
    return Verdict(sentences, too_high, too_low, level if level == "unknown" else worst)


def _flagged_grade(flagged: int, labels: int) -> Grade:
    """Return the grade by the share of labels whose probabilities are clearly off."""
    share = flagged / max(labels, 1)
    return "good" if share <= 0.1 else "fair" if share <= 1 / 3 else "poor"


def _counts(p: Array, y: Array) -> tuple[Grade, str]:
    """Return the grade by expected against real labels, and a sentence where they differ."""
    known = y >= 0
    expected = float(np.where(known, p, 0).sum(dtype=np.float64))
    real = float(np.where(known, y, 0).sum(dtype=np.float64))
    if not real:
        return "good", ""
    off = abs(expected / real - 1)
    grade: Grade = "good" if off <= 0.1 else "fair" if off <= 0.25 else "poor"
    if grade == "good":
        return grade, ""
    return grade, f"It expects {expected:,.0f} labels where there are {real:,.0f}."


def _at_a_level(p: Array, y: Array) -> str:
    known = y >= 0
    for level in LEVELS:
        near = known & (np.abs(p - level) <= 0.05)
        count = int(near.sum())
        if count >= ENOUGH:
            present = float(y[near].sum())
            return (
                f"When it says {100 * level:.0f} %, the label is there "
                f"{100 * present / count:.0f} % of the time."
            )
    if int(known.sum()) < ENOUGH:
        return f"Only {int(known.sum())} labels are known: too few to say what 80 % means."
    return "It is hardly ever undecided: too few probabilities lie between 5 % and 95 %."


def _overall(p: Array, y: Array, calibrated: bool) -> tuple[Grade, str]:
    few = metrics.MIN_COUNT
    error = float(metrics.calibration_error(p, Targets(y), "ace", min_count=few))
    if np.isnan(error):
        return "unknown", (
            f"There are too few rows to judge calibration: no range of probabilities holds {few} "
            "known labels."
        )
    rows = min(len(p), max(_NOISE_ROWS, _NOISE_CELLS // max(1, p.shape[1])))
    truth = Targets(y[:rows])
    chance = float(metrics.calibration_noise(p[:rows], truth, repeats=5, min_count=few))
    chance *= (rows / len(p)) ** 0.5  # noise falls with the root of the number of rows
    off = f"Off by {100 * error:.1f} points on average; chance alone gives {100 * chance:.1f}."
    if chance > _TELLING and error < 2 * chance:
        return "unknown", f"{off} There are too few rows to tell whether it is calibrated."
    if error < max(0.03, 1.3 * chance):
        return "good", off
    cure = "" if calibrated else " Calibrate it on held-out rows."
    return "fair" if error < 0.08 else "poor", f"{off}{cure}"


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
        f"Its ranking is {word}: mAP is {100 * precision:.0f} %; a random order has "
        f"{100 * chance:.0f} %."
    )
    carries = (y >= 0.5).any(1)
    empty = float((p[carries] < 0.5).all(1).mean()) if carries.any() else 0.0
    if empty > 0.5:
        sentence += (
            f" At a threshold of 50 %, {100 * empty:.0f} % of the rows with a label get none."
        )
    return sentence


def _labels(high: tuple[str, ...], low: tuple[str, ...]) -> str:
    if not high and not low:
        return "No label is clearly overstated or understated."
    parts = []
    if high:
        parts.append(f"Overstated: {_listed(high)}.")
    if low:
        parts.append(f"Understated: {_listed(low)}.")
    return " ".join(parts)


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
