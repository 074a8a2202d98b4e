"""AverageSize: one threshold for all labels, for a given average number of labels per row."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from credibly import checks
from credibly.compiled import compiled
from credibly.decide.base import Decision
from credibly.decide.guarantees import Guarantee, as_guarantee
from credibly.decide.selection import LeadingBits, MatrixSource, largest
from credibly.runtime import just_above, just_below
from credibly.targets import Coding
from credibly.types import Array, JsonObject

PROBES = 15  # thresholds tested per pass over the rows: each pass determines four bits
LARGEST_STAKE = 0.999  # share of the stake with which one full set would lose all capital


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
            self.threshold, self.tied_labels = _largest_sets(
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

    def comparison(self) -> JsonObject:
        numbers = {"threshold": self.threshold, "tied_labels": self.tied_labels}
        return {"rule": "above-with-ties", **numbers}


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


# Sets certified by betting -----------------------------------------------------------------------


def _largest_sets(source: MatrixSource, rows: int, size: float, delta: float) -> tuple[float, int]:
    r"""Return threshold and tied labels of the largest sets that a betting test certifies.

    Let $x_i$ be the share of all labels that row i's set holds and $\kappa = K/L$. If the mean of x
    were $\kappa$ or more, the capital $\prod_i (1 + \nu(\kappa - x_i))$ of a gambler who stakes a
    fixed $\nu \in [0, 1/(1-\kappa)]$ would have expectation at most 1, so it reaches 1/δ with
    probability at most δ (Markov; Waudby-Smith & Ramdas, 2024, bet the same way). Two things make
    it fit here:

    - With a fixed stake the capital falls whenever any set grows. So among nested sets there is one
      point where it drops below 1/δ, bisection finds it, and no correction for trying many
      thresholds is needed: too large a set would have to win at the one threshold where the mean is
      K.
    - The first rows are bet on with a stake for sets of Poisson spread, the others with one for the
      spread seen on the first rows: a stake only has to be fixed before the rows it is placed on.
    """
    if size == source.num_labels:
        return -1.0, 0
    first = min(rows, max(20, min(rows // 20, 200, (1 << 18) // source.num_labels)))
    variances = size, _variance(source.head(first), size)
    rewards = np.stack(
        [_rewards(source.num_labels, size, rows, delta, variance) for variance in variances]
    )
    needed = math.log(1 / delta)
    if first * rewards[0, 0] + (rows - first) * rewards[1, 0] < needed:
        raise _too_few(rows, source.num_labels, size, delta)

    def certified(above: Array, at: Array, tied_labels: Array) -> Array:
        counts = _size_counts(source, first, above, at, tied_labels)
        return (counts * rewards[:, None]).sum(axis=(0, 2)) >= needed

    unsigned = np.uint32 if source.dtype == np.float32 else np.uint64
    # Sets above 1 are empty, hence certified; sets from 0 on, without ties, are the first to fail.
    low, high = -1, int(np.ones(1, source.dtype).view(unsigned)[0])
    while high - low > 1:
        probes = _between(low, high)
        values = np.array(probes, dtype=unsigned).view(source.dtype)
        passed = certified(values, values, np.zeros(len(values), dtype=np.int64))
        low, high = _narrow(low, high, probes, passed)
    value = np.array([high], dtype=unsigned).view(source.dtype)
    low, tied = source.num_labels + 1, 0  # here more labels are harder to certify
    while low - tied > 1:
        probes = _between(tied, low)
        edges = (
            np.repeat(edge(value.astype(float)), len(probes)) for edge in (just_above, just_below)
        )
        passed = certified(*edges, np.array(probes, dtype=np.int64))
        tied, low = _narrow(tied, low, probes, ~passed)
    return float(value[0]), tied


def _variance(head: Array, size: float) -> float:
    """Return the variance of set sizes on ``head`` at its own threshold.

    One row of Poisson spread is added, so that it is never 0.
    """
    rank = min(head.size, max(1, round(size * len(head))))
    threshold = np.partition(head.reshape(-1), head.size - rank)[head.size - rank]
    sizes = (head >= threshold).sum(axis=1)
    return float((size + ((sizes - sizes.mean()) ** 2).sum()) / (len(head) + 1))


def _rewards(num_labels: int, size: float, rows: int, delta: float, variance: float) -> Array:
    """Return the log of the factor on the capital by set size, at the best fixed stake."""
    share = size / num_labels
    stake = math.sqrt(2 * math.log(1 / delta) / (rows * variance)) * num_labels
    stake = min(stake, LARGEST_STAKE / (1 - share))
    return np.log1p(stake * (share - np.arange(num_labels + 1) / num_labels))


def _between(low: int, high: int) -> list[int]:
    """Return up to ``PROBES`` whole numbers strictly between, evenly spaced."""
    count = min(PROBES, high - low - 1)
    return [low + (high - low) * (i + 1) // (count + 1) for i in range(count)]


def _narrow(low: int, high: int, probes: list[int], passed: Array) -> tuple[int, int]:
    """Return the neighbours between which ``passed`` turns from False to True."""
    turn = int(np.argmax(passed)) if passed.any() else len(probes)
    return (
        probes[turn - 1] if turn else low,
        probes[turn] if turn < len(probes) else high,
    )


def _size_counts(
    source: MatrixSource, first: int, above: Array, at: Array, tied_labels: Array
) -> Array:
    """Count rows by set size for each threshold: the ``first`` rows, and the others."""
    counts = np.zeros((2, len(above), source.num_labels + 1), dtype=np.int64)
    for batch in source:
        for group, rows in enumerate((batch[:first], batch[first:])):
            if len(rows):
                _add_sizes(rows, above, at, tied_labels, counts[group])
        first = max(0, first - len(batch))
    return counts


@compiled(error_model="numpy")
def _add_sizes(probabilities, above, at, tied_labels, counts):
    lowest = at.min()
    sizes = np.zeros(above.size, dtype=np.int64)
    for row in range(probabilities.shape[0]):
        sizes[:] = 0
        for label in range(probabilities.shape[1]):
            value = probabilities[row, label]
            if value > lowest:
                for i in range(above.size):
                    if value > above[i] or (value > at[i] and label < tied_labels[i]):
                        sizes[i] += 1
        for i in range(above.size):
            counts[i, sizes[i]] += 1


def _too_few(rows: int, num_labels: int, size: float, delta: float) -> checks.InputError:
    share = size / num_labels
    needed = math.ceil(math.log(1 / delta) / math.log1p(LARGEST_STAKE * share / (1 - share)))
    return checks.InputError(
        f'`guarantee=("probability", {delta:g})` with an average size of {size:g} and {num_labels} '
        f"labels needs at least {needed} held-out rows to certify anything; got {rows}."
    )
