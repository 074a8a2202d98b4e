"""What every decision is: a rule from probabilities to label sets, and what it promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.targets import Coding, decode
from credibly.types import Array

if TYPE_CHECKING:
    from torch import nn


class Decision(ABC):
    """A rule from probabilities (n, L) to label sets, a bool matrix (n, L).

    The set of a row depends on that row alone, so sets computed in pieces equal those of the
    whole. A subclass gives ``fit``, ``_sets`` and ``promise``, and names what makes up its state.
    """

    name: ClassVar[str]
    """The name in a stored state."""

    _settings: ClassVar[tuple[str, ...]] = ()
    """Arguments of the constructor."""

    _fitted: ClassVar[tuple[str, ...]] = ()
    """What ``fit`` finds."""

    @abstractmethod
    def fit(self, probabilities: Any, targets: Any = None, *, coding: Coding | None = None) -> Self:
        """Fit on held-out rows; rules without anything to fit return themselves.

        Args:
            probabilities: (n, L) in [0, 1].
            targets: (n, L) coded as ``credibly.targets`` says, where the rule needs the truth.
            coding: how to read targets that are only −1 and +1: ``"signed"`` or ``"unknown"``.
        """

    @property
    @abstractmethod
    def promise(self) -> str:
        """One sentence: what is promised, and on what assumption."""

    @abstractmethod
    def _sets(self, probabilities: Array) -> Array:
        """The label sets of checked probabilities."""

    def predict(self, probabilities: Any) -> Any:
        """Label sets: a bool matrix, numpy in, numpy out; torch in, torch out."""
        self._require_fitted()
        return like(self._sets(_matrix(probabilities)), probabilities)

    def state(self) -> dict[str, Any]:
        """Settings and what was fitted as plain values, for JSON; ``from_state`` brings it back."""
        self._require_fitted()
        names = self._settings + self._fitted
        return {"decision": self.name, **{name: _plain(getattr(self, name)) for name in names}}

    def to_module(self) -> nn.Module:
        """Return the rule as a torch module: probabilities in, a bool matrix out.

        Raises:
            InputError: if the rule has no such form.
        """
        raise checks.InputError(
            f"a decision of kind {self.name!r} has no form in torch, so it cannot be exported. Use "
            "Threshold, AverageSize or BestF."
        )

    @classmethod
    def _restore(cls, state: dict[str, Any]) -> Self:
        missing = [name for name in cls._settings + cls._fitted if name not in state]
        if missing:
            raise checks.InputError(
                f"the state of a {cls.name!r} decision must hold {', '.join(missing)}; got "
                f"{sorted(state)}."
            )
        decision = cls(*(_tuple(state[name]) for name in cls._settings))
        for name in cls._fitted:
            value = state[name]
            if not isinstance(value, (int, float, list, type(None))):
                raise TypeError(f"{name} is {value!r:.80}")
            setattr(decision, name, np.asarray(value, float) if isinstance(value, list) else value)
        return decision

    def _require_fitted(self) -> None:
        if any(not hasattr(self, name) for name in self._fitted):
            raise checks.InputError(
                f"{type(self).__name__} must be fitted first: call `.fit(…)` on held-out rows."
            )

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._settings)
        return f"{type(self).__name__}({', '.join(shown)})"


def _matrix(probabilities: Any) -> Array:
    array = checks.matrix("probabilities", to_numpy(probabilities))
    return checks.probabilities(array)


def with_truth(
    probabilities: Any, targets: Any, who: str, coding: Coding | None
) -> tuple[Array, Array]:
    """Checked probabilities and targets of one shape; both must be there."""
    array = _matrix(probabilities)
    if targets is None:
        raise checks.InputError(
            f"{who} needs `targets`: it is fitted on rows whose labels are known."
        )
    truth = decode(targets, coding=coding, num_labels=array.shape[1])
    checks.same_shapes(probabilities=array, targets=truth)
    return array, truth


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
