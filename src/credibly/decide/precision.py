"""Precision: sets of which a given share of labels is right, with a guarantee."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np

from credibly import checks
from credibly.decide import betting
from credibly.decide.base import with_truth
from credibly.decide.fitted_thresholds import NONE, FittedThresholds
from credibly.decide.guarantees import Guarantee, Per, as_guarantee, hard_truth, one_per, risk_of
from credibly.decide.rounding import just_below
from credibly.targets import Coding
from credibly.types import Array

STEP, END = 0.1, 6.0
GRID: Array = just_below(1 / (1 + np.exp(-np.arange(END, -END - STEP / 2, -STEP))))
"""Thresholds to test, highest first: steps of 0.1 in log-odds. Fixed before any data is seen."""

STAKE_SHARE = 0.1
"""Stakes are chosen for this share of delta, about what a threshold in the middle is tested at."""


class Precision(FittedThresholds):
    r"""Select labels above the lowest threshold at which a share ``level`` of them is right.

    Precision does not rise steadily with the threshold, so one threshold cannot be certified by
    trying many and keeping the best. Learn-then-test (Angelopoulos et al., 2021): each threshold of
    a fixed grid is a hypothesis, "the precision is below ``level``"; the fallback procedure (Wiens,
    2003) tests them from the highest down, each with an equal part of delta and with all that the
    rejected one before it had. The probability that any rejection is wrong is at most delta. The
    lowest threshold rejected gives the largest sets.

    ``per="row"``: one threshold for all labels; precision is the mean, over rows whose set is not
    empty, of the share of the set's labels that are right (betting test). ``per="label"``: one
    threshold per label; precision is the share of the rows whose set holds the label that have it
    (binomial test), for each label by itself. Entries of unknown truth do not count.

    If no threshold can be certified, no label is selected: an empty set is never wrong.

    Args:
        level: precision to reach, in (0, 1).
        guarantee: ``("probability", delta)``; or None for the empirical precision of the fitted
            rows, without a guarantee. There is no guarantee in expectation.
        per: ``"row"`` or ``"label"``.

    Attributes:
        thresholds: labels with a probability above it are in the set; one, or one per label.
        num_rows: fitted rows with known truth; one number, or one per label.

    References:
        Angelopoulos, Bates, Candès, Jordan & Lei, "Learn then test", arXiv:2110.01052.
        Wiens, "A fixed sequence Bonferroni procedure", Pharmaceutical Statistics 2, 2003.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> probabilities = noise.beta(0.5, 1.0, (2000, 4))
        >>> targets = noise.random((2000, 4)) < probabilities
        >>> decision = Precision(0.8, guarantee=("probability", 0.1)).fit(probabilities, targets)
        >>> decision.thresholds.round(2)
        array([0.71])
    """

    name = "precision"
    num_rows: Array
    _settings = ("level", "guarantee", "per")
    _fitted = ("thresholds", "num_rows")

    def __init__(
        self,
        level: float = 0.9,
        guarantee: tuple[Literal["probability"], float] | None = ("probability", 0.1),
        per: Per = "row",
    ) -> None:
        self.level = checks.fraction("level", level, low_open=True, high_open=True)
        if guarantee == "expected":
            raise checks.InputError(
                '`guarantee` of a precision must be ("probability", delta) or None; got '
                '"expected". Precision is not monotone, so it cannot be controlled in expectation.'
            )
        self.guarantee: Guarantee = as_guarantee(guarantee)
        self.per: Per = one_per(per)

    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        array, truth = with_truth(probabilities, targets, "Precision", coding)
        known = truth >= 0
        if self.per == "label":
            hard_truth("Precision", truth)
            columns = [
                (array[rows, label], truth[rows, label]) for label, rows in enumerate(known.T)
            ]
            self.thresholds = np.array(
                [self._lowest(*self._label_tests(*each)) for each in columns]
            )
            self.num_rows = known.sum(axis=0).astype(float)
            return self
        self.thresholds = np.array([self._lowest(*self._row_tests(array, truth, known))])
        self.num_rows = np.array([float(known.any(axis=1).sum())])
        return self

    @property
    def statement(self) -> str:
        level = f"{self.level:g}"
        if self.guarantee is None:
            return (
                f"On the fitted rows the precision was at least {level}; new rows drawn alike come "
                "close, without a guarantee."
            )
        what = (
            f"of the new rows whose set holds a label, a share of at least {level} has it, for "
            "each label by itself"
            if self.per == "label"
            else f"in the sets of new rows that are not empty a share of at least {level} of the "
            "labels is right, in the mean over rows"
        )
        return (
            f"With a probability of at least {1 - risk_of(self.guarantee):g} over the draw of the "
            f"fitted rows, {what}, if all rows are independent draws from one distribution and the "
            "fitted ones were used neither for training nor for tuning."
        )

    def _lowest(self, rates: Array, log_p_values: Array) -> float:
        """Return the lowest threshold whose precision is certified; ``NONE`` if none is."""
        if self.guarantee is None:
            passed = rates <= 1 - self.level
        else:
            passed = _fallback(log_p_values, risk_of(self.guarantee))
        found = np.flatnonzero(passed)
        return float(GRID[found[-1]]) if found.size else NONE

    def _row_tests(self, array: Array, truth: Array, known: Array) -> tuple[Array, Array]:
        """Return the mean share of wrong labels at each threshold, and log p-values."""
        rates, logs = np.ones(len(GRID)), np.zeros(len(GRID))
        # Fixed beforehand: a stake must not depend on the tests before.
        stake = STAKE_SHARE * (0.1 if self.guarantee is None else risk_of(self.guarantee))
        for place, threshold in enumerate(GRID):
            sets = known & (array > threshold)
            sizes = sets.sum(axis=1)
            rows = sizes > 0
            if rows.any():
                wrong = np.where(sets[rows], 1.0 - truth[rows], 0.0).sum(axis=1) / sizes[rows]
                rates[place] = wrong.mean()
                logs[place] = -betting.log_capital(wrong.round(12), 1 - self.level, stake)
        return rates, logs

    def _label_tests(self, probabilities: Array, truth: Array) -> tuple[Array, Array]:
        """Return the share of wrong rows at each threshold, and log p-values."""
        from scipy.stats import binom

        order = np.argsort(probabilities, kind="stable")
        ranked = probabilities[order].astype(np.float64)
        selected = len(ranked) - np.searchsorted(ranked, GRID, side="right")
        wrong = np.concatenate([[0], np.cumsum(truth[order][::-1] == 0)])[selected]
        rates = np.where(selected > 0, wrong / np.maximum(selected, 1), 1.0)
        return rates, np.where(
            selected > 0, binom.logcdf(wrong, np.maximum(selected, 1), 1 - self.level), 0.0
        )


def _fallback(log_p_values: Array, delta: float) -> Array:
    """Return which hypotheses are rejected, with a probability of at most delta of any error."""
    share, budget = delta / len(log_p_values), 0.0
    rejected = np.zeros(len(log_p_values), dtype=bool)
    for place, log_p in enumerate(log_p_values):
        budget += share
        rejected[place] = log_p <= math.log(budget)
        budget = budget if rejected[place] else 0.0
    return rejected
