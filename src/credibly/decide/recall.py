"""Recall: sets that hold a given share of the labels that are present, with a guarantee."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from credibly import checks
from credibly.decide import betting
from credibly.decide.base import with_truth
from credibly.decide.fitted_thresholds import ALL, FittedThresholds
from credibly.decide.guarantees import Guarantee, Per, as_guarantee, hard_truth, one_per, risk_of
from credibly.decide.rounding import just_below
from credibly.targets import Coding
from credibly.types import Array


class Recall(FittedThresholds):
    r"""Select labels above the highest threshold that keeps a share ``level`` of the true labels.

    Recall is over what is present: rows without a label (or with unknown ones only) may be among
    the fitted and the new rows. They have no recall and do not count, so they can neither help nor
    harm the guarantee.

    ``per="row"``: one threshold for all labels; recall is the mean, over rows with at least one
    label, of the share of the row's labels that are in its set. ``per="label"``: one threshold per
    label; recall is the share of the rows with the label whose set holds it, for every label.

    - ``guarantee="expected"``: conformal risk control (Angelopoulos et al., 2024). With the mean
      miss $\hat R_n$ of n rows, the highest threshold with $(n \hat R_n + 1)/(n + 1) \le 1 -
      \mathrm{level}$. The recall of a new row is at least ``level`` in expectation, over the draw
      of the fitted rows too.
    - ``guarantee=("probability", delta)``: with probability at least 1 − delta over the draw of the
      fitted rows, the recall of all future rows is at least ``level``. Per row a betting test
      certifies the threshold; per label the binomial tail is exact, and holds for each label by
      itself.

    A label with too few known positives for its guarantee is in every set (``per="label"``).

    Args:
        level: recall to reach, in (0, 1).
        guarantee: see above; None for the empirical recall of the fitted rows, without a guarantee.
        per: ``"row"`` or ``"label"``.

    Attributes:
        thresholds: labels with a probability above it are in the set; one, or one per label.
        num_rows: rows with a label, or the rows with each label (``per="label"``), that were
            fitted on.

    References:
        Angelopoulos, Bates, Fisch, Lei & Schuster, "Conformal risk control", ICLR 2024.

    Example:
        >>> noise = np.random.default_rng(0)
        >>> probabilities = noise.beta(0.5, 1.0, (500, 4))
        >>> targets = noise.random((500, 4)) < probabilities
        >>> decision = Recall(0.9, guarantee=("probability", 0.1)).fit(probabilities, targets)
        >>> int(decision.predict(probabilities).sum()), int(targets.sum())
        (1116, 679)
    """

    name = "recall"
    num_rows: Array
    _settings = ("level", "guarantee", "per")
    _fitted = ("thresholds", "num_rows")

    def __init__(
        self, level: float = 0.9, guarantee: Guarantee = "expected", per: Per = "row"
    ) -> None:
        self.level = checks.fraction("level", level, low_open=True, high_open=True)
        self.guarantee: Guarantee = as_guarantee(guarantee)
        self.per: Per = one_per(per)

    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        array, truth = with_truth(probabilities, targets, "Recall", coding)
        if self.per == "label":
            hard_truth("Recall", truth)
            columns = [array[truth[:, label] == 1, label] for label in range(array.shape[1])]
            self.thresholds = np.array([self._of_label(np.sort(column)) for column in columns])
            self.num_rows = np.array([len(column) for column in columns], dtype=float)
            return self
        present = np.maximum(truth, 0)
        kept = np.flatnonzero(present.sum(axis=1) > 0)
        self._require_rows(len(kept))
        self.thresholds = np.array([self._of_rows(array[kept], present[kept])])
        self.num_rows = np.array([float(len(kept))])
        return self

    @property
    def statement(self) -> str:
        level = f"{self.level:g}"
        if self.guarantee is None:
            return (
                f"On the fitted rows the recall was at least {level}; new rows drawn alike come "
                "close, without a guarantee."
            )
        if self.guarantee == "expected":
            what = (
                f"each label that is present in a new row is in its set with a probability of at "
                f"least {level}, label by label"
                if self.per == "label"
                else f"a new row with at least one label has a set that holds a share of at least "
                f"{level} of its labels in expectation"
            )
            return (
                f"{what[0].upper()}{what[1:]} (over the draw of the fitted rows too), if new and "
                "fitted rows are exchangeable and the fitted ones were used neither for training "
                "nor for tuning; rows without labels do not count."
            )
        what = (
            f"sets hold a share of at least {level} of the rows' labels, for each label by itself"
            if self.per == "label"
            else f"the sets of new rows with at least one label hold, in the mean over rows, a "
            f"share of at least {level} of their labels"
        )
        return (
            f"With a probability of at least {1 - risk_of(self.guarantee):g} over the draw of the "
            f"fitted rows, {what}, if all rows are independent draws from one distribution and the "
            "fitted ones were used neither for training nor for tuning; rows without labels do not "
            "count."
        )

    def _require_rows(self, rows: int) -> None:
        alpha = 1 - self.level
        needed = 1
        if self.guarantee == "expected":
            needed = math.ceil((1 - alpha) / alpha * (1 - 1e-12))
        elif self.guarantee is not None:
            needed = betting.rows_needed(alpha, risk_of(self.guarantee))
        if rows < needed:
            shown = "None" if self.guarantee is None else repr(self.guarantee)
            raise checks.InputError(
                f"a recall of {self.level:g} with `guarantee={shown}` needs at least {needed} "
                f"held-out rows with a known label; got {rows}."
            )

    def _of_rows(self, array: Array, present: Array) -> float:
        """Return the highest threshold that the guarantee allows, by bisection."""
        candidates = np.unique(array[present > 0])
        low, high = 0, len(candidates)  # at candidates[low] all is certified: nothing is missed
        share = present / present.sum(axis=1, keepdims=True, dtype=np.float64)
        while high - low > 1:
            middle = (low + high) // 2
            kept = (share * (array >= candidates[middle])).sum(axis=1)
            good = self._certified(np.clip(1 - kept, 0, 1))
            low, high = (middle, high) if good else (low, middle)
        return just_below(float(candidates[low]))

    def _certified(self, missed: Array) -> bool:
        alpha, rows = 1 - self.level, len(missed)
        total = float(missed.sum())
        if self.guarantee is None:
            return total <= alpha * rows * (1 + 1e-12)
        if self.guarantee == "expected":
            return total + 1 <= alpha * (rows + 1) * (1 + 1e-12)
        delta = risk_of(self.guarantee)
        # 1 − 2/3 − 1/3 is not 0: values that should be alike are made so.
        return betting.log_capital(missed.round(12), alpha, delta) >= math.log(1 / delta)

    def _of_label(self, ranked: Array) -> float:
        """Return the threshold of a label whose positives have these probabilities, ascending."""
        misses = self._misses_allowed(len(ranked))
        if misses < 0:
            return ALL
        return just_below(float(ranked[min(misses, len(ranked) - 1)]))

    def _misses_allowed(self, count: int) -> int:
        """Return how many of ``count`` positives may be missed; −1 where not even none may be."""
        alpha = 1 - self.level
        if count == 0:
            return -1
        if self.guarantee is None:
            return math.floor(alpha * count * (1 + 1e-12))
        if self.guarantee == "expected":
            return math.floor(alpha * (count + 1) * (1 + 1e-12)) - 1
        from scipy.stats import binom

        # Recall falls short with probability P(Binomial(count, α) ≤ misses).
        tail = binom.cdf(np.arange(count), count, alpha)
        return int(np.searchsorted(tail, risk_of(self.guarantee), side="right")) - 1
