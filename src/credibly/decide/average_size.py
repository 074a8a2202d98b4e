"""AverageSize: as many labels as a budget allows, shared out where they are most probable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from credibly import checks
from credibly.decide import _certificate
from credibly.decide._base import Decision
from credibly.decide._chunks import Chunks
from credibly.decide._selection import Leading, largest
from credibly.targets import Coding
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn

Guarantee = Literal["expected"] | tuple[Literal["probability"], float] | None


class AverageSize(Decision):
    r"""Labels above one threshold, chosen so that sets hold ``average_size`` labels on average.

    Of the n × L held-out probabilities the m largest are taken; the threshold lies midway between
    the m-th and the next one. How large m may be depends on the guarantee:

    - ``None``: m = ⌊K n⌋, Algorithm 1 of the average-K paper. The budget holds on the fitted rows;
      on new rows it is exceeded about half of the time.
    - ``"expected"``: m = ⌊K (n + 1) − L⌋, conformal risk control: set sizes fall as the threshold
      rises and never exceed L, so E|set| ≤ K for new rows exchangeable with the fitted ones.
    - ``("probability", delta)``: the largest sets for which a betting test rejects, at level delta,
      that their mean size exceeds K. The mean size is then at most K except for a share delta of
      draws of the fitted rows.

    Equal probabilities at the threshold: the labels that come first are taken, as many as the
    budget allows (``tied_labels``), for every row alike, fitted or new. So the sets of a row depend
    on that row alone, and the budget also holds with ties.

    Args:
        average_size: K, above 0, at most the number of labels; may be fractional.
        guarantee: see above.

    Attributes:
        threshold: labels with a probability above it are in the set.
        tied_labels: of labels exactly at the threshold, those with a lower index than this are in.
        fitted_size: the mean set size on the fitted rows.

    Example:
        >>> probabilities = np.array([[0.9, 0.2, 0.1], [0.8, 0.7, 0.6]])
        >>> decision = AverageSize(1.5).fit(probabilities)
        >>> round(decision.threshold, 3)
        0.65
        >>> decision.predict(probabilities).sum(axis=1)
        array([1, 2])
    """

    name = "average-size"
    threshold: float
    tied_labels: int
    fitted_size: float
    num_rows: int
    _settings = ("average_size", "guarantee")
    _fitted = ("threshold", "tied_labels", "fitted_size", "num_rows")

    def __init__(self, average_size: float, guarantee: Guarantee = None) -> None:
        self.average_size = checks.average_size(average_size, below_one=True)
        if isinstance(guarantee, (tuple, list)) and len(guarantee) == 2:
            checks.choice("guarantee", guarantee[0], ("probability",))
            checks.fraction("delta", guarantee[1], low_open=True, high_open=True)
            self.guarantee: Guarantee = ("probability", float(guarantee[1]))
        elif guarantee is None or guarantee == "expected":
            self.guarantee = guarantee
        else:
            raise checks.InputError(
                '`guarantee` must be None, "expected" or ("probability", delta); got '
                f"{guarantee!r}."
            )

    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        """Fit on held-out rows; truth is not needed.

        Args:
            probabilities: (n, L), or parts of it for data larger than memory: a list of (rows, L)
                matrices or a function that returns an iterator over them. They are read two to
                twenty times, in less than 10 MB beside the parts themselves.
            targets, coding: not used.
        """
        chunks = Chunks(probabilities)
        leading = Leading(chunks)
        checks.average_size(self.average_size, chunks.num_labels, below_one=True)
        if isinstance(self.guarantee, tuple):
            self.threshold, self.tied_labels = _certificate.largest_sets(
                chunks, leading.rows, self.average_size, self.guarantee[1]
            )
            taken = sum(int(self._sets(piece).sum()) for piece in chunks)
        else:
            budget = self._budget(leading.rows, chunks.num_labels)
            self.threshold, self.tied_labels, taken = sets_of(chunks, leading, budget)
        self.num_rows = leading.rows
        self.fitted_size = taken / leading.rows
        return self

    @property
    def promise(self) -> str:
        size = f"{self.average_size:g}"
        if self.guarantee is None:
            return (
                f"The fitted rows have at most {size} labels a row on average; new rows drawn "
                "alike have about as many, without a guarantee."
            )
        if self.guarantee == "expected":
            return (
                f"A new row has at most {size} labels in expectation (over the draw of the fitted "
                "rows too), if it is exchangeable with the fitted rows and those were used neither "
                "for training nor for tuning."
            )
        return (
            f"With a probability of at least {1 - self.guarantee[1]:g} over the draw of the fitted "
            f"rows, new rows have at most {size} labels on average, if all rows are independent "
            "draws from one distribution and the fitted ones were used neither for training nor "
            "for tuning."
        )

    def _budget(self, rows: int, num_labels: int) -> int:
        size = self.average_size
        if self.guarantee is None:
            return math.floor(size * rows * (1 + 1e-15))  # 0.1 × 30 is a whole number of labels
        budget = math.floor(size * (rows + 1) * (1 + 1e-15) - num_labels)
        if budget < 1:
            needed = math.ceil((num_labels + 1) / size) - 1
            raise checks.InputError(
                f'`guarantee="expected"` with an average size of {size:g} and {num_labels} labels '
                f"needs at least {needed} held-out rows (about {math.ceil(20 * num_labels / size)} "
                f"to use 95 % of the budget); got {rows}."
            )
        return budget

    def _sets(self, probabilities: Array) -> Array:
        # float64 on the right: a Python float would be rounded to float32 first.
        cut = np.float64(self.threshold)
        sets = probabilities > cut
        if self.tied_labels:
            first = slice(0, self.tied_labels)
            sets[:, first] |= probabilities[:, first] == cut
        return sets

    def to_module(self) -> nn.Module:
        self._require_fitted()
        from credibly.decide._modules import AboveThreshold

        return AboveThreshold(self.threshold, tied_labels=self.tied_labels)


def sets_of(chunks: Chunks, leading: Leading, budget: int) -> tuple[float, int, int]:
    """Threshold and number of tied labels for the ``budget`` largest, and how many it takes."""
    entries = leading.rows * chunks.num_labels
    if budget >= entries:
        return -1.0, 0, entries
    if budget < 1:
        return 1.0, 0, 0
    last, after = largest(chunks, leading, (budget, budget + 1))
    if last > after:
        middle = (last + after) / 2
        return (middle if middle < last else after), 0, budget
    above, tied = 0, np.zeros(chunks.num_labels, dtype=np.int64)
    cut = np.float64(last)
    for piece in chunks:
        above += int((piece > cut).sum())
        tied += (piece == cut).sum(axis=0)
    taken = above + np.concatenate([[0], np.cumsum(tied)])
    labels = int(np.searchsorted(taken, budget, side="right")) - 1
    return last, labels, int(taken[labels])
