"""The base class of decisions: rules from probabilities to label sets, with their guarantees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from credibly import checks, runtime
from credibly.arrays import like, to_numpy
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike, JsonObject

if TYPE_CHECKING:
    from torch import nn

Guarantee = Literal["expected"] | tuple[Literal["probability"], float] | None


class Decision(ABC):
    """A rule from probabilities (n, L) to label sets, a bool matrix (n, L).

    The set of a row depends only on that row, so you can compute sets batch by batch. A subclass
    defines ``_fit``, ``statement`` and ``comparison``, and names the parts of its state."""

    name: ClassVar[str]
    """The name in a stored state."""

    guarantee: Guarantee = None
    """In what sense the statement holds for new rows; None if it need not."""

    fitted_on: ClassVar[Literal["nothing", "probabilities", "truth"]]
    """What ``fit`` needs from the held-out rows."""

    @property
    def always_selected(self) -> Array:
        """Indices of labels that are in every set because no threshold met the guarantee."""
        return np.empty(0, dtype=int)

    @property
    def never_selected(self) -> Array:
        """Indices of labels that are in no set because no threshold met the guarantee."""
        return np.empty(0, dtype=int)

    @property
    def selects_above(self) -> Array | None:
        """One threshold per label, or one for all; None if labels of a row are compared."""
        return None

    @property
    def reviews(self) -> bool:
        """Whether ``to_review`` may select labels for review by a person."""
        return False

    _fitted: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that ``fit`` sets."""

    _since: ClassVar[JsonObject] = {}
    """Settings that stored states of earlier versions lack, with their default values."""

    def fit(
        self,
        probabilities: ArrayLike | None = None,
        targets: TargetsLike | None = None,
        *,
        coding: Coding | None = None,
    ) -> Self:
        """Fit on held-out rows. Rules without parameters to fit return themselves unchanged.

        Args:
            probabilities: (n, L) in [0, 1].
            targets: (n, L) coded as in ``credibly.targets``, or class indices (n,), for rules that
                need the truth.
            coding: how to read targets that are only −1 and +1: ``"signed"`` or ``"unknown"``.
        """
        if self.fitted_on == "nothing":
            return self
        if probabilities is None:
            raise checks.InputError(f"{type(self).__name__} must be fitted on probabilities.")
        array = matrix(probabilities)
        truth = np.empty((0, 0))
        if self.fitted_on == "truth":
            if targets is None:
                raise checks.InputError(
                    f"{type(self).__name__} needs `targets`, because it is fitted on rows with "
                    "known labels."
                )
            truth = Targets.beside(probabilities, targets, "probabilities", coding=coding).matrix
            checks.same_shapes(probabilities=array, targets=truth)
        self._fit(array, truth)
        return self

    def _fit(self, probabilities: Array, targets: Array) -> None:
        """Set the fitted attributes; ``targets`` are decoded, or empty if not needed."""
        raise NotImplementedError

    @property
    @abstractmethod
    def statement(self) -> str:
        """The guarantee of this decision and its assumptions, in short sentences."""

    @property
    def assumption(self) -> str:
        """What a guarantee assumes of the fitted rows; empty without a guarantee."""
        if self.guarantee is None:
            return ""
        return "The fitted rows must not have been used for training or calibration."

    def comparison(self) -> JsonObject:
        """Return the name and the parameters of a comparison in `credibly.runtime`."""
        raise checks.InputError(
            f"{type(self).__name__} cannot be stored or exported, because it needs its joint model."
        )

    def _sets(self, probabilities: Array) -> Array:
        """Return the label sets of checked probabilities."""
        return runtime.select(self.comparison(), probabilities)

    def predict(self, probabilities: ArrayLike) -> Any:
        """Return the label sets as a bool matrix (n, L).

        Args:
            probabilities: (n, L) in [0, 1], a numpy array or a tensor.

        Returns:
            An array for an array, and a tensor for a tensor.

        Raises:
            InputError: if the decision is not fitted or a value is not a probability.
        """
        self._require_fitted()
        return like(self._sets(matrix(probabilities)), probabilities)

    def for_labels(self, labels: Sequence[str]) -> Decision:
        """Return the rule for columns with these names; most rules return themselves.

        Args:
            labels: one name per column of the probabilities.
        """
        return self

    def to_review(self, probabilities: ArrayLike) -> Any:
        """Return the labels that a person should review, as a bool matrix (n, L).

        Args:
            probabilities: as for ``predict``.
        """
        return like(np.zeros(matrix(probabilities).shape, dtype=bool), probabilities)

    def state(self) -> JsonObject:
        """Return settings and fitted attributes as plain values, for JSON; see ``from_state``."""
        self._require_fitted()
        names = self._settings() + self._fitted
        return {"decision": self.name, **{name: _plain(getattr(self, name)) for name in names}}

    def to_module(self) -> nn.Module:
        """Return the rule as a torch module from probabilities to the sets of ``predict``.

        The module does not check its input. It has no parameters and no buffers.

        Raises:
            InputError: if the decision is not fitted.
        """
        self._require_fitted()
        from credibly.decide.torch_modules import RuleModule

        return RuleModule(**self.comparison())

    @classmethod
    def _restore(cls, state: JsonObject) -> Self:
        state = {**cls._since, **state}
        missing = [name for name in cls._settings() + cls._fitted if name not in state]
        if missing:
            raise checks.InputError(
                f"the state of a {cls.name!r} decision must hold {', '.join(missing)}; got "
                f"{sorted(state)}."
            )
        decision = cls(*(_tuple(state[name]) for name in cls._settings()))
        for name in cls._fitted:
            value = state[name]
            if not isinstance(value, (int, float, list, type(None))):
                raise TypeError(f"{name} is {value!r:.80}")
            setattr(decision, name, np.asarray(value, float) if isinstance(value, list) else value)
        return decision

    @classmethod
    def _settings(cls) -> tuple[str, ...]:
        """Return the names of the constructor arguments, in order."""
        return tuple(signature(cls).parameters)

    def _require_fitted(self) -> None:
        if any(not hasattr(self, name) for name in self._fitted):
            raise checks.InputError(
                f"{type(self).__name__} must be fitted first: call `.fit(…)` on held-out rows."
            )

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._settings())
        return f"{type(self).__name__}({', '.join(shown)})"


def matrix(probabilities: ArrayLike) -> Array:
    array = checks.matrix("probabilities", to_numpy(probabilities))
    return checks.probabilities(array)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
