"""TopK: a fixed number of labels per row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from credibly import checks
from credibly.decide.base import Decision
from credibly.decide.rounding import just_above, just_below
from credibly.targets import Coding
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class TopK(Decision):
    """Select the ``k`` most probable labels of each row; of equal ones, those that come first.

    Probabilities that differ by no more than rounding in float32 are equal.

    Args:
        k: at least 1, at most the number of labels.

    Example:
        >>> TopK(2).predict(np.array([[0.2, 0.5, 0.2]]))
        array([[ True,  True, False]])
    """

    name = "top-k"
    fitted_on = "nothing"
    _settings = ("k",)

    def __init__(self, k: int) -> None:
        if k != int(k) or k < 1:
            raise checks.InputError(f"`k` must be a whole number of at least 1; got {k!r}.")
        self.k = int(k)

    def fit(
        self, probabilities: Any = None, targets: Any = None, *, coding: Coding | None = None
    ) -> Self:
        return self

    @property
    def statement(self) -> str:
        labels = "1 label" if self.k == 1 else f"{self.k} labels"
        return f"Every set holds exactly {labels}; whether they are right is not guaranteed."

    def _sets(self, probabilities: Array) -> Array:
        num_labels = probabilities.shape[1]
        if self.k > num_labels:
            raise checks.InputError(
                f"`k` must be at most the number of labels, {num_labels}; got {self.k}."
            )
        last = num_labels - self.k
        lowest = np.partition(probabilities, last, axis=1)[:, last : last + 1].astype(np.float64)
        above = probabilities > just_above(lowest)
        tied = (probabilities > just_below(lowest)) & ~above
        free = self.k - above.sum(axis=1, keepdims=True)
        return above | (tied & (np.cumsum(tied, axis=1) <= free))

    def to_module(self) -> nn.Module:
        from credibly.decide.torch_modules import MostProbable

        return MostProbable(self.k)
