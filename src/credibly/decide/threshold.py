"""Threshold: every label with at least a given probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from credibly import checks
from credibly.decide.base import Decision
from credibly.decide.rounding import just_below
from credibly.targets import Coding
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class Threshold(Decision):
    """Select labels with a probability of at least ``threshold``; nothing to fit.

    With calibrated probabilities, ½ minimises the expected number of wrong labels. Where a false
    positive costs c and a false negative m, c/(c + m) minimises the expected cost (see ``Cost``).

    A probability that is below the threshold by no more than rounding in float32 reaches it.

    Args:
        threshold: in [0, 1]; one for all labels, or a dict with thresholds by label name.
        default: threshold of the labels that a dict does not name.
        labels: names of the columns, which a dict needs; ``for_labels`` gives them later, and
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
    _settings = ("threshold", "default", "labels")
    _since: ClassVar[dict[str, Any]] = {"default": 0.5, "labels": None}

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

    def fit(
        self, probabilities: Any = None, targets: Any = None, *, coding: Coding | None = None
    ) -> Self:
        return self

    def for_labels(self, labels: Sequence[str]) -> Threshold:
        if not isinstance(self.threshold, dict):
            return self
        return Threshold(self.threshold, self.default, labels)

    @property
    def selects_above(self) -> Array:
        return np.array(self._columns())

    @property
    def statement(self) -> str:
        which = f"{self.threshold:g}" if isinstance(self.threshold, float) else "of its threshold"
        return (
            f"Each label in a set is present with probability {which} or more, if the "
            "probabilities are calibrated; how many labels a set holds is not guaranteed."
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

    def _sets(self, probabilities: Array) -> Array:
        thresholds = self._columns()
        if len(thresholds) not in (1, probabilities.shape[1]):
            raise checks.InputError(
                f"`probabilities` must have {len(thresholds)} columns, one per label; got "
                f"{probabilities.shape[1]}."
            )
        return probabilities > just_below(np.asarray(thresholds))

    def to_module(self) -> nn.Module:
        from credibly.decide.torch_modules import Above

        return Above(just_below(np.asarray(self._columns())).tolist())

    def __repr__(self) -> str:
        if isinstance(self.threshold, float):
            return f"Threshold(threshold={self.threshold!r})"
        return f"Threshold({self.threshold!r}, default={self.default!r})"
