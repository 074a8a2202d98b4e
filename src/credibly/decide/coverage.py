"""Coverage: sets that hold the single true label with a given probability (conformal)."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np

from credibly import checks
from credibly.decide.base import Decision, matrix
from credibly.frames import aligned
from credibly.runtime import cumulative_scores, just_above, just_below
from credibly.targets import UNKNOWN, Coding, decode
from credibly.types import Array, JsonObject

Nonconformity = Literal["lac", "aps", "raps"]


class Coverage(Decision):
    r"""Select sets that hold the single true label of a row with probability ``level``.

    Split conformal prediction, for data with exactly one true label per row. Every label gets a
    nonconformity score. The quantile is the ⌈(n + 1) level⌉-th smallest score of the true labels of
    n held-out rows. A set holds the labels whose score is at most the quantile.

    - ``"lac"``: 1 − probability. The smallest sets on average; some may be empty.
    - ``"aps"``: the summed probability of all labels at least as probable (Romano, Sesia & Candès,
      2020), not randomised. Larger sets, with a coverage that varies less between easy and
      difficult rows.
    - ``"raps"``: the APS score plus ``penalty`` for each label beyond the first ``free_size``
      (Angelopoulos et al., 2021). Fewer very large sets.

    APS and RAPS sets always hold the most probable label, which can only add to the coverage.

    Args:
        level: 1 − α, in (0, 1).
        method: the nonconformity score, see above.
        penalty: of RAPS; at least 0.
        free_size: of RAPS; number of labels without a penalty.

    Attributes:
        quantile: the largest nonconformity score of a label in a set.
        num_rows: number of held-out rows with a known label.

    Example:
        >>> probabilities = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.3, 0.6, 0.1]])
        >>> decision = Coverage(0.5).fit(probabilities, np.array([0, 1, 1]))
        >>> decision.predict(probabilities).sum(axis=1)
        array([1, 0, 1])
    """

    name = "coverage"
    fitted_on = "truth"
    quantile: float
    num_rows: int
    _settings = ("level", "method", "penalty", "free_size")
    _fitted = ("quantile", "num_rows")

    def __init__(
        self,
        level: float = 0.9,
        method: Nonconformity = "lac",
        penalty: float = 0.01,
        free_size: int = 5,
    ) -> None:
        self.level = checks.fraction("level", level, low_open=True, high_open=True)
        self.method: Nonconformity = checks.choice("method", method, ("lac", "aps", "raps"))
        self.penalty = checks.at_least("penalty", penalty, 0)
        self.free_size = int(checks.at_least("free_size", free_size, 0))

    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        """Fit on held-out rows.

        Args:
            probabilities: (n, L).
            targets: class indices (n,), −1 where unknown; or (n, L) with a single 1 in each row
                (rows that are all unknown are left out).
            coding: how to read a matrix of only −1 and +1: ``"signed"`` or ``"unknown"``.
        """
        array = matrix(probabilities)
        targets = aligned(probabilities, targets, "probabilities")
        truth = _single_labels(targets, array.shape, coding)
        known = np.flatnonzero(truth >= 0)
        rank = math.ceil((len(known) + 1) * self.level * (1 - 1e-15))
        if rank > len(known):
            needed = math.ceil(1 / (1 - self.level) * (1 - 1e-12)) - 1
            raise checks.InputError(
                f"a coverage of {self.level:g} needs at least {needed} held-out rows with a known "
                f"label; got {len(known)}."
            )
        scores = self._nonconformity(array[known])[np.arange(len(known)), truth[known]]
        self.quantile = float(np.partition(scores, rank - 1)[rank - 1])
        self.num_rows = len(known)
        return self

    @property
    def statement(self) -> str:
        return (
            f"A new row's set holds its true label with a probability of at least {self.level:g} "
            "(over the draw of the fitted rows too), if every row has exactly one true label and "
            "is exchangeable with the fitted rows, which were used neither for training nor for "
            "tuning."
        )

    def _nonconformity(self, probabilities: Array) -> Array:
        """Return the nonconformity score of every label."""
        if self.method == "lac":
            return 1 - probabilities.astype(np.float64)
        return cumulative_scores(probabilities, self._penalty, self.free_size)

    @property
    def _penalty(self) -> float:
        return self.penalty if self.method == "raps" else 0.0

    def comparison(self) -> JsonObject:
        if self.method == "lac":
            return {"rule": "above", "thresholds": [just_below(float(1 - self.quantile))]}
        numbers = {"quantile": just_above(float(self.quantile)), "free_size": self.free_size}
        return {"rule": "up-to-sum", "penalty": self._penalty, **numbers}


def _single_labels(targets: Any, shape: tuple[int, ...], coding: Coding | None) -> Array:
    """Return class indices, −1 where unknown."""
    if targets is None:
        raise checks.InputError(
            "Coverage needs `targets`: it is fitted on rows whose true label is known."
        )
    truth = decode(targets, coding=coding, num_labels=shape[1])
    if truth.shape != shape:
        raise checks.InputError(
            f"`targets` must be class indices of shape ({shape[0]},) or a matrix of shape {shape}; "
            f"got {truth.shape}, {truth.dtype}."
        )
    count = (truth == 1).sum(axis=1)
    unknown = (truth == UNKNOWN).all(axis=1)
    wrong = np.flatnonzero(((count != 1) | ((truth != 1) & (truth > 0)).any(axis=1)) & ~unknown)
    if wrong.size:
        raise checks.InputError(
            f"Coverage needs exactly one true label per row; row {wrong[0]} has {count[wrong[0]]} "
            f"({wrong.size} such rows). For several labels per row use `AverageSize`."
        )
    return np.where(unknown, UNKNOWN, (truth == 1).argmax(axis=1))
