"""Say whether probabilities can be trusted, where to begin and what to do next."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from credibly import metrics
from credibly.app.rendering import significant
from credibly.app.statistics.labels import LabelSummary, Pairs, label_atlas, label_lift
from credibly.arrays import to_numpy
from credibly.metrics.calibration import ReliabilityDiagram
from credibly.metrics.summaries import MIN_COUNT
from credibly.notebook import counted
from credibly.predictions import Predictions
from credibly.review.issues import fit_noise
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
        grade: the worst of three: the calibration error, the share of labels that are clearly off,
            and how many labels are expected against how many there are.
        error: the calibration error, ACE; NaN where it is unknown.
    """

    sentences: tuple[str, ...]
    grade: Grade = "unknown"
    error: float = float("nan")

    @property
    def word(self) -> str:
        """Return the grade in words."""
        return WORDS[self.grade]


def verdict(predictions: Predictions, atlas: list[LabelSummary]) -> Verdict:
    """Return what can be said of one prediction: calibration, accuracy, labels to distrust.

    Args:
        predictions: with truth.
        atlas: what ``label_atlas`` returns for these.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((2000, 3))
        >>> y = rng.random((2000, 3)) < p
        >>> honest = Predictions.from_arrays(probabilities=p, targets=y, labels=["a", "b", "c"])
        >>> print(verdict(honest, label_atlas(honest.labels, p, honest.targets)).sentences[0])
        When it says 80 %, the label is there 79 % of the time.
    """
    p, y = predictions.probabilities, predictions.targets
    assert y is not None, "only predictions with truth are judged"
    truth = Targets(y)
    error = float(metrics.calibration_error(p, truth, "ace", min_count=MIN_COUNT))
    level, overall = _overall(error, p, y, bool(predictions.metadata.get("calibrator")))
    count, counts = _counts(atlas)
    precision = np.array([row.average_precision for row in atlas])
    if predictions.scores is not None:
        precision = to_numpy(metrics.average_precision(predictions.scores, truth))
    off = _flagged(atlas)
    sentences = (
        _at_a_level(p, y),
        overall,
        *([counts] if counts else []),
        _accuracy(precision, atlas, p, y),
        _labels(off, len(atlas)),
    )
    grades = (level, graded(len(off) / max(len(atlas), 1), 0.1, 1 / 3), count)
    worst: Grade = "poor" if "poor" in grades else "fair" if "fair" in grades else "good"
    return Verdict(sentences, level if level == "unknown" else worst, error)


def graded(off: float, good: float, fair: float) -> Grade:
    """Return the grade by how far something is off, and up to which limits it is good or fair."""
    return "good" if off <= good else "fair" if off <= fair else "poor"


def _counts(rows: list[LabelSummary]) -> tuple[Grade, str]:
    """Return the grade by expected against real labels, and a sentence where they differ."""
    expected, real = _totals(rows)
    grade = graded(abs(expected / real - 1), 0.1, 0.25) if real else "good"
    words = f"It expects {expected:,.0f} labels where there are {real:,.0f}."
    return grade, "" if grade == "good" else words


def _totals(rows: list[LabelSummary]) -> tuple[float, float]:
    """Return how many labels are expected, and how many there are."""
    return sum(row.expected for row in rows), sum(row.present or 0.0 for row in rows)


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
    return "Too few probabilities lie between 5 % and 95 % to say what 80 % means."


