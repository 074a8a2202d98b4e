"""Rules that compare probabilities with given or fitted thresholds, or with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from credibly import checks
from credibly.arrays import like
from credibly.decide.base import Decision, matrix
from credibly.runtime import just_below
from credibly.types import Array, ArrayLike, JsonObject


class Threshold(Decision):
    """Select labels with a probability of at least ``threshold``; nothing to fit.

    With calibrated probabilities, ½ minimises the expected number of wrong labels. If a false
    positive costs c and a false negative m, c/(c + m) minimises the expected cost (see ``Cost``).

    A probability that is below the threshold only by rounding in float32 counts as equal.

    Args:
        threshold: in [0, 1]; one for all labels, or a dict with thresholds by label name.
        default: threshold of the labels that a dict does not name.
        labels: names of the columns, required with a dict. ``for_labels`` sets them later, and
            ``cr.write_sets`` takes them from the file.

    Example:
        >>> Threshold(0.5).predict(np.array([[0.2, 0.5, 0.9]]))
        array([[False,  True,  True]])
        >>> rule = Threshold({"cat": 0.3}, default=0.6).for_labels(["cat", "dog"])
        >>> rule.predict(np.array([[0.4, 0.4]]))
        array([[ True, False]])
    """

    name = "threshold"
    fitted_on = "nothing"
    _since: ClassVar[JsonObject] = {"default": 0.5, "labels": None}

    def __init__(
        self,
        threshold: float | Mapping[str, float] = 0.5,
        default: float = 0.5,
        labels: Sequence[str] | None = None,
    ) -> None:
        self.threshold: float | dict[str, float]
        if isinstance(threshold, Mapping):
            self.threshold = {
                str(name): checks.fraction(f"threshold of {name!r}", value)
                for name, value in threshold.items()
            }
        else:
            self.threshold = checks.fraction("threshold", threshold)
        self.default = checks.fraction("default", default)
        self.labels = None if labels is None else tuple(map(str, labels))
        if self.labels is not None and isinstance(self.threshold, dict):
            for name in self.threshold:
                if name not in self.labels:
                    hint = checks.nearest(name, self.labels)
                    raise checks.InputError(f"there is no label {name!r} to threshold. {hint}")

    def for_labels(self, labels: Sequence[str]) -> Threshold:
        if not isinstance(self.threshold, dict):
            return self
        return Threshold(self.threshold, self.default, labels)

    @property
    def selects_above(self) -> Array:
        return np.array(self._columns())

    @property
    def statement(self) -> str:
        least = "its threshold"
        if isinstance(self.threshold, float):
            least = f"{100 * self.threshold:.3g} %"
        return (
            f"Each label in a set is present with a probability of at least {least}, if the "
            "probabilities are calibrated."
        )

    def _columns(self) -> list[float]:
        """Return one threshold per label, or a single one for all."""
        if not isinstance(self.threshold, dict):
            return [self.threshold]
        if self.labels is None:
            raise checks.InputError(
                "thresholds by label name need the names of the columns; call "
                "`.for_labels(labels)` first."
            )
        return [self.threshold.get(name, self.default) for name in self.labels]

    def comparison(self) -> JsonObject:
        return {"rule": "above", "thresholds": just_below(np.array(self._columns())).tolist()}

    def __repr__(self) -> str:
        if isinstance(self.threshold, float):
            return f"Threshold(threshold={self.threshold!r})"
        return f"Threshold({self.threshold!r}, default={self.default!r})"


class TopK(Decision):
    """Select the ``k`` most probable labels of each row; of tied labels, the first ones.

    Probabilities that differ only by rounding in float32 are equal.

    Args:
        k: at least 1, at most the number of labels.

    Example:
        >>> TopK(2).predict(np.array([[0.2, 0.5, 0.2]]))
        array([[ True,  True, False]])
    """

    name = "top-k"
    fitted_on = "nothing"

    def __init__(self, k: int) -> None:
        if k != int(k) or k < 1:
            raise checks.InputError(f"`k` must be a whole number of at least 1; got {k!r}.")
        self.k = int(k)

    @property
    def statement(self) -> str:
        labels = "1 label" if self.k == 1 else f"{self.k} labels"
        return f"Every set has exactly {labels}. Whether they are right is not guaranteed."

    def comparison(self) -> JsonObject:
        return {"rule": "most-probable", "k": self.k}


class Cost(Decision):
    r"""Select, leave out or review each label, whichever has the lowest expected cost.

    For a label with probability p, the expected cost is (1 − p) · ``false_alarm`` if it is selected
    and p · ``miss`` if it is left out. A review by a person costs ``review`` and is always right.
    Each label gets the cheapest of the three: it is accepted from p ≥ 1 − review/false_alarm,
    rejected for p < review/miss, and reviewed in between. If that interval is empty, or without
    ``review``, it is accepted from p ≥ false_alarm/(false_alarm + miss).

    Nothing is fitted, so calibrate first: the expected cost is right if the probabilities are.

    Args:
        miss: cost of leaving out a label that is present, above 0.
        false_alarm: cost of selecting a label that is absent, above 0.
        review: cost of a review by a person, above 0; None without review.

    Example:
        >>> cost = Cost(miss=5, false_alarm=1, review=0.25)
        >>> probabilities = np.array([[0.02, 0.3, 0.9]])
        >>> cost.predict(probabilities), cost.to_review(probabilities)
        (array([[False, False,  True]]), array([[False,  True, False]]))
        >>> cost.expected(probabilities).round(2)
        array([0.45])
    """

    name = "cost"
    fitted_on = "nothing"

    def __init__(self, miss: float, false_alarm: float = 1.0, review: float | None = None) -> None:
        self.miss = checks.positive("miss", miss)
        self.false_alarm = checks.positive("false_alarm", false_alarm)
        self.review = None if review is None else checks.positive("review", review)

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the lower limits of review and of acceptance; they are equal without review."""
        even = self.false_alarm / (self.false_alarm + self.miss)
        if self.review is None:
            return even, even
        low, high = self.review / self.miss, 1 - self.review / self.false_alarm
        return (low, high) if low < high else (even, even)

    @property
    def reviews(self) -> bool:
        return self.review is not None

    @property
    def selects_above(self) -> Array:
        return np.array([self.bounds[1]])

    @property
    def statement(self) -> str:
        low, high = self.bounds
        review = f", and those of at least {100 * low:.3g} % go to a person" if low < high else ""
        return (
            f"Labels with a probability of at least {100 * high:.3g} % are selected{review}. No "
            "rule has a lower average cost, if the probabilities are calibrated."
        )

    def to_review(self, probabilities: ArrayLike) -> Any:
        array = matrix(probabilities)
        low = np.float64(self.bounds[0])
        return like((array > just_below(low)) & ~self._sets(array), probabilities)

    def expected(self, probabilities: ArrayLike) -> Any:
        """Return the expected cost of each row's decisions, shape (n,), if p is calibrated."""
        array = matrix(probabilities).astype(np.float64)
        chosen, looked = self._sets(array), self.to_review(array)
        each = np.where(chosen, (1 - array) * self.false_alarm, array * self.miss)
        return like(np.where(looked, self.review or 0.0, each).sum(axis=1), probabilities)

    def comparison(self) -> JsonObject:
        return {"rule": "above", "thresholds": [just_below(self.bounds[1])]}

    def __repr__(self) -> str:
        look = "" if self.review is None else f", review={self.review:g}"
        return f"Cost(miss={self.miss:g}, false_alarm={self.false_alarm:g}{look})"


