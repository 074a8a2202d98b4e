"""Decisions that compare each probability with a fitted threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from credibly import checks
from credibly.decide.base import Decision
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn

ALL, NONE = -1.0, 1.0
"""Thresholds that every probability exceeds, and that none does."""


class FittedThresholds(Decision):
    """A rule that selects labels whose probability exceeds ``thresholds``.

    Attributes:
        thresholds: one value per label, or a single one for all labels.
    """

    thresholds: Array
    fitted_on = "truth"

    def _sets(self, probabilities: Array) -> Array:
        if len(self.thresholds) not in (1, probabilities.shape[1]):
            raise checks.InputError(
                f"`probabilities` must have {len(self.thresholds)} columns, the labels the "
                f"thresholds were fitted on; got {probabilities.shape[1]}."
            )
        return probabilities > self.thresholds

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

    def to_module(self) -> nn.Module:
        self._require_fitted()
        from credibly.decide.torch_modules import Above

        return Above(self.thresholds.tolist())
