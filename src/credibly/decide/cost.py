"""Cost: accept, reject, or ask a person, whichever is expected to cost the least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from credibly import checks
from credibly.arrays import like
from credibly.decide.base import Decision, matrix
from credibly.decide.rounding import just_below
from credibly.targets import Coding
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class Cost(Decision):
    r"""Select the labels whose selection is expected to cost less than leaving them out.

    With probability p, selecting a label costs (1 − p) · ``false_alarm`` in expectation, leaving it
    out costs p · ``miss``, and a person who looks at it costs ``review`` and is always right. The
    cheapest of the three is chosen, label by label: accept from p ≥ 1 − review/false_alarm, reject
    below p < review/miss, review in between; where that interval is empty, or without ``review``,
    accept from p ≥ false_alarm/(false_alarm + miss).

    Nothing is fitted, so calibrate first: the expected cost is as right as the probabilities.

    Args:
        miss: cost of leaving out a label that is present, above 0.
        false_alarm: cost of selecting a label that is absent, above 0.
        review: cost of a look by a person, above 0; None where nobody looks.

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
    _settings = ("miss", "false_alarm", "review")

    def __init__(self, miss: float, false_alarm: float = 1.0, review: float | None = None) -> None:
        self.miss = checks.positive("miss", miss)
        self.false_alarm = checks.positive("false_alarm", false_alarm)
        self.review = None if review is None else checks.positive("review", review)

    def fit(
        self, probabilities: Any = None, targets: Any = None, *, coding: Coding | None = None
    ) -> Self:
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """Return where review begins and where acceptance begins; equal where nobody looks."""
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
        look = f", are looked at by a person from {low:.4g}" if low < high else ""
        return (
            f"Labels are selected from a probability of {high:.4g} on{look}, which has the lowest "
            "expected cost of all rules if the probabilities are calibrated; how many labels a set "
            "holds is not guaranteed."
        )

    def _sets(self, probabilities: Array) -> Array:
        return probabilities > just_below(np.float64(self.bounds[1]))

    def to_review(self, probabilities: Any) -> Any:
        array = matrix(probabilities)
        low = np.float64(self.bounds[0])
        return like((array > just_below(low)) & ~self._sets(array), probabilities)

    def expected(self, probabilities: Any) -> Any:
        """Return the expected cost of each row's decisions, shape (n,), if p is calibrated."""
        array = matrix(probabilities).astype(np.float64)
        chosen, looked = self._sets(array), self.to_review(array)
        each = np.where(chosen, (1 - array) * self.false_alarm, array * self.miss)
        return like(np.where(looked, self.review or 0.0, each).sum(axis=1), probabilities)

    def to_module(self) -> nn.Module:
        from credibly.decide.torch_modules import Above

        return Above([just_below(self.bounds[1])])

    def __repr__(self) -> str:
        look = "" if self.review is None else f", review={self.review:g}"
        return f"Cost(miss={self.miss:g}, false_alarm={self.false_alarm:g}{look})"
