"""Say where to begin: the verdict, the labels to fix first, and what to do next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import numpy as np

from credibly import metrics
from credibly.app.views.labels import AtlasRow, label_atlas
from credibly.app.views.verdicts import Verdict, verdict
from credibly.predictions import Predictions
from credibly.review import probably_wrong
from credibly.targets import Targets
from credibly.types import Array

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


@dataclass(frozen=True)
class Overview:
    """What to know first about predictions."""

    verdict: Verdict
    labels: list[LabelToFix]
    steps: list[NextStep]


def overview(
    predictions: Predictions, path: str, *, atlas: list[AtlasRow] | None = None
) -> Overview:
    """Return the verdict, at most five labels to fix and what to do next.

    Args:
        predictions: all rows, or a sample of them.
        path: of the file, for the commands.
        atlas: what ``label_atlas`` returns for these, where it is known already.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((3000, 2))
        >>> y = rng.random(p.shape) < p * [1, 0.6]
        >>> found = overview(Predictions.from_arrays(
        ...     probabilities=p, targets=y, labels=["cat", "dog"]), "p.parquet")
        >>> found.labels[0].label, found.steps[0].command
        ('dog', 'credibly calibrate p.parquet --out calibrated.parquet')
    """
    p, y = predictions.probabilities, predictions.targets
    rows = label_atlas(predictions.labels, p, y) if atlas is None else atlas
    if y is None:
        spoken = verdict(predictions)
    else:
        precision = np.array([row.summary.average_precision for row in rows])
        spoken = verdict(predictions, biased=_flagged(rows), average_precision=precision)
    return Overview(spoken, labels_to_fix(rows), next_steps(predictions, path))


def _flagged(rows: list[AtlasRow]) -> tuple[Array, Array]:
    """Return the labels that are too high and too low, the largest excess first."""
    found = []
    for word in ("too high", "too low"):
        named = [t for t, row in enumerate(rows) if row.flag == word]
        named.sort(key=lambda t: -abs((rows[t].summary.present or 0) - rows[t].summary.expected))
        found.append(np.array(named, dtype=np.int64))
    return found[0], found[1]


def labels_to_fix(rows: list[AtlasRow]) -> list[LabelToFix]:
    """Return labels whose probabilities are clearly off, largest gap first; then the worst ranked.

    A label counts as badly ranked if its average precision is less than half of the way from its
    rate to 1, and at least ten rows carry it.
    """
    off = [row for row in rows if row.flag]
    off.sort(key=lambda row: -abs((row.summary.present or 0) - row.summary.expected))
    found = [LabelToFix(row.summary.label, _bias_words(row)) for row in off[:TO_FIX]]
    named = {each.label for each in found}
    weak = [row for row in rows if row.summary.label not in named and _gain(row) < 0.5]
    weak.sort(key=_gain)
    found += [LabelToFix(row.summary.label, _rank_words(row)) for row in weak]
    return found[:TO_FIX]


def _bias_words(row: AtlasRow) -> str:
    one = row.summary
    return (
        f"probabilities {row.flag}: {one.expected:,.0f} expected, {one.present or 0:,.0f} present "
        f"among {one.rows:,} known rows"
    )


def _rank_words(row: AtlasRow) -> str:
    one = row.summary
    return (
        f"badly ranked: average precision {one.average_precision:.2f} at a rate of "
        f"{one.present_share:.2f}"
    )


def _gain(row: AtlasRow) -> float:
    """Return average precision as a share of the way from a random order to a perfect one."""
    one = row.summary
    if (one.present or 0) < _FEW or np.isnan(one.average_precision):
        return 1.0
    return (one.average_precision - one.present_share) / max(1 - one.present_share, 1e-9)


def next_steps(predictions: Predictions, path: str) -> list[NextStep]:
    """Return what to do next, with commands to copy."""
    name = shlex.quote(path)
    if predictions.targets is None or not (predictions.targets >= 0).any():
        return [
            NextStep(
                "Add the truth to judge these predictions: a table of ids and labels.",
                "/bring",
                "Import the truth",
                f"credibly import {name} --truth truth.csv --out with-truth.parquet",
            )
        ]
    steps = []
    p, y = predictions.probabilities, predictions.targets
    error = metrics.calibration_error(p, Targets(y), "ace", min_count=metrics.MIN_COUNT)
    if not predictions.metadata.get("calibrator") and error >= 0.03:
        steps.append(
            NextStep(
                "The probabilities are not calibrated. Fit a map on a part of the rows.",
                "/labels?sort=excess",
                "See the labels that are off",
                f"credibly calibrate {name} --out calibrated.parquet",
            )
        )
    wrong = int(probably_wrong(p, y).sum())
    if wrong:
        are = "label is" if wrong == 1 else "labels are"
        steps.append(
            NextStep(
                f"{wrong:,} {are} probably wrong. Review {'it' if wrong == 1 else 'them'}.",
                "/errors?kind=doubtful",
                "Review",
                f"credibly review {name} --out queue.csv",
            )
        )
    size = max(float(np.where(y >= 0, y, 0).sum(1, dtype=np.float64).mean()), 0.1)
    steps.append(
        NextStep(
            "Choose from which probability on a label counts.",
            "/decide",
            "Choose a rule",
            f"credibly sets {name} --average-size {size:.2g} --out sets.csv",
        )
    )
    return steps
