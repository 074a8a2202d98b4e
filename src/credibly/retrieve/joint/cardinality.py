r"""Labels that depend on each other through how many of them an item has.

Suppose that a picture shows either a cat or a dog, each with probability ½. Under independence it
would show both or neither half of the time. Here the probability of a label set $y$ of an item is

$$P(y \mid x) \propto h(|y|) \prod_l \left(w_l \frac{p_l(x)}{1 - p_l(x)}\right)^{y_l}$$

with one factor $h$ for each number of labels (the last for "that many or more") and one $w_l$ for
each label's odds. The family is exponential: at the maximum of the likelihood the expected number
of items with 0, 1, 2, … labels is the real one on the data it was fitted on, hence so are the
expected hits of all queries for two labels together, for three, and so on.

It costs a pass over all labels of a row in place of the query's alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.retrieve.joint.base import JointModel, fitting_truth, read_state
from credibly.retrieve.query.diagram import ALWAYS, NEVER, Diagram, Keep
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike

SIZES_VERSION = 1
MOST_FITTED = 10_000

Counts: TypeAlias = list[Any]
"""Weight of "so many labels are present", by number; None where that cannot be."""


class Joint(JointModel):
    """Query probabilities for labels that depend on each other; fit on held-out predictions.

    Args:
        largest: numbers of labels from here on share one factor.
        ridge: how strongly each label's odds are held at the predicted ones.

    Example:
        >>> probabilities = np.full((400, 2), 0.5)   # a cat or a dog, never both
        >>> targets = np.tile([[1, 0], [0, 1]], (200, 1))
        >>> joint = Joint().fit(probabilities, targets, labels=["cat", "dog"])
        >>> joint.probability("+cat +dog", [[0.5, 0.5]]).round(2)
        array([0.])
        >>> joint.probability("cat | dog", [[0.5, 0.5]]).round(2)
        array([1.])
    """

    def __init__(self, largest: int = 4, ridge: float = 30.0) -> None:
        if largest < 1:
            raise InputError(f"`largest` must be at least 1; got {largest!r}.")
        self.largest = int(largest)
        self.ridge = checks.positive("ridge", ridge)
        self.labels: tuple[str, ...] = ()
        self.odds: Array = np.ones(0)
        self.size_factors: Array = np.ones(self.largest + 1)

    def fit(
        self,
        probabilities: ArrayLike,
        targets: TargetsLike,
        labels: Sequence[str],
        coding: Coding | None = None,
    ) -> Joint:
        """Fit on predictions that were not trained on, and their truth.

        At most 10,000 rows are used; more change the factors by less than their standard error.
        """
        from credibly.retrieve.joint.cardinality_fit import fit_sizes

        chances, truth, self.labels = fitting_truth(probabilities, targets, labels, coding)
        if len(chances) > MOST_FITTED:
            rows = np.random.default_rng(0).permutation(len(chances))[:MOST_FITTED]
            chances, truth = chances[rows], truth[rows]
        self.odds, self.size_factors = fit_sizes(chances, truth, self.largest, self.ridge)
        return self

    def evaluate(
        self,
        found: Diagram,
        labels: Sequence[str],
        present: Sequence[Any],
        keep: Keep,
        clip: Callable[[Any], Any],
    ) -> Any:
        if found.root in (NEVER, ALWAYS):
            return 0.0 * present[0] + float(found.root)
        by_name = dict(zip(self.labels, self.odds, strict=True))
        chances = []
        for name, chance in zip(labels, present, strict=True):
            shifted = keep(chance * float(by_name[name]))
            chances.append(keep(shifted / (shifted + (1.0 - chance))))
        asked = len(found.labels)
        rest: Counts = [1.0]
        for chance in chances[asked:]:
            rest = self._either(chance, rest, rest, keep)
        anything = self._skipping(rest, 0, asked, chances, keep)
        return clip(
            self._weighted(self._satisfied(found, chances, rest, keep)) / self._weighted(anything)
        )

    def _satisfied(
        self, found: Diagram, chances: Sequence[object], rest: Counts, keep: Keep
    ) -> Counts:
        """Return the diagram evaluated on counts: the number of labels of a satisfying row."""
        asked = len(found.labels)
        values: dict[int, tuple[int, Counts]] = {NEVER: (asked, []), ALWAYS: (asked, rest)}
        for place, node in enumerate(found.nodes, start=2):
            # A label that a branch does not ask for still counts.
            high, low = (
                self._skipping(counts, node.label + 1, below, chances, keep)
                for below, counts in (values[node.high], values[node.low])
            )
            values[place] = (node.label, self._either(chances[node.label], high, low, keep))
        top, counts = values[found.root]
        return self._skipping(counts, 0, top, chances, keep)

    def _skipping(
        self, counts: Counts, start: int, stop: int, chances: Sequence[object], keep: Keep
    ) -> Counts:
        for place in range(stop - 1, start - 1, -1):
            counts = self._either(chances[place], counts, counts, keep)
        return counts

    def _either(self, chance: Any, high: Counts, low: Counts, keep: Keep) -> Counts:
        """Return the counts after one more label: ``high`` with ``chance``, otherwise ``low``."""
        up: Counts = [None, *high][: self.largest + 1] if high else []
        if len(high) > self.largest and high[self.largest] is not None:
            last = up[self.largest]
            up[self.largest] = high[self.largest] if last is None else last + high[self.largest]
        absent = 1.0 - chance
        result: Counts = []
        for size in range(max(len(up), len(low))):
            one = up[size] if size < len(up) else None
            other = low[size] if size < len(low) else None
            terms = [_times(x, y) for x, y in ((chance, one), (absent, other)) if y is not None]
            result.append(
                None if not terms else keep(terms[0] if len(terms) == 1 else terms[0] + terms[1])
            )
        return result

    def _weighted(self, counts: Counts) -> Any:
        terms = [
            value * float(factor)
            for value, factor in zip(counts, self.size_factors, strict=False)
            if value is not None
        ]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def _log_likelihood(self, chances: Array, truth: Array) -> Array:
        from credibly.retrieve.joint.cardinality_fit import log_likelihood

        return log_likelihood(chances, truth, self.odds, self.size_factors)

    # Files -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        self.check_fitted()
        return {
            "joint": SIZES_VERSION,
            "labels": list(self.labels),
            "odds": [float(value) for value in self.odds],
            "size_factors": [float(value) for value in self.size_factors],
            "ridge": self.ridge,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Joint:
        """Return the model of a ``state``."""
        try:
            known = int(state["joint"]) == SIZES_VERSION
            factors = np.asarray(state["size_factors"], np.float64)
            odds = np.asarray(state["odds"], np.float64)
            labels = tuple(str(name) for name in state["labels"])
            joint = cls(largest=len(factors) - 1, ridge=float(state["ridge"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"a joint's state must come from `Joint.state()`; {error!r}."
            ) from error
        finite = np.isfinite(factors).all() and np.isfinite(odds).all()
        if not (known and finite and len(odds) == len(labels) > 0 and min(*odds, *factors) > 0):
            raise InputError("a joint's state must come from `Joint.state()` of this version.")
        joint.labels, joint.odds, joint.size_factors = labels, odds, factors
        return joint

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Joint:
        """Return the model that ``write`` put into a file."""
        try:
            return cls.from_state(read_state(path))
        except InputError as error:
            raise InputError(f"{path} must be written by `Joint.write`; {error}") from error


def _times(chance: Any, value: Any) -> Any:
    return chance if isinstance(value, float) else chance * value
