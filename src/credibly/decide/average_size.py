"""Fit one threshold for all labels to a given average number of labels per row."""

from __future__ import annotations

import math

import numpy as np

from credibly import checks
from credibly.decide.base import Decision, Guarantee
from credibly.decide.guarantees import (
    as_guarantee,
    log_capital,
    rows_needed,
    statement_of,
)
from credibly.runtime import just_above, just_below
from credibly.types import Array, JsonObject


class AverageSize(Decision):
    r"""Select labels above one threshold, fitted for ``average_size`` labels per row on average.

    The m largest of the n × L held-out probabilities are selected. The threshold is the midpoint
    between the m-th and the next one. The guarantee determines m:

    - ``None``: m = ⌊K n⌋, Algorithm 1 of the average-K paper. The budget holds on the fitted rows;
      on new rows it is exceeded about half of the time.
    - ``"expected"``: m = ⌊K (n + 1) − L⌋, conformal risk control. Set sizes fall as the threshold
      rises and never exceed L, so E|set| ≤ K for new rows exchangeable with the fitted ones.
    - ``("probability", delta)``: the largest sets for which a betting test rejects, at level delta,
      the hypothesis that their mean size exceeds K. With probability at least 1 − delta over the
      draw of the fitted rows, the mean size is at most K.

    If several probabilities equal the threshold, the labels with the lowest indices are selected,
    as many as the budget allows (``tied_labels``). They are the same labels for every row, fitted
    or new. The set of a row therefore depends only on that row, and the budget also holds with
    ties.

    Args:
        average_size: K, above 0, at most the number of labels; may be fractional.
        guarantee: see above.

    Attributes:
        threshold: labels with a probability above it are in the set.
        tied_labels: labels exactly at the threshold are in the set if their index is below this.
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
    _fitted = ("threshold", "tied_labels", "fitted_size", "num_rows")

    def __init__(self, average_size: float, guarantee: Guarantee = None) -> None:
        self.average_size = checks.average_size(average_size, below_one=True)
        self.guarantee: Guarantee = as_guarantee(guarantee)

    def _fit(self, probabilities: Array, targets: Array) -> None:
        if not probabilities.size:
            raise checks.InputError(
                "`probabilities` must have at least one row and one label; got none."
            )
        self.num_rows, num_labels = probabilities.shape
        checks.average_size(self.average_size, num_labels, below_one=True)
        if isinstance(self.guarantee, tuple):
            self._fit_certified(probabilities, self.guarantee[1])
        else:
            budget = self._budget(num_labels)
            ranks = [place for place in (budget, budget + 1) if 1 <= place <= probabilities.size]
            ordered = np.partition(probabilities, [probabilities.size - r for r in ranks], None)
            self._take(ordered, probabilities, budget)
        self.fitted_size = int(self._sets(probabilities).sum()) / self.num_rows

    def _budget(self, num_labels: int) -> int:
        """Return the number of probabilities to select."""
        size, rows = self.average_size, self.num_rows
        if self.guarantee is None:
            return math.floor(size * rows * (1 + 1e-15))  # 0.1 × 30 must give a whole number
        budget = math.floor(size * (rows + 1) * (1 + 1e-15) - num_labels)
        if budget < 1:
            needed = math.ceil((num_labels + 1) / size) - 1
            raise checks.InputError(
                f'`guarantee="expected"` with an average size of {size:g} and {num_labels} labels '
                f"needs at least {needed} held-out rows (about {math.ceil(20 * num_labels / size)} "
                f"to use 95 % of the budget); got {rows}."
            )
        return budget

    def _fit_certified(self, probabilities: Array, delta: float) -> None:
        """Find the largest budget whose sets a betting test certifies, by bisection.

        The values in the test are the shares of all labels that are in each row's set. Sets grow
        with the budget, so trying many budgets needs no correction; see ``log_capital``.
        """
        rows, labels = probabilities.shape
        ordered = np.sort(probabilities, axis=None)
        share = self.average_size / labels
        low, high = 0, probabilities.size + 1
        if share < 1:
            # The variance of Poisson set sizes is 1/L of the largest possible one.
            spreads = [3.0**-k for k in range(math.ceil(math.log(labels, 3)) + 1)]
            needed = rows_needed(share, delta, spreads)
            if rows < needed:
                raise checks.InputError(
                    f'`guarantee=("probability", {delta:g})` with an average size of '
                    f"{self.average_size:g} and {labels} labels needs at least {needed} held-out "
                    f"rows; got {rows}."
                )
            while high - low > 1:
                middle = (low + high) // 2
                self._take(ordered, probabilities, middle)
                sizes = self._sets(probabilities).sum(axis=1)
                capital = log_capital(sizes / labels, share, delta, spreads)
                low, high = (middle, high) if capital >= math.log(1 / delta) else (low, middle)
        self._take(ordered, probabilities, low if share < 1 else probabilities.size)

    def _take(self, ordered: Array, probabilities: Array, budget: int) -> None:
        """Set threshold and tied labels so that the ``budget`` largest are selected.

        ``ordered`` are all probabilities, ascending around the budget.
        """
        self.threshold, self.tied_labels = (1.0 if budget < 1 else -1.0), 0
        if not 1 <= budget < ordered.size:
            return
        last, after = float(ordered[-budget]), float(ordered[-budget - 1])
        self.threshold = (last + after) / 2
        if just_above(self.threshold) < just_below(last):
            return
        exact = np.float64(last)
        above = probabilities > just_above(exact)
        tied = ((probabilities > just_below(exact)) & ~above).sum(axis=0)
        taken = above.sum() + np.concatenate([[0], np.cumsum(tied)])
        self.threshold = last
        self.tied_labels = int(np.searchsorted(taken, budget, side="right")) - 1

    @property
    def selects_above(self) -> Array:
        return np.array([self.threshold])

    @property
    def statement(self) -> str:
        size = f"{self.average_size:g}"
        return statement_of(
            self.guarantee,
            f"The fitted rows have at most {size} labels per row on average; similar new rows "
            "have about as many",
            f"A new row has at most {size} labels in expectation",
            f"new rows have at most {size} labels on average",
        )

    def comparison(self) -> JsonObject:
        numbers = {"threshold": self.threshold, "tied_labels": self.tied_labels}
        return {"rule": "above-with-ties", **numbers}
