"""Rules with guarantees of coverage, recall or precision."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np

from credibly import checks
from credibly.decide.base import Decision, Guarantee
from credibly.decide.thresholds import ALL, NONE, FittedThresholds
from credibly.runtime import cumulative_scores, just_above, just_below
from credibly.targets import UNKNOWN
from credibly.types import Array, JsonObject

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


def as_guarantee(guarantee: object) -> Guarantee:
    """Return a checked guarantee: None, ``"expected"`` or ``("probability", delta)``."""
    if isinstance(guarantee, (tuple, list)) and len(guarantee) == 2:
        checks.choice("guarantee", guarantee[0], ("probability",))
        checks.fraction("delta", guarantee[1], low_open=True, high_open=True)
        return ("probability", float(guarantee[1]))
    if guarantee is None or guarantee == "expected":
        return None if guarantee is None else "expected"
    raise checks.InputError(
        f'`guarantee` must be None, "expected" or ("probability", delta); got {guarantee!r}.'
    )


def statement_of(guarantee: Guarantee, fitted: str, expected: str, certain: str) -> str:
    """Return a guarantee as a sentence.

    Args:
        guarantee: the guarantee.
        fitted: what holds on the fitted rows, used without a guarantee.
        expected: what holds in expectation.
        certain: what holds with a probability.
    """
    alike = "if new rows are drawn like the fitted ones"
    if guarantee is None:
        return f"{fitted}, without a guarantee."
    if guarantee == "expected":
        return f"{expected}, {alike}."
    return f"With a probability of at least {100 - 100 * guarantee[1]:g} %, {certain}, {alike}."


def conformal_quantile(scores: Array, level: float, what: str) -> float:
    """Return the ⌈(n + 1) level⌉-th smallest of n nonconformity scores; ``what`` names the rows."""
    rank = math.ceil((len(scores) + 1) * level * (1 - 1e-15))
    if rank > len(scores):
        needed = math.ceil(1 / (1 - level) * (1 - 1e-12)) - 1
        raise checks.InputError(
            f"a coverage of {level:g} needs at least {needed} held-out rows {what}; "
            f"got {len(scores)}."
        )
    return float(np.partition(scores, rank - 1)[rank - 1])


class CertifiedThresholds(FittedThresholds):
    """One threshold for all labels, or one per label, that reaches ``level`` with a guarantee."""

    num_rows: Array
    _fitted = ("thresholds", "num_rows")

    def __init__(self, level: float, guarantee: Guarantee, per: Per) -> None:
        self.level = checks.fraction("level", level, low_open=True, high_open=True)
        self.guarantee: Guarantee = as_guarantee(guarantee)
        self.per: Per = checks.choice("per", per, ("row", "label"))

    def _fit(self, probabilities: Array, targets: Array) -> None:
        known = targets >= 0
        if self.per == "row":
            found = [self._of_rows(probabilities, targets, known)]
        else:
            soft = (targets > 0) & (targets < 1)
            if soft.any():
                raise checks.InputError(
                    f'{type(self).__name__} with `per="label"` needs targets of 0, 1 or unknown; '
                    f'got {float(targets[soft][0]):g}. Use `per="row"`, or round the targets.'
                )
            columns = zip(probabilities.T, targets.T, known.T, strict=True)
            found = [self._of_label(p[rows], y[rows] == 1) for p, y, rows in columns]
        self.thresholds, self.num_rows = np.array(found, dtype=float).T.copy()

    @abstractmethod
    def _of_rows(self, array: Array, truth: Array, known: Array) -> tuple[float, int]:
        """Return the threshold for all labels, and the number of rows it is based on."""

    @abstractmethod
    def _of_label(self, array: Array, present: Array) -> tuple[float, int]:
        """Return the threshold of one label from its known rows, and the number of these rows."""

    @property
    def _delta(self) -> float:
        return self.guarantee[1] if isinstance(self.guarantee, tuple) else 0.1


class Recall(CertifiedThresholds):
    r"""Select labels above the highest threshold that keeps a share ``level`` of the true labels.

    Recall is over the labels that are present. Rows without a label (or with unknown ones only)
    have no recall and do not count. They may be among the fitted and the new rows and do not affect
    the guarantee.

    ``per="row"``: one threshold for all labels. Recall is the share of a row's labels that are in
    its set, averaged over rows with at least one label. ``per="label"``: one threshold per label.
    Recall is the share of the rows with the label whose set contains it, for every label.

    - ``guarantee="expected"``: conformal risk control (Angelopoulos et al., 2024). With the mean
      miss $\hat R_n$ of n rows, it is the highest threshold with $(n \hat R_n + 1)/(n + 1) \le 1 -
      \mathrm{level}$. The recall of a new row is at least ``level`` in expectation, which is also
      over the draw of the fitted rows.
    - ``guarantee=("probability", delta)``: with probability at least 1 − delta over the draw of the
      fitted rows, the recall of all future rows is at least ``level``. Per row, a betting test
      certifies the threshold. Per label, the binomial tail is exact, and the guarantee holds for
      each label separately.

    A label with too few known positives for its guarantee is in every set (``per="label"``).

    Args:
        level: recall to reach, in (0, 1).
        guarantee: see above; None for the empirical recall of the fitted rows, without a guarantee.
        per: ``"row"`` or ``"label"``.

    Attributes:
        thresholds: labels with a probability above it are in the set; one, or one per label.
        num_rows: number of fitted rows with a label, or with each label (``per="label"``).

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

    def __init__(
        self, level: float = 0.9, guarantee: Guarantee = "expected", per: Per = "row"
    ) -> None:
        super().__init__(level, guarantee, per)

    @property
    def statement(self) -> str:
        level = f"{100 * self.level:g} %"
        certain = f"sets contain at least {level} of a row's labels on average"
        expected = f"Sets{certain.removeprefix('sets')}"
        if self.per == "label":
            expected = (
                "Each label that a new row has is in its set with a probability of at least "
                f"{level}"
            )
            certain = f"for each label, at least {level} of its rows get it"
        fitted = f"On the fitted rows the recall was at least {level}; similar new rows come close"
        return statement_of(self.guarantee, fitted, expected, certain)

    def _of_rows(self, array: Array, truth: Array, known: Array) -> tuple[float, int]:
        """Return the highest threshold that the guarantee allows, by bisection."""
        present = np.maximum(truth, 0)
        rows = np.flatnonzero(present.sum(axis=1) > 0)
        self._require_rows(len(rows))
        array, present = array[rows], present[rows]
        candidates = np.unique(array[present > 0])
        low, high = 0, len(candidates)  # candidates[low] is certified because it misses nothing
        share = present / present.sum(axis=1, keepdims=True, dtype=np.float64)
        while high - low > 1:
            middle = (low + high) // 2
            kept = (share * (array >= candidates[middle])).sum(axis=1)
            good = self._certified(np.clip(1 - kept, 0, 1))
            low, high = (middle, high) if good else (low, middle)
        return just_below(float(candidates[low])), len(rows)

    def _require_rows(self, rows: int) -> None:
        alpha = 1 - self.level
        needed = 1
        if self.guarantee == "expected":
            needed = math.ceil((1 - alpha) / alpha * (1 - 1e-12))
        elif self.guarantee is not None:
            needed = rows_needed(alpha, self._delta)
        if rows < needed:
            raise checks.InputError(
                f"a recall of {self.level:g} with `guarantee={self.guarantee!r}` needs at least "
                f"{needed} held-out rows with a known label; got {rows}."
            )

    def _certified(self, missed: Array) -> bool:
        alpha, rows = 1 - self.level, len(missed)
        total = float(missed.sum())
        if self.guarantee is None:
            return total <= alpha * rows * (1 + 1e-12)
        if self.guarantee == "expected":
            return total + 1 <= alpha * (rows + 1) * (1 + 1e-12)
        # 1 − 2/3 − 1/3 is not exactly 0, so round to make equal values equal.
        return log_capital(missed.round(12), alpha, self._delta) >= math.log(1 / self._delta)

    def _of_label(self, array: Array, present: Array) -> tuple[float, int]:
        ranked = np.sort(array[present])
        misses = self._misses_allowed(len(ranked))
        if misses < 0:
            return ALL, len(ranked)
        return just_below(float(ranked[min(misses, len(ranked) - 1)])), len(ranked)

    def _misses_allowed(self, count: int) -> int:
        """Return the number of ``count`` positives that may be missed; −1 if even 0 is too many."""
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
        return int(np.searchsorted(tail, self._delta, side="right")) - 1


