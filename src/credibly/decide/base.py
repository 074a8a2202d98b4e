"""What every decision is: a rule from probabilities to label sets, and what it guarantees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from credibly import checks, runtime
from credibly.arrays import like, to_numpy
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike, JsonObject

if TYPE_CHECKING:
    from torch import nn


class Decision(ABC):
    """A rule from probabilities (n, L) to label sets, a bool matrix (n, L).

    The set of a row depends on that row alone, so sets computed batch by batch equal those of all
    rows at once. A subclass gives ``_fit``, ``statement`` and ``comparison``, and names what makes
    up its state.
    """

    name: ClassVar[str]
    """The name in a stored state."""

    fitted_on: ClassVar[Literal["nothing", "probabilities", "truth"]]
    """What ``fit`` needs of the held-out rows."""

    @property
    def always_selected(self) -> Array:
        """Indices of labels that are in every set, because no threshold met the guarantee."""
        return np.empty(0, dtype=int)

    @property
    def never_selected(self) -> Array:
        """Indices of labels that are in no set, because no threshold met the guarantee."""
        return np.empty(0, dtype=int)

    @property
    def selects_above(self) -> Array | None:
        """Thresholds of the labels, or one for all; None where a rule compares labels of a row."""
        return None

    @property
    def reviews(self) -> bool:
        """Whether ``to_review`` may ask a person to look at some labels."""
        return False

    _settings: ClassVar[tuple[str, ...]] = ()
    """Names of the constructor arguments, in order."""

    _fitted: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that ``fit`` sets."""

    _since: ClassVar[JsonObject] = {}
    """Settings that states of earlier versions lack, and what they are without them."""

    def fit(
        self,
        probabilities: ArrayLike | None = None,
        targets: TargetsLike | None = None,
        *,
        coding: Coding | None = None,
    ) -> Self:
        """Fit on held-out rows. A rule with nothing to fit returns itself unchanged.

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
                    f"{type(self).__name__} needs `targets`: it is fitted on rows whose labels are "
                    "known."
                )
            truth = Targets.beside(probabilities, targets, "probabilities", coding=coding).matrix
            checks.same_shapes(probabilities=array, targets=truth)
        self._fit(array, truth)
        return self

    def _fit(self, probabilities: Array, targets: Array) -> None:
        """Set the fitted attributes; ``targets`` are decoded, and empty unless truth is needed."""
        raise NotImplementedError

    @property
    @abstractmethod
    def statement(self) -> str:
        """What this decision guarantees and on what assumption, in short sentences."""

    def comparison(self) -> JsonObject:
        """Return the rule as plain values: the name of a comparison of `credibly.runtime`, and its
        numbers."""
        raise checks.InputError(
            f"{type(self).__name__} needs the model it was made with, so it cannot be stored or "
            "exported."
        )

    def _sets(self, probabilities: Array) -> Array:
        """Return the label sets of probabilities that were checked."""
        return runtime.select(self.comparison(), probabilities)

    def predict(self, probabilities: Any) -> Any:
        """Return the label sets as a bool matrix (n, L).

        Args:
            probabilities: (n, L) in [0, 1], a numpy array or a tensor.

        Returns:
            An array for an array, a tensor for a tensor.

        Raises:
            InputError: if the decision is not fitted or a value is not a probability.
        """
        self._require_fitted()
        return like(self._sets(matrix(probabilities)), probabilities)

    def for_labels(self, labels: Sequence[str]) -> Decision:
        """Return the rule for columns with these names; itself, unless its settings name labels.

        Args:
            labels: one name per column of the probabilities.
        """
        return self

    def to_review(self, probabilities: Any) -> Any:
        """Return the labels that a person should look at, as a bool matrix (n, L); mostly none.

        Args:
            probabilities: as for ``predict``.
        """
        return like(np.zeros(matrix(probabilities).shape, dtype=bool), probabilities)

    def state(self) -> JsonObject:
        """Return settings and fitted attributes as plain values, for JSON; see ``from_state``."""
        self._require_fitted()
        names = self._settings + self._fitted
        return {"decision": self.name, **{name: _plain(getattr(self, name)) for name in names}}

    def to_module(self) -> nn.Module:
        """Return the rule as a torch module: probabilities in, the sets of ``predict`` out.

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


def matrix(probabilities: Any) -> Array:
    array = checks.matrix("probabilities", to_numpy(probabilities))
    return checks.probabilities(array)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