def _overall(error: float, p: Array, y: Array, calibrated: bool) -> tuple[Grade, str]:
    if np.isnan(error):
        return "unknown", (
            "There are too few rows to judge calibration: no range of probabilities holds "
            f"{MIN_COUNT} known labels."
        )
    rows = min(len(p), max(_NOISE_ROWS, _NOISE_CELLS // max(1, p.shape[1])))
    truth = Targets(y[:rows])
    chance = float(metrics.calibration_noise(p[:rows], truth, repeats=5, min_count=MIN_COUNT))
    chance *= (rows / len(p)) ** 0.5  # noise falls with the root of the number of rows
    off = (
        f"Its probabilities are off by {100 * error:.1f} points on average; chance alone gives "
        f"{100 * chance:.1f}."
    )
    if chance > _TELLING and error < 2 * chance:
        return "unknown", f"{off} There are too few rows to tell whether it is calibrated."
    if error < max(0.03, 1.3 * chance):
        return "good", off
    cure = "" if calibrated else " Calibrate it on held-out rows."
    return "fair" if error < 0.08 else "poor", f"{off}{cure}"


def _accuracy(each: Array, rows: list[LabelSummary], p: Array, y: Array) -> str:
    """Return how well labels are ranked; ``each`` is their average precision."""
    scored = ~np.isnan(each)
    if not scored.any():
        return "No label is known to be present anywhere, so accuracy cannot be judged."
    rates = np.array([row.present_share for row in rows])
    precision, chance = float(each[scored].mean()), float(rates[scored].mean())
    gain = (precision - chance) / max(1 - chance, 1e-9)
    word = "weak" if gain < 0.3 else "fair" if gain < 0.6 else "good"
    sentence = (
        f"Its ranking is {word}: mAP is {100 * precision:.0f} %; a random order gets "
        f"{100 * chance:.0f} %."
    )
    carries = (y >= 0.5).any(1)
    empty = float((p[carries] < 0.5).all(1).mean()) if carries.any() else 0.0
    if empty > 0.5:
        sentence += (
            f" At a threshold of 50 %, {100 * empty:.0f} % of the rows with a label get no label."
        )
    return sentence


def _labels(off: list[LabelSummary], total: int) -> str:
    if not off:
        return "No label has probabilities that are clearly too high or too low."
    have = "has" if len(off) == 1 else "have"
    parts = [f"{len(off)} of {counted(total, 'label')} {have} probabilities that are clearly off."]
    for flag in ("too high", "too low"):
        names = [row.label for row in off if row.flag == flag]
        parts += [f"{flag.capitalize()}: {_listed(names)}."] if names else []
    return " ".join(parts)


def _listed(names: list[str]) -> str:
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


TO_FIX = 5
_FEW = 10
"""Fewer present rows than this say little about the ranking of a label."""


@dataclass(frozen=True)
class LabelToFix:
    """A label and what is wrong with it."""

    label: str
    why: str


@dataclass(frozen=True)
class NextStep:
    """What to do next: a sentence, the page of the web app that does it, and the command.

    Attributes:
        why: the sentence.
        page: path in the web app; empty where only the command does it.
        link: what the link to the page says.
        command: the same on the command line.
    """

    why: str
    page: str
    link: str
    command: str


def _flagged(rows: list[LabelSummary]) -> list[LabelSummary]:
    """Return labels that are clearly off, first those that are by the most rows."""
    off = [row for row in rows if row.flag]
    return sorted(off, key=lambda row: -abs((row.present or 0) - row.expected))


def labels_to_fix(rows: list[LabelSummary]) -> list[LabelToFix]:
    """Return labels whose probabilities are clearly off, largest gap first; then the worst ranked.

    A label counts as badly ranked if its average precision is less than half of the way from its
    rate to 1, and at least ten rows carry it.
    """
    off = _flagged(rows)[:TO_FIX]
    found = [
        LabelToFix(
            row.label,
            f"probabilities {row.flag}; expected in {row.expected:,.0f} of {row.rows:,} known "
            f"rows, present in {row.present or 0:,.0f}",
        )
        for row in off
    ]
    found += [
        LabelToFix(
            row.label,
            f"badly ranked: average precision is {100 * row.average_precision:.0f} %; a random "
            f"order gets {100 * row.present_share:.0f} %",
        )
        for row in sorted(rows, key=_gain)
        if row not in off and _gain(row) < 0.5
    ]
    return found[:TO_FIX]


def _gain(row: LabelSummary) -> float:
    """Return average precision as a share of the way from a random order to a perfect row."""
    if (row.present or 0) < _FEW or np.isnan(row.average_precision):
        return 1.0
    return (row.average_precision - row.present_share) / max(1 - row.present_share, 1e-9)


def next_steps(
    found: Verdict, calibrated: bool, path: str, size: float, wrong: int
) -> list[NextStep]:
    """Return what to do next with a file at ``path``, with commands to copy.

    Args:
        found: the verdict on its predictions.
        calibrated: whether they are calibrated already.
        path: of the file.
        size: labels per row.
        wrong: how many labels are probably wrong.
    """
    name = shlex.quote(path)
    are, them = ("label is", "it") if wrong == 1 else ("labels are", "them")
    steps = (
        (
            found.error >= 0.03 and not calibrated,
            "The probabilities are not calibrated. Calibrate them on a part of the rows.",
            ("/labels?sort=excess", "See the labels that are off"),
            f"credibly calibrate {name} --out calibrated.parquet",
        ),
        (
            wrong > 0,
            f"{wrong:,} {are} probably wrong. Review {them}.",
            ("/explore?kind=probably-wrong", "Review"),
            f"credibly review {name} --out queue.csv",
        ),
        (
            True,
            "Choose how a probability becomes a decision.",
            ("/decide", "Choose a rule"),
            f"credibly sets {name} --average-size {max(size, 0.1):.2g} --out sets.csv",
        ),
        (
            True,
            "Share what you see here as one HTML file.",
            ("", ""),
            f"credibly report {name} --out report.html",
        ),
    )
    return [NextStep(why, *page, command) for needed, why, page, command in steps if needed]


SMALL_MULTIPLES = 24
"""Labels drawn on the first page; a link leads to the others."""


@dataclass(frozen=True)
class ThresholdCurve:
    """What a single threshold for all labels returns, at 0 %, 1 %, … 100 %.

    Attributes:
        found: share of the present labels that are returned (recall).
        right: share of the returned labels that are present (precision); NaN where none is.
        size: labels returned per row, on average.
        empty: rows for which nothing is returned.
    """

    found: Array
    right: Array
    size: Array
    empty: Array

    def nearest(self, threshold: float) -> int:
        """Return the step of the curve that is nearest to a threshold."""
        return int(np.clip(round(100 * threshold), 0, len(self.found) - 1))

    def balanced(self) -> int:
        """Return the step with the highest F1, the harmonic mean of found and right."""
        right = np.nan_to_num(self.right)
        total = self.found + right
        return int(np.argmax(2 * self.found * right / np.where(total > 0, total, 1.0)))


def threshold_curve(probabilities: Array, targets: Array) -> ThresholdCurve:
    """Return what one threshold for all labels finds and how often it is right.

    Args:
        probabilities: (rows, labels) in [0, 1].
        targets: decoded, same shape; −1 is unknown and counts for the size alone.

    Example:
        >>> p, y = np.array([[0.9, 0.4], [0.2, 0.6]]), np.array([[1, 0], [0, 1]])
        >>> curve = threshold_curve(p, y)
        >>> float(curve.found[50]), float(curve.right[50]), float(curve.right[30])
        (1.0, 1.0, 0.6666666666666666)
    """
    grid = np.linspace(0, 1, 101).astype(probabilities.dtype)
    step = np.searchsorted(grid, probabilities, side="right") - 1
    known = targets >= 0
    present = np.where(known, targets, 0)

    def at_least(weights: Array) -> Array:
        counts = np.bincount(step.ravel(), weights=weights.ravel(), minlength=len(grid))
        return counts[::-1].cumsum()[::-1]

    hits, judged, returned = at_least(present), at_least(known), at_least(np.ones(step.shape))
    highest = np.bincount(step.max(axis=1, initial=-1) + 1, minlength=len(grid) + 1)
    with np.errstate(invalid="ignore"):
        return ThresholdCurve(
            found=hits / max(float(hits[0]), 1e-300),
            right=hits / judged,
            size=returned / max(len(step), 1),
            empty=highest.cumsum()[: len(grid)],
        )


@dataclass(frozen=True)
class Fact:
    """A number with the words under it."""

    value: str
    words: str


@dataclass(frozen=True)
class FirstLook:
    """Everything that the first page shows about one file.

    Attributes:
        verdict: what a probability means, and a grade.
        to_fix: at most five labels, and what is wrong with them.
        steps: what to do next.
        labels: every label, the most clearly off first; without truth, the most frequent.
        wrong: annotations that are probably wrong.
        facts: accuracy, labels per row, rows that are exactly right; none without truth.
        diagram, curve, lift: None without truth.
        ranking: place, precision, nDCG and recall, for files with the top labels of each row.
    """

    verdict: Verdict
    to_fix: list[LabelToFix]
    steps: list[NextStep]
    labels: list[LabelSummary]
    wrong: int
    facts: list[Fact]
    diagram: ReliabilityDiagram | None = None
    curve: ThresholdCurve | None = None
    lift: Pairs | None = None
    ranking: Sequence[tuple[int, float, float, float]] = ()


def first_look(
    predictions: Predictions,
    path: str,
    *,
    atlas: list[LabelSummary] | None = None,
    wrong: int | None = None,
) -> FirstLook:
    """Return what the first page shows.

    Args:
        predictions: all rows, or a sample of them.
        path: of the file, for the commands.
        atlas: what ``label_atlas`` returns for these, where it is known already.
        wrong: how many labels of all rows are probably wrong, where it is known already.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((3000, 2))
        >>> y = rng.random(p.shape) < p * [1, 0.6]
        >>> found = first_look(Predictions.from_arrays(
        ...     probabilities=p, targets=y, labels=["cat", "dog"]), "p.parquet")
        >>> found.to_fix[0].label, found.steps[0].command
        ('dog', 'credibly calibrate p.parquet --out calibrated.parquet')
    """
    p, y = predictions.probabilities, predictions.targets
    rows = label_atlas(predictions.labels, p, y) if atlas is None else atlas
    expected, real = (total / max(len(p), 1) for total in _totals(rows))
    if y is None or not (y >= 0).any():
        return _blind(rows, shlex.quote(path), float(p.sum(dtype=np.float64)) / max(len(p), 1))
    if wrong is None:
        wrong = int(fit_noise(predictions).probably_wrong(p, y).sum())
    judged = verdict(predictions, rows)
    calibrated = bool(predictions.metadata.get("calibrator"))
    return FirstLook(
        verdict=judged,
        to_fix=labels_to_fix(rows),
        steps=next_steps(judged, calibrated, path, real, wrong),
        labels=sorted(rows, key=lambda row: (not row.flag, -_off(row))),
        wrong=wrong,
        facts=[
            _ranking(rows),
            Fact(significant(real), f"labels per row ({significant(expected)} expected)"),
            _exact(p, y),
        ],
        diagram=metrics.reliability(p, Targets(y)),
        curve=threshold_curve(p, y),
        lift=label_lift(predictions.labels, y) if len(predictions.labels) > 1 else None,
    )


def _blind(rows: list[LabelSummary], name: str, expected: float) -> FirstLook:
    """Return what the first page shows without truth."""
    words = (
        "The file has no truth, so its probabilities cannot be judged.",
        f"It expects {significant(expected)} labels per row.",
    )
    why = "To judge these predictions, add the truth: a table of ids and labels."
    command = f"credibly import {name} --truth truth.csv --out with-truth.parquet"
    steps = [NextStep(why, "/import", "Import the truth", command)]
    return FirstLook(Verdict(words), [], steps, sorted(rows, key=lambda row: -row.expected), 0, [])


def _off(row: LabelSummary) -> float:
    """Return by how much more than chance a label's probabilities are off."""
    excess = row.error - row.noise
    return float(excess) if np.isfinite(excess) else -1.0


def _ranking(rows: list[LabelSummary]) -> Fact:
    judged = [row for row in rows if np.isfinite(row.average_precision)]
    if not judged:
        return Fact("–", "mAP: no label is known to be present")
    precision = float(np.mean([one.average_precision for one in judged]))
    chance = float(np.mean([one.present_share for one in judged]))
    return Fact(f"{100 * precision:.0f} %", f"mAP (random order: {100 * chance:.0f} %)")


def _exact(p: Array, y: Array) -> Fact:
    known = y >= 0
    judged = known.any(1)
    right = (((p >= 0.5) == (y >= 0.5)) | ~known).all(1)[judged]
    share = float(right.mean()) if right.size else 0.0
    return Fact(f"{100 * share:.0f} %", "rows exactly right at 50 %")
