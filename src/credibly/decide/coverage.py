"""Coverage: sets that hold the one true label as often as asked (conformal prediction)."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np

from credibly import checks
from credibly.decide._base import Decision, _matrix
from credibly.targets import UNKNOWN, Coding, decode
from credibly.types import Array

Method = Literal["lac", "aps", "raps"]


class Coverage(Decision):
    r"""For data with exactly one true label a row: sets that hold it with probability ``level``.

    Split conformal prediction. Every label gets a strangeness; the cut is the ⌈(n + 1) level⌉-th
    smallest strangeness of the true labels on n held-out rows; a set holds the labels up to it.

    - ``"lac"``: 1 − probability. The smallest sets on average; some may be empty.
    - ``"aps"``: the summed probability of all labels at least as probable (Romano, Sesia & Candès,
      2020), not randomised. Larger sets, fairer to difficult rows.
    - ``"raps"``: the same plus ``penalty`` for each label beyond the first ``free_size``
      (Angelopoulos et al., 2021), which cuts long tails.

    APS and RAPS sets always hold the most probable label, which can only add to the coverage.

    Args:
        level: 1 − α, in (0, 1).
        method: see above.
        penalty, free_size: of RAPS.

    Attributes:
        cut: the largest strangeness that is let in.

    Example:
        >>> probabilities = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.3, 0.6, 0.1]])
        >>> decision = Coverage(0.5).fit(probabilities, np.array([0, 1, 1]))
        >>> decision.predict(probabilities).sum(axis=1)
        array([1, 0, 1])
    """

    name = "coverage"
    cut: float
    num_rows: int
    _settings = ("level", "method", "penalty", "free_size")
    _fitted = ("cut", "num_rows")

    def __init__(
        self,
        level: float = 0.9,
        method: Method = "lac",
        penalty: float = 0.01,
        free_size: int = 5,
    ) -> None:
        self.level = checks.fraction("level", level, low_open=True, high_open=True)
        self.method: Method = checks.choice("method", method, ("lac", "aps", "raps"))
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
        array = _matrix(probabilities)
        truth = _single_labels(targets, array.shape, coding)
        known = np.flatnonzero(truth >= 0)
        rank = math.ceil((len(known) + 1) * self.level * (1 - 1e-15))
        if rank > len(known):
            needed = math.ceil(1 / (1 - self.level) * (1 - 1e-12)) - 1
            raise checks.InputError(
                f"a coverage of {self.level:g} needs at least {needed} held-out rows with a known "
                f"label; got {len(known)}."
            )
        strangeness = self._strangeness(array[known])[np.arange(len(known)), truth[known]]
        self.cut = float(np.partition(strangeness, rank - 1)[rank - 1])
        self.num_rows = len(known)
        return self

    @property
    def promise(self) -> str:
        return (
            f"A new row's set holds its true label with a probability of at least {self.level:g} "
            "(over the draw of the fitted rows too), if every row has exactly one true label and "
            "is exchangeable with the fitted rows, which were used neither for training nor for "
            "tuning."
        )

    def _sets(self, probabilities: Array) -> Array:
        sets = self._strangeness(probabilities) <= self.cut
        if self.method != "lac" and probabilities.shape[1]:
            sets[np.arange(len(sets)), probabilities.argmax(axis=1)] = True
        return sets

    def _strangeness(self, probabilities: Array) -> Array:
        exact = probabilities.astype(np.float64)
        if self.method == "lac":
            return 1 - exact
        order = np.argsort(-exact, axis=1, kind="stable")
        summed = np.cumsum(np.take_along_axis(exact, order, axis=1), axis=1)
        if self.method == "raps":
            place = np.arange(1, exact.shape[1] + 1)
            summed += self.penalty * np.maximum(0, place - self.free_size)
        result = np.empty_like(summed)
        np.put_along_axis(result, order, summed, axis=1)
        return result


def _single_labels(targets: Any, shape: tuple[int, ...], coding: Coding | None) -> Array:
    """Class indices, −1 where unknown."""
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
            f"Coverage needs exactly one true label a row; row {wrong[0]} has {count[wrong[0]]} "
            f"({wrong.size} such rows). For several labels a row use `AverageSize`."
        )
    return np.where(unknown, UNKNOWN, (truth == 1).argmax(axis=1))
