"""Threshold: every label with at least a given probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from credibly import checks
from credibly.decide._base import Decision
from credibly.targets import Coding
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class Threshold(Decision):
    """Select labels with a probability of at least ``threshold``; nothing to fit.

    With calibrated probabilities, ½ minimises the expected number of wrong labels. Where a false
    positive costs c and a false negative m, c/(c + m) minimises the expected cost.

    The threshold is compared in the precision of the probabilities: 0.7 in float32 reaches 0.7.

    Args:
        threshold: in [0, 1].

    Example:
        >>> import numpy as np
        >>> Threshold(0.5).predict(np.array([[0.2, 0.5, 0.9]]))
        array([[False,  True,  True]])
    """

    name = "threshold"
    _settings = ("threshold",)

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = checks.fraction("threshold", threshold)

    def fit(
        self, probabilities: Any = None, targets: Any = None, *, coding: Coding | None = None
    ) -> Self:
        return self

    @property
    def statement(self) -> str:
        return (
            f"Each label in a set is present with probability {self.threshold:g} or more, if the "
            "probabilities are calibrated; how many labels a set holds is not guaranteed."
        )

    def _sets(self, probabilities: Array) -> Array:
        return probabilities >= self.threshold

    def to_module(self) -> nn.Module:
        self._require_fitted()
        from credibly.decide._modules import AtLeast

        return AtLeast(self.threshold)
