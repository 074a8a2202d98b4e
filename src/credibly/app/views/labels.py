"""Every label with the noise of its numbers, and which labels occur together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly import metrics
from credibly.app.views.biased_labels import biased_labels
from credibly.app.views.label_tables import (
    LabelSummary,
    label_diagrams,
    summarize_columns,
    summarize_diagrams,
)
from credibly.types import Array


@dataclass(frozen=True)
class AtlasRow:
    """One label of the atlas.

    Attributes:
        summary: its numbers.
        noise: the calibration error that exactly right probabilities would show on as many rows.
        flag: ``"too high"``, ``"too low"`` or empty: probabilities that are clearly off, under a
            false-discovery rate over all labels.
        diagram: its reliability diagram; None without truth.
    """

    summary: LabelSummary
    noise: float
    flag: str
    diagram: metrics.Reliability | None = None


def label_atlas(
    labels: list[str],
    probabilities: Array,
    targets: Array | None,
    *,
    biased: tuple[Array, Array] | None = None,
) -> list[AtlasRow]:
    """Return one row per label.

    Args:
        labels: names of the columns.
        probabilities: (rows, labels) in [0, 1].
        targets: decoded, same shape; −1 is unknown. None without truth.
        biased: what ``biased_labels`` returns for these, where it is known already.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((4000, 2))
        >>> y = (rng.random(p.shape) < p * [1, 0.7]).astype(int)
        >>> [(row.summary.label, row.flag) for row in label_atlas(["a", "b"], p, y)]
        [('a', ''), ('b', 'too high')]
    """
    if targets is None:
        summaries = summarize_columns(labels, probabilities, targets)
        return [AtlasRow(each, float("nan"), "") for each in summaries]
    diagram = label_diagrams(probabilities, targets)
    summaries = summarize_diagrams(labels, probabilities, targets, diagram)
    noise = calibration_floor(diagram.confidence, diagram.counts)
    found = biased_labels(probabilities, targets) if biased is None else biased
    high, low = (set(each.tolist()) for each in found)
    return [
        AtlasRow(
            each,
            float(noise[t]),
            "too high" if t in high else "too low" if t in low else "",
            _of_label(diagram, t),
        )
        for t, each in enumerate(summaries)
    ]


def _of_label(diagrams: metrics.Reliability, label: int) -> metrics.Reliability:
    names = ("counts", "confidence", "frequency", "lower", "upper")
    return metrics.Reliability(
        edges=diagrams.edges, **{name: getattr(diagrams, name)[label] for name in names}
    )


def calibration_floor(confidence: Array, counts: Array) -> Array:
    """Return the ACE that calibrated probabilities would show by chance, per label.

    A bin of n entries with mean probability c is off by √(2c(1 − c)/(πn)) on average, as the mean
    absolute value of a normal variable; the floor is the mean over the bins that count.

    Args:
        confidence, counts: (labels, bins) of reliability diagrams.
    """
    enough = counts >= metrics.MIN_COUNT
    chance = np.where(enough, np.nan_to_num(confidence), 0.0)
    each = np.sqrt(2 * chance * (1 - chance) / (np.pi * np.maximum(counts, 1)))
    number = enough.sum(-1)
    return np.where(number > 0, (each * enough).sum(-1) / np.maximum(number, 1), np.nan)


@dataclass(frozen=True)
class Pairs:
    """How often labels occur together: (labels, labels) over rows where both are known."""

    labels: list[str]
    expected: Array
    real: Array

    @property
    def deviation(self) -> Array:
        """Return real minus expected, in standard errors of a count as large as expected."""
        return (self.real - self.expected) / np.sqrt(np.maximum(self.expected, 1.0))


def label_pairs(labels: list[str], probabilities: Array, targets: Array) -> Pairs:
    """Return real and expected counts of pairs, if labels were independent given the row.

    Example:
        >>> p, y = np.full((100, 2), 0.5), np.repeat([[1, 1], [0, 0]], 50, axis=0)
        >>> found = label_pairs(["a", "b"], p, y)
        >>> float(found.expected[0, 1]), float(found.real[0, 1])
        (25.0, 50.0)
    """
    known = (targets == 0) | (targets == 1)
    p = np.where(known, probabilities, 0).astype(np.float64)
    y = (targets == 1).astype(np.float64)
    both = known.astype(np.float64)
    return Pairs(labels, p.T @ p, (y * both).T @ (y * both))
