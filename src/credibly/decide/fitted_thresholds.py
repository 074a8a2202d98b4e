"""Rules that compare each probability with a fitted threshold, and BestF, the simplest of them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from credibly import checks
from credibly.decide.base import Decision, with_truth
from credibly.runtime import just_below
from credibly.targets import Coding
from credibly.types import Array, JsonObject

ALL, NONE = -1.0, 1.0
"""Thresholds that every probability exceeds, and that none does."""


class FittedThresholds(Decision):
    """A rule that selects labels whose probability exceeds ``thresholds``.

    Attributes:
        thresholds: one value per label, or a single one for all labels.
    """

    thresholds: Array
    fitted_on = "truth"

    @property
    def selects_above(self) -> Array:
        return self.thresholds

    @property
    def always_selected(self) -> Array:
        return self._labels_with(self.thresholds < 0)

    @property
    def never_selected(self) -> Array:
        return self._labels_with(self.thresholds >= 1)

    def _labels_with(self, condition: Array) -> Array:
        return np.flatnonzero(condition) if len(self.thresholds) > 1 else np.empty(0, dtype=int)

    def comparison(self) -> JsonObject:
        return {"rule": "above", "thresholds": self.thresholds.tolist()}


class BestF(FittedThresholds):
    r"""Use, for each label, the threshold with the highest $F_\beta$ on the fitted rows.

    $F_\beta = (1+\beta^2)\,TP / (\beta^2 P + S)$ with $P$ positives and $S$ selected. The threshold
    lies midway between the last probability taken and the next one. Unknown targets are ignored;
    a soft target counts as a positive of that weight. A label without known positives has no $F$ to
    maximise and uses the threshold that is best for all labels pooled.

    Args:
        beta: above 0. A value above 1 weights recall more, a value below 1 precision.
        min_precision: only thresholds whose precision on the fitted rows is at least this are
            considered; a label without one is never selected. None: all are.

    Attributes:
        thresholds: one value per label.

    Example:
        >>> probabilities = np.array([[0.9, 0.4], [0.8, 0.3], [0.3, 0.2], [0.1, 0.6]])
        >>> targets = np.array([[1, 1], [0, 1], [1, 0], [0, 0]])
        >>> BestF().fit(probabilities, targets).thresholds.round(3)
        array([0.2 , 0.25])
    """

    name = "best-f"
    _settings = ("beta", "min_precision")
    _fitted = ("thresholds",)
    _since: ClassVar[JsonObject] = {"min_precision": None}

    def __init__(self, beta: float = 1.0, min_precision: float | None = None) -> None:
        self.beta = checks.positive("beta", beta)
        if min_precision is not None:
            checks.fraction("min_precision", min_precision, low_open=True)
        self.min_precision = None if min_precision is None else float(min_precision)

    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        array, truth = with_truth(probabilities, targets, "BestF", coding)
        known = truth >= 0
        if not (truth > 0).any():
            raise checks.InputError(
                f"BestF needs at least one known positive; got none in {array.shape[0]} rows × "
                f"{array.shape[1]} labels. Use `Threshold` or `AverageSize` instead."
            )
        self._pooled = self._best(array[known], truth[known])
        self.thresholds = np.array(
            [
                self._of_label(array[rows, label], truth[rows, label])
                for label, rows in enumerate(known.T)
            ]
        )
        return self

    def _of_label(self, probabilities: Array, targets: Array) -> float:
        if targets.sum() > 0:
            return self._best(probabilities, targets)
        # Without a positive nothing selected can be right, unless nothing is known at all.
        wrong = self.min_precision is not None and len(targets) > 0
        return NONE if wrong else self._pooled

    def _best(self, probabilities: Array, targets: Array) -> float:
        return _best_threshold(probabilities, targets, self.beta, self.min_precision or 0.0)

    @property
    def statement(self) -> str:
        least = ""
        if self.min_precision is not None:
            least = f" among thresholds with a precision of at least {self.min_precision:g}"
        return (
            f"Each label's F{self.beta:g} was the highest possible{least} on the fitted rows; new "
            "rows come close if they are drawn alike and the label had many known positives, "
            "without a guarantee."
        )


def _best_threshold(
    probabilities: Array, targets: Array, beta: float, min_precision: float
) -> float:
    """Return the threshold that labels must exceed; some target must be above 0."""
    positives = float(targets.sum())
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order].astype(np.float64)
    thresholds = just_below((ranked + np.append(ranked[1:], 0.0)) / 2)
    taken = len(ranked) - np.searchsorted(ranked[::-1], thresholds, side="right")
    hits = np.cumsum(targets[order], dtype=np.float64)[taken - 1]
    score = (1 + beta**2) * hits / (beta**2 * positives + taken)
    score[hits < min_precision * taken * (1 - 1e-12)] = -1.0
    best = int(score.argmax())
    return float(thresholds[best]) if score[best] >= 0 else NONE
