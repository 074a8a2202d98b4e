"""Rules that guarantee recall or precision, and what a guarantee can be."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np

from credibly import checks
from credibly.decide.base import with_truth
from credibly.decide.fitted_thresholds import ALL, NONE, FittedThresholds
from credibly.runtime import just_below
from credibly.targets import Coding
from credibly.types import Array

Guarantee = Literal["expected"] | tuple[Literal["probability"], float] | None
Per = Literal["row", "label"]

LARGEST = 0.999
"""Share of the stake with which one value of 1 would lose all capital."""

SPREADS = (1.0, 1 / 3, 1 / 9)
"""Variances to bet on, as shares of the largest possible one: α(1 − α)."""

STEP, END = 0.1, 6.0
GRID: Array = just_below(1 / (1 + np.exp(-np.arange(END, -END - STEP / 2, -STEP))))
"""Thresholds to test, highest first: steps of 0.1 in log-odds. Fixed before any data is seen."""

STAKE_SHARE = 0.1
"""Stakes are chosen for this share of delta, about what a threshold in the middle is tested at."""


def as_guarantee(guarantee: Any) -> Guarantee:
    """Return a guarantee: None, ``"expected"`` or ``("probability", delta)``."""
    if isinstance(guarantee, (tuple, list)) and len(guarantee) == 2:
        checks.choice("guarantee", guarantee[0], ("probability",))
        checks.fraction("delta", guarantee[1], low_open=True, high_open=True)
        return ("probability", float(guarantee[1]))
    if guarantee is None or guarantee == "expected":
        return None if guarantee is None else "expected"
    raise checks.InputError(
        f'`guarantee` must be None, "expected" or ("probability", delta); got {guarantee!r}.'
    )


def risk_of(guarantee: Guarantee) -> float:
    """Return the delta of a guarantee with a probability."""
    assert isinstance(guarantee, tuple)
    return guarantee[1]


def one_per(per: Any) -> Per:
    """Return ``per``: whether a mean is over rows, or there is one number per label."""
    return checks.choice("per", per, ("row", "label"))


def hard_truth(who: str, truth: Array) -> None:
    """Refuse soft targets, which are no counts of rows."""
    soft = (truth > 0) & (truth < 1)
    if soft.any():
        raise checks.InputError(
            f'{who} with `per="label"` needs targets of 0, 1 or unknown; got '
            f'{float(truth[soft][0]):g}. Use `per="row"`, or round the targets.'
        )


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
            needed = rows_needed(alpha, risk_of(self.guarantee))
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
        return log_capital(missed.round(12), alpha, delta) >= math.log(1 / delta)

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
                logs[place] = -log_capital(wrong.round(12), 1 - self.level, stake)
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


# Betting -----------------------------------------------------------------------------------------


def log_capital(values: Array, alpha: float, delta: float) -> float:
    r"""Return the log of the capital after betting on ``values`` in [0, 1] having a mean below α.

    Let $x_i \in [0, 1]$ be independent with one mean. If that mean were $\alpha$ or more, the
    capital $\prod_i (1 + \nu(\alpha - x_i))$ of a gambler with a fixed stake $\nu \in [0,
    1/(1-\alpha)]$ would have expectation at most 1, and so would the mean of several such capitals.
    By Markov's inequality it reaches $1/\delta$ with probability at most $\delta$ (Waudby-Smith &
    Ramdas, 2024).

    The capital falls whenever any $x_i$ rises. Where the $x_i$ of nested sets are all monotone,
    there is one point at which it drops below $1/\delta$, and no correction for trying many
    thresholds is needed.
    """
    if not len(values):
        return 0.0
    counted, times = np.unique(values, return_counts=True)
    logs = [
        float(times @ np.log1p(stake * (alpha - counted)))
        for stake in _stakes(len(values), alpha, delta)
    ]
    top = max(logs)
    return top + math.log(sum(math.exp(each - top) for each in logs) / len(logs))


def rows_needed(alpha: float, delta: float) -> int:
    """Return the fewest values, all 0, with which the capital reaches 1/δ."""
    rows = 1
    while log_capital(np.zeros(rows), alpha, delta) < math.log(1 / delta):
        rows += 1
    return rows


def _stakes(rows: int, alpha: float, delta: float) -> list[float]:
    """Return the stakes that are best for a few variances; they do not depend on the values."""
    limit = LARGEST / (1 - alpha)
    return [
        min(limit, math.sqrt(2 * math.log(1 / delta) / (rows * alpha * (1 - alpha) * spread)))
        for spread in SPREADS
    ]
