"""BestF: one threshold per label, where its F score was highest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from credibly import checks
from credibly.decide._base import Decision, with_truth
from credibly.targets import Coding
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class BestF(Decision):
    r"""Use, for each label, the threshold with the highest $F_\beta$ on the fitted rows.

    $F_\beta = (1+\beta^2)\,TP / (\beta^2 P + S)$ with $P$ positives and $S$ selected. The threshold
    lies midway between the last probability taken and the next one. Unknown targets are ignored;
    a soft target counts as a positive of that weight. A label without known positives has no $F$ to
    maximise and uses the threshold that is best for all labels pooled.

    Args:
        beta: above 0. A value above 1 weights recall more, a value below 1 precision.

    Attributes:
        thresholds: one value per label.

    Example:
        >>> probabilities = np.array([[0.9, 0.4], [0.8, 0.3], [0.3, 0.2], [0.1, 0.6]])
        >>> targets = np.array([[1, 1], [0, 1], [1, 0], [0, 0]])
        >>> BestF().fit(probabilities, targets).thresholds
        array([0.2 , 0.25])
    """

    name = "best-f"
    thresholds: Array
    _settings = ("beta",)
    _fitted = ("thresholds",)

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = checks.positive("beta", beta)

    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        array, truth = with_truth(probabilities, targets, "BestF", coding)
        known = truth >= 0
        pooled = _best_threshold(array[known], truth[known], self.beta)
        if pooled is None:
            raise checks.InputError(
                f"BestF needs at least one known positive; got none in {array.shape[0]} rows × "
                f"{array.shape[1]} labels. Use `Threshold` or `AverageSize` instead."
            )
        found = (
            _best_threshold(array[rows, label], truth[rows, label], self.beta)
            for label, rows in enumerate(known.T)
        )
        self.thresholds = np.array([pooled if best is None else best for best in found])
        return self

    @property
    def statement(self) -> str:
        return (
            f"Each label's F{self.beta:g} was the highest possible on the fitted rows; new rows "
            "come close if they are drawn alike and the label had many known positives, without "
            "a guarantee."
        )

    def _sets(self, probabilities: Array) -> Array:
        if probabilities.shape[1] != len(self.thresholds):
            raise checks.InputError(
                f"`probabilities` must have {len(self.thresholds)} columns, the labels the "
                f"thresholds were fitted on; got {probabilities.shape[1]}."
            )
        return probabilities > self.thresholds

    def to_module(self) -> nn.Module:
        self._require_fitted()
        from credibly.decide._modules import Above

        return Above(self.thresholds.tolist())


def _best_threshold(probabilities: Array, targets: Array, beta: float) -> float | None:
    """Return the threshold that labels must exceed; None where there is no positive."""
    positives = float(targets.sum())
    if positives == 0:
        return None
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order].astype(np.float64)
    hits = np.cumsum(targets[order], dtype=np.float64)
    score = (1 + beta**2) * hits / (beta**2 * positives + np.arange(1, len(hits) + 1))
    after = np.append(ranked[1:], -1.0)
    score[ranked == after] = -1.0  # a threshold cannot fall between equal probabilities
    best = int(score.argmax())
    if best == len(ranked) - 1:
        return float(np.nextafter(ranked[best], -1.0)) if ranked[best] <= 0 else ranked[best] / 2
    middle = (ranked[best] + after[best]) / 2
    return float(middle if middle < ranked[best] else after[best])
