"""Label sets by a joint model: the most probable set, and sets that contain all true labels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np

from credibly import checks
from credibly.checks import InputError
from credibly.decide.base import Decision
from credibly.decide.guarantees import conformal_quantile
from credibly.retrieve.joint.model import Joint
from credibly.types import Array, JsonObject


class _JointDecision(Decision):
    """A decision by a joint model; columns are those of ``for_labels``, else of the fit."""

    def __init__(self, joint: Joint) -> None:
        joint.check_fitted()
        self.joint = joint
        self.labels: tuple[str, ...] = joint.labels

    @classmethod
    def _settings(cls) -> tuple[str, ...]:
        return super()._settings()[1:]  # the joint model has a state of its own

    def for_labels(self, labels: Sequence[str]) -> Self:
        self.joint.check(labels)
        bound = copy(self)
        bound.labels = tuple(labels)
        return bound

    def state(self) -> JsonObject:
        return {**super().state(), "labels": list(self.labels), "joint": self.joint.state()}

    def _checked(self, probabilities: Array) -> Array:
        if probabilities.shape[1] != len(self.labels):
            raise InputError(
                f"`probabilities` must have one column per label of `joint`, {len(self.labels)}; "
                f"got {probabilities.shape[1]}."
            )
        return probabilities


class MostProbableSet(_JointDecision):
    """Select the most probable label set of each row under a joint model.

    This set is most often right as a whole (subset accuracy). It is not always the set with the
    most right labels.

    Args:
        joint: a fitted ``Joint``.

    Example:
        >>> probabilities = np.full((400, 2), 0.5)   # a cat or a dog, never both
        >>> targets = np.tile([[1, 0], [0, 1]], (200, 1))
        >>> joint = Joint(1).fit(probabilities, targets, labels=["cat", "dog"])
        >>> MostProbableSet(joint).predict([[0.6, 0.55], [0.4, 0.45]])
        array([[ True, False],
               [False,  True]])
    """

    name = "most-probable-set"
    fitted_on = "nothing"

    @property
    def statement(self) -> str:
        return (
            "Each row has the most probable label set under the joint model. Nothing is "
            "guaranteed about it."
        )

    def _sets(self, probabilities: Array) -> Array:
        return self.joint.most_probable(self._checked(probabilities), self.labels)[0]


class JointCoverage(_JointDecision):
    r"""Select sets that contain all true labels of a row with probability ``level``.

    This is split conformal prediction with a joint score. The labels of a row are added in order of
    descending probability. Let $m$ be the smallest number of labels that contains all true ones.
    The nonconformity score of a row is the probability, under the joint model, that all its labels
    are among the first $m$. The quantile is the ⌈(n + 1) level⌉-th smallest score of n held-out
    rows, and a set has the largest $m$ whose probability is at most the quantile. The guarantee
    holds even if the joint model is wrong; a better model gives smaller sets.

    Args:
        joint: a fitted ``Joint``. It must not be fitted on the rows given to ``fit``.
        level: 1 − α, in (0, 1).

    Attributes:
        quantile: the largest score of a set.
        num_rows: number of held-out rows whose truth is known.

    Example:
        >>> probabilities = np.tile([[0.9, 0.4, 0.1]], (40, 1))
        >>> targets = np.tile([[1, 0, 0], [1, 1, 0]], (20, 1))
        >>> decision = JointCoverage(Joint.independent(["a", "b", "c"]), 0.9)
        >>> decision.fit(probabilities, targets).predict([[0.9, 0.4, 0.1]])
        array([[ True,  True, False]])
    """

    name = "joint-coverage"
    guarantee = "expected"
    fitted_on = "truth"
    quantile: float
    num_rows: int
    _fitted = ("quantile", "num_rows")

    def __init__(self, joint: Joint, level: float = 0.9) -> None:
        super().__init__(joint)
        self.level = checks.fraction("level", level, low_open=True, high_open=True)

    def _fit(self, probabilities: Array, targets: Array) -> None:
        # Rows with an unknown label are left out.
        known = ((targets == 0) | (targets == 1)).all(axis=1)
        order, contained = self._contained(self._checked(probabilities)[known])
        present = np.take_along_axis(targets[known] == 1, order, axis=1)
        # The rank of the last true label, counted from 1; 0 without a true label.
        last = np.where(present, np.arange(1, present.shape[1] + 1), 0).max(axis=1)
        scores = np.take_along_axis(contained, last[:, None], axis=1)[:, 0]
        self.quantile = conformal_quantile(scores, self.level, "whose labels are all known")
        self.num_rows = int(known.sum())

    @property
    def statement(self) -> str:
        return (
            "The set of a new row contains all its true labels with a probability of at least "
            f"{self.level:g}, if new rows are drawn like the fitted ones."
        )

    def _sets(self, probabilities: Array) -> Array:
        order, contained = self._contained(self._checked(probabilities))
        size = (contained <= self.quantile).sum(axis=1) - 1  # −1 if even the empty set is too large
        sets = np.zeros(probabilities.shape, bool)
        np.put_along_axis(sets, order, np.arange(order.shape[1]) < size[:, None], axis=1)
        return sets

    def _contained(self, probabilities: Array) -> tuple[Array, Array]:
        """Return labels by descending probability, and P(all labels are among the first 0 … L)."""
        order = np.argsort(-probabilities, axis=1, kind="stable")
        contained = self.joint.contained(probabilities, order, self.labels)
        return order, np.maximum.accumulate(contained, axis=1)
