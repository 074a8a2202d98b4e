"""AverageSize: one threshold for all labels, for a given average number of labels per row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from credibly import checks
from credibly.decide import certificate
from credibly.decide.base import Decision
from credibly.decide.batches import MatrixSource
from credibly.decide.guarantees import Guarantee, as_guarantee
from credibly.decide.rounding import just_above, just_below
from credibly.decide.selection import LeadingBits, largest
from credibly.targets import Coding
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class AverageSize(Decision):
    r"""Select labels above one threshold, fitted for ``average_size`` labels per row on average.

    The m largest of the n × L held-out probabilities are selected. The threshold lies midway
    between the m-th and the next one. The guarantee determines m:

    - ``None``: m = ⌊K n⌋, Algorithm 1 of the average-K paper. The budget holds on the fitted rows;
      on new rows it is exceeded about half of the time.
    - ``"expected"``: m = ⌊K (n + 1) − L⌋, conformal risk control: set sizes fall as the threshold
      rises and never exceed L, so E|set| ≤ K for new rows exchangeable with the fitted ones.
    - ``("probability", delta)``: the largest sets for which a betting test rejects, at level delta,
      that their mean size exceeds K. With probability at least 1 − delta over the draw of the
      fitted rows, the mean size is at most K.

    Where probabilities equal the threshold, the labels with the lowest indices are selected, as
    many as the budget allows (``tied_labels``). They are the same labels for every row, fitted or
    new. So the set of a row depends on that row alone, and the budget also holds with ties.

    Args:
        average_size: K, above 0, at most the number of labels; may be fractional.
        guarantee: see above.

    Attributes:
        threshold: labels with a probability above it are in the set.
        tied_labels: of labels exactly at the threshold, those with a lower index than this are in.
        fitted_size: the mean set size on the fitted rows.
        num_rows: number of fitted rows.

    Example:
        >>> probabilities = np.array([[0.9, 0.2, 0.1], [0.8, 0.7, 0.6]])
        >>> decision = AverageSize(1.5).fit(probabilities)
        >>> round(decision.threshold, 3)
        0.65
        >>> decision.predict(probabilities).sum(axis=1)
        array([1, 2])
    """

    name = "average-size"
    fitted_on = "probabilities"
    threshold: float
    tied_labels: int
    fitted_size: float
    num_rows: int
    _settings = ("average_size", "guarantee")
    _fitted = ("threshold", "tied_labels", "fitted_size", "num_rows")

    def __init__(self, average_size: float, guarantee: Guarantee = None) -> None:
        self.average_size = checks.average_size(average_size, below_one=True)
        self.guarantee: Guarantee = as_guarantee(guarantee)

    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        """Fit on held-out rows; targets are not needed.

        Args:
            probabilities: (n, L). For data larger than memory, a list of (rows, L) matrices or a
                function that returns an iterator over them. They are read 2 to 20 times, with less
                than 10 MB of memory beside the matrices themselves.
            targets, coding: not used.
        """
        source = MatrixSource(probabilities)
        leading = LeadingBits(source)
        checks.average_size(self.average_size, source.num_labels, below_one=True)
        if isinstance(self.guarantee, tuple):
            self.threshold, self.tied_labels = certificate.largest_sets(
                source, leading.rows, self.average_size, self.guarantee[1]
            )
            taken = sum(int(self._sets(batch).sum()) for batch in source)
        else:
            budget = self._budget(leading.rows, source.num_labels)
            self.threshold, self.tied_labels, taken = _largest_entries(source, leading, budget)
        self.num_rows = leading.rows
        self.fitted_size = taken / leading.rows
        return self

    @property
    def selects_above(self) -> Array:
        return np.array([self.threshold])

    @property
    def statement(self) -> str:
        size = f"{self.average_size:g}"
        if self.guarantee is None:
            return (
                f"The fitted rows have at most {size} labels per row on average; new rows drawn "
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
        threshold = np.float64(self.threshold)
        sets = probabilities > just_above(threshold)
        if self.tied_labels:
            first = slice(0, self.tied_labels)
            sets[:, first] |= probabilities[:, first] > just_below(threshold)
        return sets

    def to_module(self) -> nn.Module:
        self._require_fitted()
        from credibly.decide.torch_modules import Above, AboveWithTies

        if not self.tied_labels:
            return Above([just_above(self.threshold)])
        return AboveWithTies(self.threshold, self.tied_labels)


def _largest_entries(
    source: MatrixSource, leading: LeadingBits, budget: int
) -> tuple[float, int, int]:
    """Return threshold and tied labels that select the ``budget`` largest, and how many they do."""
    entries = leading.rows * source.num_labels
    if budget >= entries:
        return -1.0, 0, entries
    if budget < 1:
        return 1.0, 0, 0
    last, after = largest(source, leading, (budget, budget + 1))
    middle = (last + after) / 2
    if just_above(middle) < just_below(last):
        return middle, 0, budget
    above, tied = 0, np.zeros(source.num_labels, dtype=np.int64)
    threshold = np.float64(last)
    for batch in source:
        higher = batch > just_above(threshold)
        above += int(higher.sum())
        tied += ((batch > just_below(threshold)) & ~higher).sum(axis=0)
    taken = above + np.concatenate([[0], np.cumsum(tied)])
    labels = int(np.searchsorted(taken, budget, side="right")) - 1
    return last, labels, int(taken[labels])