class Precision(CertifiedThresholds):
    r"""Select labels above the lowest threshold at which a share ``level`` of them is right.

    Precision does not increase steadily with the threshold. So it is not valid to try many
    thresholds, keep the best and certify only that one. Learn-then-test (Angelopoulos et al., 2021)
    tests each threshold of a fixed grid for the hypothesis "the precision is below ``level``". The
    fallback procedure (Wiens, 2003) tests them in descending order. Each test gets an equal part of
    delta, plus the whole level of the previous test if that one rejected. The probability that any
    rejection is wrong is at most delta. The lowest rejected threshold gives the largest sets.

    ``per="row"``: one threshold for all labels. Precision is the share of a set's labels that are
    right, averaged over rows whose set is not empty (betting test). ``per="label"``: one threshold
    per label. Precision is the share of the rows with the label in their set that have it (binomial
    test), for each label separately. Entries with unknown truth do not count.

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

    def __init__(
        self,
        level: float = 0.9,
        guarantee: tuple[Literal["probability"], float] | None = ("probability", 0.1),
        per: Per = "row",
    ) -> None:
        super().__init__(level, guarantee, per)
        if guarantee == "expected":
            raise checks.InputError(
                '`guarantee` of Precision must be ("probability", delta) or None; got '
                '"expected". Precision is not monotone in the threshold, so its expectation '
                "cannot be controlled."
            )

    @property
    def statement(self) -> str:
        level = f"{100 * self.level:g} %"
        certain = f"on average at least {level} of labels in non-empty sets are right"
        if self.per == "label":
            certain = f"for each label, at least {level} of sets with it are right"
        fitted = f"On the fitted rows the precision was at least {level}; similar new rows "
        return statement_of(self.guarantee, f"{fitted}come close", "", certain)

    def _of_rows(self, array: Array, truth: Array, known: Array) -> tuple[float, int]:
        rates, logs = np.ones(len(GRID)), np.zeros(len(GRID))
        for place, threshold in enumerate(GRID):
            sets = known & (array > threshold)
            sizes = sets.sum(axis=1)
            rows = sizes > 0
            if rows.any():
                wrong = np.where(sets[rows], 1.0 - truth[rows], 0.0).sum(axis=1) / sizes[rows]
                rates[place] = wrong.mean()
                # The stake is fixed in advance because it must not depend on earlier tests.
                stake = STAKE_SHARE * self._delta
                logs[place] = -log_capital(wrong.round(12), 1 - self.level, stake)
        return self._lowest(rates, logs), int(known.any(axis=1).sum())

    def _of_label(self, array: Array, present: Array) -> tuple[float, int]:
        from scipy.stats import binom

        order = np.argsort(array, kind="stable")
        ranked = array[order].astype(np.float64)
        selected = len(ranked) - np.searchsorted(ranked, GRID, side="right")
        wrong = np.concatenate([[0], np.cumsum(~present[order][::-1])])[selected]
        some = np.maximum(selected, 1)
        rates = np.where(selected > 0, wrong / some, 1.0)
        logs = np.where(selected > 0, binom.logcdf(wrong, some, 1 - self.level), 0.0)
        return self._lowest(rates, logs), len(ranked)

    def _lowest(self, rates: Array, log_p_values: Array) -> float:
        """Return the lowest threshold whose precision is certified; ``NONE`` if none is.

        Args:
            rates: share of wrong labels at each threshold of the grid.
            log_p_values: for the hypothesis that the precision there is below the level.
        """
        if self.guarantee is None:
            passed = rates <= 1 - self.level
        else:
            passed = _fallback(log_p_values, self._delta)
        found = np.flatnonzero(passed)
        return float(GRID[found[-1]]) if found.size else NONE


def _fallback(log_p_values: Array, delta: float) -> Array:
    """Return the rejected hypotheses; the probability of any wrong rejection is at most delta."""
    share, budget = delta / len(log_p_values), 0.0
    rejected = np.zeros(len(log_p_values), dtype=bool)
    for place, log_p in enumerate(log_p_values):
        budget += share
        rejected[place] = log_p <= math.log(budget)
        budget = budget if rejected[place] else 0.0
    return rejected


# Betting -----------------------------------------------------------------------------------------


def log_capital(
    values: Array, alpha: float, delta: float, spreads: Sequence[float] = SPREADS
) -> float:
    r"""Return the log capital of bets that ``values`` in [0, 1] have a mean below α.

    Let $x_i \in [0, 1]$ be independent with the same mean. If that mean is $\alpha$ or more, the
    capital $\prod_i (1 + \nu(\alpha - x_i))$ of a gambler with a fixed stake $\nu \in [0,
    1/(1-\alpha)]$ has an expectation of at most 1. So has the mean of several such capitals. By
    Markov's inequality, it reaches $1/\delta$ with probability at most $\delta$ (Waudby-Smith &
    Ramdas, 2024).

    The capital falls whenever any $x_i$ rises. For nested sets, if all $x_i$ are monotone, there is
    one point at which it drops below $1/\delta$, and trying many thresholds needs no correction.
    """
    if not len(values):
        return 0.0
    counted, times = np.unique(values, return_counts=True)
    # Each stake is optimal for one variance; the variances do not depend on the values.
    variances = len(values) * alpha * (1 - alpha) * np.array(spreads)
    stakes = np.minimum(np.sqrt(2 * math.log(1 / delta) / variances), LARGEST / (1 - alpha))
    logs = np.log1p(stakes[:, None] * (alpha - counted)) @ times
    return float(np.logaddexp.reduce(logs)) - math.log(len(stakes))


def rows_needed(alpha: float, delta: float, spreads: Sequence[float] = SPREADS) -> int:
    """Return the smallest number of zeros with which the capital reaches 1/δ."""
    # The largest stake gives a lower limit; with so few rows it is usually the optimal stake.
    rows = math.ceil(math.log(1 / delta) / math.log1p(LARGEST * alpha / (1 - alpha)))
    while log_capital(np.zeros(rows), alpha, delta, spreads) < math.log(1 / delta):
        rows += 1
    return rows


Nonconformity = Literal["lac", "aps", "raps"]


class Coverage(Decision):
    r"""Select sets that contain the single true label of a row with probability ``level``.

    This is split conformal prediction, for data with exactly one true label per row. Every label
    gets a nonconformity score. The quantile is the ⌈(n + 1) level⌉-th smallest score of the true
    labels of n held-out rows. A set contains the labels whose score is at most the quantile.

    - ``"lac"``: 1 − probability. The sets are the smallest on average; some may be empty.
    - ``"aps"``: the sum of the probabilities of all labels at least as probable (Romano, Sesia &
      Candès, 2020), not randomised. Sets are larger, and their coverage varies less between easy
      and difficult rows.
    - ``"raps"``: the APS score plus ``penalty`` for each label beyond the first ``free_size``
      (Angelopoulos et al., 2021). Very large sets are rarer.

    APS and RAPS sets always contain the most probable label, which never lowers the coverage.

    Args:
        level: 1 − α, in (0, 1).
        method: the nonconformity score, see above.
        penalty: the penalty of RAPS; at least 0.
        free_size: the number of labels without a penalty in RAPS.

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
    guarantee = "expected"
    fitted_on = "truth"
    quantile: float
    num_rows: int
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

    def _fit(self, probabilities: Array, targets: Array) -> None:
        truth = _single_labels(targets)
        known = np.flatnonzero(truth >= 0)
        scores = self._nonconformity(probabilities[known])[np.arange(len(known)), truth[known]]
        self.quantile = conformal_quantile(scores, self.level, "with a known label")
        self.num_rows = len(known)

    @property
    def statement(self) -> str:
        return (
            "The set of a new row with one label contains it with a probability of at least "
            f"{100 * self.level:g} % on average, if new rows are drawn like the fitted ones."
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


def _single_labels(truth: Array) -> Array:
    """Return class indices, with −1 for unknown."""
    count = (truth == 1).sum(axis=1)
    unknown = (truth == UNKNOWN).all(axis=1)
    wrong = np.flatnonzero(((count != 1) | ((truth != 1) & (truth > 0)).any(axis=1)) & ~unknown)
    if wrong.size:
        raise checks.InputError(
            f"coverage needs exactly one true label per row; row {wrong[0]} has {count[wrong[0]]} "
            f"({wrong.size} such rows). For several labels per row, use recall or an average size."
        )
    return np.where(unknown, UNKNOWN, (truth == 1).argmax(axis=1))
