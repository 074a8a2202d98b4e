r"""Labels that depend on each other through how many of them an item has.

Independent labels say that a picture which is a cat or a dog, one in two each, shows both or
neither half of the time. Here the probability of a whole label set $y$ of an item is

$$P(y \mid x) \propto h(|y|) \prod_l \left(w_l \frac{p_l(x)}{1 - p_l(x)}\right)^{y_l}$$

with one factor $h$ for each number of labels (the last for "that many or more") and one $w_l$ for
each label's odds. The family is exponential: at the maximum of the likelihood the expected number
of items with 0, 1, 2, … labels is the real one on the data it was fitted on, hence so are the
expected hits of all queries for two labels together, for three, and so on.

It costs a pass over all labels of a row in place of the query's alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from credibly import checks
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.retrieve._diagram import ALWAYS, NEVER, Diagram, Keep
from credibly.types import Array, ArrayLike

_VERSION = 1

Counts: TypeAlias = list[Any]
"""Weight of "so many labels are present", by number; None where that cannot be."""


class Joint:
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

    def fit(self, probabilities: ArrayLike, targets: ArrayLike, labels: Sequence[str]) -> Joint:
        """Fit on predictions that were not trained on, and their truth (−1 unknown)."""
        from credibly.retrieve._joint_fit import fit_sizes

        chances = np.asarray(to_numpy(probabilities), np.float64)
        truth = np.asarray(to_numpy(targets))
        checks.matrix("probabilities", chances)
        checks.same_shapes(probabilities=chances, targets=truth)
        checks.probabilities(chances)
        checks.target_values(truth, soft=False)
        names = [str(name) for name in labels]
        if len(names) != chances.shape[1] or len(set(names)) != len(names):
            raise InputError(
                f"`labels` must name each of the {chances.shape[1]} columns once; got {len(names)} "
                f"names, {len(set(names))} different."
            )
        if not (truth >= 0).any():
            raise InputError("`targets` must hold some known truth to fit on; all are unknown.")
        # By name, as the arithmetic of queries has it.
        order = sorted(range(len(names)), key=names.__getitem__)
        self.labels = tuple(names[place] for place in order)
        self.odds, self.size_factors = fit_sizes(
            chances[:, order], truth[:, order], self.largest, self.ridge
        )
        return self

    def probability(
        self, query: Any, probabilities: ArrayLike, labels: Sequence[str] | None = None
    ) -> Array:
        """Probability that each row satisfies the query; columns as ``labels``, or as fitted."""
        from credibly.retrieve._probability import probability

        return probability(query, probabilities, self.labels if labels is None else labels, self)

    def check(self, labels: Sequence[str]) -> None:
        """It must be fitted, and on exactly these labels: it reads them all."""
        self._check_fitted()
        if odd := sorted(set(labels) ^ set(self.labels)):
            where = "only in the predictions" if odd[0] in set(labels) else "only in `joint`"
            raise InputError(
                f"`joint` must be fitted on the labels of the predictions; {odd[0]!r} is {where}. "
                "Fit it on held-out predictions of the same model."
            )

    def _check_fitted(self) -> None:
        if not self.labels:
            raise InputError("`joint` must be fitted; call `joint.fit(probabilities, targets, …)`.")

    def in_order(self, first: Sequence[str]) -> tuple[str, ...]:
        """All labels: those of the query, then the rest by name."""
        return (*first, *(name for name in self.labels if name not in set(first)))

    def evaluate(
        self,
        found: Diagram,
        labels: Sequence[str],
        present: Sequence[Any],
        keep: Keep,
        at_most_one: Callable[[Any], Any],
    ) -> Any:
        """Probability of the formula from the columns (or terms of SQL) of ``in_order``."""
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
        return at_most_one(
            self._weighted(self._satisfied(found, chances, rest, keep)) / self._weighted(anything)
        )

    def _satisfied(
        self, found: Diagram, chances: Sequence[Any], rest: Counts, keep: Keep
    ) -> Counts:
        """The diagram with counts for values: how many labels a satisfying row has."""
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
        self, counts: Counts, start: int, stop: int, chances: Sequence[Any], keep: Keep
    ) -> Counts:
        for place in range(stop - 1, start - 1, -1):
            counts = self._either(chances[place], counts, counts, keep)
        return counts

    def _either(self, chance: Any, high: Counts, low: Counts, keep: Keep) -> Counts:
        """Counts after one more label: present with ``chance`` and then ``high``, else ``low``."""
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

    # Files -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything fitted, as plain values for JSON."""
        self._check_fitted()
        return {
            "joint": _VERSION,
            "labels": list(self.labels),
            "odds": [float(value) for value in self.odds],
            "size_factors": [float(value) for value in self.size_factors],
            "ridge": self.ridge,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Joint:
        """The inverse of ``state``."""
        try:
            known = int(state["joint"]) == _VERSION
            factors = np.asarray(state["size_factors"], np.float64)
            odds = np.asarray(state["odds"], np.float64)
            labels = tuple(str(name) for name in state["labels"])
            joint = cls(largest=len(factors) - 1, ridge=float(state["ridge"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"a joint's state must come from `Joint.state()`; {error!r}."
            ) from error
        whole = np.isfinite(factors).all() and np.isfinite(odds).all()
        if not (known and whole and len(odds) == len(labels) > 0 and min(*odds, *factors) > 0):
            raise InputError("a joint's state must come from `Joint.state()` of this version.")
        joint.labels, joint.odds, joint.size_factors = labels, odds, factors
        return joint

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the state as JSON."""
        with atomic_path(path) as beside:
            beside.write_text(json.dumps(self.state(), ensure_ascii=False), encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Joint:
        """The inverse of ``write``."""
        try:
            return cls.from_state(json.loads(Path(path).read_text(encoding="utf-8")))
        except ValueError as error:
            raise InputError(f"{path} must be written by `Joint.write`; {error}") from error


def _times(chance: Any, value: Any) -> Any:
    return chance if isinstance(value, float) else chance * value