ALL, NONE = -1.0, 1.0
"""A threshold that every probability exceeds, and a threshold that none exceeds."""


class FittedThresholds(Decision):
    """A rule that selects labels whose probability exceeds ``thresholds``.

    Attributes:
        thresholds: one value per label, or a single one for all labels.
    """

    thresholds: Array
    fitted_on = "truth"

    @property
    def selects_above(self) -> Array:
        return self.thresholds

    @property
    def always_selected(self) -> Array:
        return self._labels_with(self.thresholds < 0)

    @property
    def never_selected(self) -> Array:
        return self._labels_with(self.thresholds >= 1)

    def _labels_with(self, condition: Array) -> Array:
        return np.flatnonzero(condition) if len(self.thresholds) > 1 else np.empty(0, dtype=int)

    def comparison(self) -> JsonObject:
        return {"rule": "above", "thresholds": self.thresholds.tolist()}


class BestF(FittedThresholds):
    r"""Use, for each label, the threshold with the highest $F_\beta$ on the fitted rows.

    $F_\beta = (1+\beta^2)\,TP / (\beta^2 P + S)$ with $P$ positives and $S$ selected. The threshold
    is the midpoint between the last selected probability and the next one. Unknown targets are
    ignored. A soft target counts as a positive of that weight. For a label without known positives
    $F$ is not defined; it uses the threshold that is best for all labels pooled.

    Args:
        beta: in (0, 10⁶]. A value above 1 weights recall more, a value below 1 precision.
        min_precision: minimum precision on the fitted rows; only thresholds that reach it are
            considered. A label without such a threshold is never selected. None: no minimum.

    Attributes:
        thresholds: one value per label.

    Example:
        >>> probabilities = np.array([[0.9, 0.4], [0.8, 0.3], [0.3, 0.2], [0.1, 0.6]])
        >>> targets = np.array([[1, 1], [0, 1], [1, 0], [0, 0]])
        >>> BestF().fit(probabilities, targets).thresholds.round(3)
        array([0.2 , 0.25])
    """

    name = "best-f"
    _fitted = ("thresholds",)
    _since: ClassVar[JsonObject] = {"min_precision": None}

    def __init__(self, beta: float = 1.0, min_precision: float | None = None) -> None:
        self.beta = checks.between("beta", checks.positive("beta", beta), 0, 1e6)
        if min_precision is not None:
            checks.fraction("min_precision", min_precision, low_open=True)
        self.min_precision = None if min_precision is None else float(min_precision)

    def _fit(self, probabilities: Array, targets: Array) -> None:
        array, truth, known = probabilities, targets, targets >= 0
        if not (truth > 0).any():
            raise checks.InputError(
                f"BestF needs at least one known positive; got none in {array.shape[0]} rows × "
                f"{array.shape[1]} labels. Use `Threshold` or `AverageSize` instead."
            )
        self._pooled = self._best(array[known], truth[known])
        self.thresholds = np.array(
            [
                self._of_label(array[rows, label], truth[rows, label])
                for label, rows in enumerate(known.T)
            ]
        )

    def _of_label(self, probabilities: Array, targets: Array) -> float:
        if targets.sum() > 0:
            return self._best(probabilities, targets)
        # Without a positive, every selected label is wrong, unless no truth is known at all.
        wrong = self.min_precision is not None and len(targets) > 0
        return NONE if wrong else self._pooled

    def _best(self, probabilities: Array, targets: Array) -> float:
        return _best_threshold(probabilities, targets, self.beta, self.min_precision or 0.0)

    @property
    def statement(self) -> str:
        least = ""
        if self.min_precision is not None:
            least = f" among thresholds with a precision of at least {self.min_precision:g}"
        return (
            f"The F{self.beta:g} of each label was the highest possible{least} on the fitted "
            "rows. For labels with many known positives, similar new rows come close, without a "
            "guarantee."
        )


def _best_threshold(
    probabilities: Array, targets: Array, beta: float, min_precision: float
) -> float:
    """Return the threshold that probabilities must exceed; some target must be above 0."""
    positives = float(targets.sum())
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order].astype(np.float64)
    thresholds = just_below((ranked + np.append(ranked[1:], 0.0)) / 2)
    taken = len(ranked) - np.searchsorted(ranked[::-1], thresholds, side="right")
    hits = np.cumsum(targets[order], dtype=np.float64)[taken - 1]
    score = (1 + beta**2) * hits / (beta**2 * positives + taken)
    score[hits < min_precision * taken * (1 - 1e-12)] = -1.0
    best = int(score.argmax())
    return float(thresholds[best]) if score[best] >= 0 else NONE
