"""Rules that guarantee coverage, recall or precision, and what a guarantee can be."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np

from credibly import checks
from credibly.decide.base import Decision
from credibly.decide.thresholds import ALL, NONE, FittedThresholds
from credibly.runtime import cumulative_scores, just_above, just_below
from credibly.targets import UNKNOWN
from credibly.types import Array, JsonObject

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


def as_guarantee(guarantee: object) -> Guarantee:
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


def statement_of(guarantee: Guarantee, fitted: str, expected: str, certain: str) -> str:
    """Return a guarantee as a sentence.

    Args:
        guarantee: the guarantee.
        fitted: what holds on the fitted rows, where nothing is guaranteed.
        expected: what holds in expectation.
        certain: what holds with a probability.
    """
    alike = (
        "This assumes that new rows are drawn like the fitted rows and that these were used for "
        "nothing else."
    )
    if guarantee is None:
        return f"{fitted}, without a guarantee."
    if guarantee == "expected":
        return f"{expected}. {alike}"
    return f"With a probability of at least {100 - 100 * guarantee[1]:g} %, {certain}. {alike}"


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
    _settings = ("level", "guarantee", "per")
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
        """Return the threshold for all labels, and the number of rows that count."""

    @abstractmethod
    def _of_label(self, array: Array, present: Array) -> tuple[float, int]:
        """Return the threshold of one label by its known rows, and the number that count."""

    @property
    def _delta(self) -> float:
        return self.guarantee[1] if isinstance(self.guarantee, tuple) else 0.1


class Recall(CertifiedThresholds):
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
                "A label that is present in a new row is in its set with a probability of at least "
                f"{level}, for each label"
            )
            certain = f"for each label by itself, {level} or more of the rows that have it get it"
        fitted = (
            f"On the fitted rows the recall was at least {level}; new rows drawn alike come close"
        )
        return statement_of(self.guarantee, fitted, expected, certain)

    def _of_rows(self, array: Array, truth: Array, known: Array) -> tuple[float, int]:
        """Return the highest threshold that the guarantee allows, by bisection."""
        present = np.maximum(truth, 0)
        rows = np.flatnonzero(present.sum(axis=1) > 0)
        self._require_rows(len(rows))
        array, present = array[rows], present[rows]
        candidates = np.unique(array[present > 0])
        low, high = 0, len(candidates)  # at candidates[low] all is certified: nothing is missed
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
        # 1 − 2/3 − 1/3 is not 0: values that should be alike are made so.
        return log_capital(missed.round(12), alpha, self._delta) >= math.log(1 / self._delta)

    def _of_label(self, array: Array, present: Array) -> tuple[float, int]:
        ranked = np.sort(array[present])
        misses = self._misses_allowed(len(ranked))
        if misses < 0:
            return ALL, len(ranked)
        return just_below(float(ranked[min(misses, len(ranked) - 1)])), len(ranked)

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
        return int(np.searchsorted(tail, self._delta, side="right")) - 1


class Precision(CertifiedThresholds):
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

    def __init__(
        self,
        level: float = 0.9,
        guarantee: tuple[Literal["probability"], float] | None = ("probability", 0.1),
        per: Per = "row",
    ) -> None:
        super().__init__(level, guarantee, per)
        if guarantee == "expected":
            raise checks.InputError(
                '`guarantee` of a precision must be ("probability", delta) or None; got '
                '"expected". Precision is not monotone, so it cannot be controlled in expectation.'
            )

    @property
    def statement(self) -> str:
        level = f"{100 * self.level:g} %"
        certain = (
            f"at least {level} of the labels in a set are right on average, over sets that are not "
            "empty"
        )
        if self.per == "label":
            certain = f"for each label by itself, {level} or more of the rows that get it have it"
        fitted = f"On the fitted rows the precision was at least {level}; new rows drawn alike "
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
                # The stake is fixed beforehand: it must not depend on the tests before.
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
            log_p_values: of the hypothesis that the precision there is below the level.
        """
        if self.guarantee is None:
            passed = rates <= 1 - self.level
        else:
            passed = _fallback(log_p_values, self._delta)
        found = np.flatnonzero(passed)
        return float(GRID[found[-1]]) if found.size else NONE


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


def log_capital(
    values: Array, alpha: float, delta: float, spreads: Sequence[float] = SPREADS
) -> float:
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
    # Stakes that are best for a few variances; they do not depend on the values.
    variances = len(values) * alpha * (1 - alpha) * np.array(spreads)
    stakes = np.minimum(np.sqrt(2 * math.log(1 / delta) / variances), LARGEST / (1 - alpha))
    logs = np.log1p(stakes[:, None] * (alpha - counted)) @ times
    return float(np.logaddexp.reduce(logs)) - math.log(len(stakes))


def rows_needed(alpha: float, delta: float, spreads: Sequence[float] = SPREADS) -> int:
    """Return the fewest values, all 0, with which the capital reaches 1/δ."""
    # With the largest stake, which is an upper bound; mostly it is the stake of so few rows.
    rows = math.ceil(math.log(1 / delta) / math.log1p(LARGEST * alpha / (1 - alpha)))
    while log_capital(np.zeros(rows), alpha, delta, spreads) < math.log(1 / delta):
        rows += 1
    return rows


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

    def _fit(self, probabilities: Array, targets: Array) -> None:
        truth = _single_labels(targets)
        known = np.flatnonzero(truth >= 0)
        scores = self._nonconformity(probabilities[known])[np.arange(len(known)), truth[known]]
        self.quantile = conformal_quantile(scores, self.level, "with a known label")
        self.num_rows = len(known)

    @property
    def statement(self) -> str:
        return (
            f"The set of a new row contains its true label with a probability of at least "
            f"{100 * self.level:g} % on average. This assumes that every row has exactly one true "
            "label, that new rows are drawn like the fitted rows, and that these were used for "
            "nothing else."
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
    """Return class indices, −1 where unknown."""
    count = (truth == 1).sum(axis=1)
    unknown = (truth == UNKNOWN).all(axis=1)
    wrong = np.flatnonzero(((count != 1) | ((truth != 1) & (truth > 0)).any(axis=1)) & ~unknown)
    if wrong.size:
        raise checks.InputError(
            f"Coverage needs exactly one true label per row; row {wrong[0]} has {count[wrong[0]]} "
            f"({wrong.size} such rows). For several labels per row use `AverageSize`."
        )
    return np.where(unknown, UNKNOWN, (truth == 1).argmax(axis=1))
