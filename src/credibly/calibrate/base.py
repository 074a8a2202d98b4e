"""What every calibrator is: a fitted increasing map from log-odds to log-odds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.calibrate.entries import PIECE, Entries
from credibly.targets import Coding, TargetsLike
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    from torch import nn


class Calibrator(ABC):
    """A map from log-odds to log-odds, fitted by log loss on rows the model was not trained on.

    A subclass defines ``_fit`` (sets its parameters from :class:`Entries`), ``_map`` (float64 in,
    float64 out), ``to_module`` (the same map in torch) and ``_parameters`` (the attributes that
    make up its state).
    """

    name: ClassVar[str]
    """The name on the command line, for ``from_name``."""

    strict: ClassVar[bool] = True
    """Whether different log-odds of a label stay different, so that no ranking is lost to ties."""

    _parameters: ClassVar[tuple[str, ...]] = ()
    _lists: ClassVar[tuple[str, ...]] = ()
    """Those of the parameters that are lists of numbers; the others are single numbers."""

    def fit(
        self,
        log_odds: ArrayLike,
        targets: TargetsLike,
        weights: ArrayLike | None = None,
        *,
        coding: Coding | None = None,
    ) -> Self:
        """Fit on held-out rows.

        Args:
            log_odds: (n, L), numpy or torch; ±inf allowed; NaN only where the target is unknown.
            targets: (n, L) of 0, 1, soft in [0, 1] or −1 (unknown: ignored); or (n,) class indices.
            weights: one per row (n,) or one per entry (n, L), at least 0.
            coding: how to read targets of only −1 and +1, ``"signed"`` or ``"unknown"``; see
                ``credibly.targets``.

        Returns:
            The fitted calibrator itself.
        """
        self._fit(Entries.check(log_odds, targets, weights, coding=coding))
        return self

    def transform(self, log_odds: ArrayLike) -> Any:
        """Return calibrated log-odds: numpy for numpy, torch for torch; float64 stays float64."""
        self._require_fitted()
        array = to_numpy(log_odds)
        return like(self._mapped(array), log_odds)

    def state(self) -> dict[str, Any]:
        """Return the fitted map as plain numbers, for JSON; ``from_state`` restores it exactly."""
        self._require_fitted()
        plain = {name: _plain(getattr(self, name)) for name in self._parameters}
        return {"calibrator": self.name, **plain}

    def _load(self, values: dict[str, Any]) -> None:
        for name in self._parameters:
            if name not in values:
                raise checks.InputError(
                    f"the state of a {self.name!r} calibrator must hold {name!r}; got "
                    f"{sorted(values)}."
                )
            setattr(self, name, self._number(name, values[name]))

    def _number(self, name: str, value: object) -> Any:
        """Return a stored number, or a list of them as an array; refuse anything else."""
        listed = name in self._lists
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            array = np.empty((0, 0))
        unusable = isinstance(value, (str, bool)) or value is None or not array.size
        if unusable or array.ndim != (1 if listed else 0):
            what = "a list of numbers" if listed else "a number"
            raise checks.InputError(
                f"the state of a {self.name!r} calibrator must hold {what} for {name!r}; got "
                f"{value!r:.80}."
            )
        return array if array.ndim else value

    def _mapped(self, array: Array) -> Array:
        dtype = np.float64 if array.dtype.kind != "f" or array.dtype.itemsize > 4 else np.float32
        result = np.empty(array.shape, dtype)
        width = array.shape[-1] if array.ndim else 1
        step = max(1, PIECE // max(1, width))
        rows = array.reshape(-1, width) if array.ndim else array.reshape(1, 1)
        flat = result.reshape(rows.shape)
        for start in range(0, rows.shape[0], step):
            piece = slice(start, start + step)
            flat[piece] = self._map(rows[piece].astype(np.float64))
        return result

    def _is_fitted(self) -> bool:
        return all(name in vars(self) for name in self._parameters)

    def _width(self) -> int:
        """Return the number of labels that the fitted map takes; 1 where it takes any."""
        return 1

    def _require_fitted(self) -> None:
        if not self._is_fitted():
            raise checks.InputError(
                f"{type(self).__name__} must be fitted first: call `.fit(log_odds, targets)` on "
                "held-out rows."
            )

    @abstractmethod
    def to_module(self) -> nn.Module:
        """Return the fitted map as a torch module: log-odds in, calibrated log-odds out.

        Its numbers are float32 buffers, so it moves to any device and exports to ONNX.
        """

    @abstractmethod
    def _fit(self, entries: Entries) -> None:
        """Set the parameters."""

    @abstractmethod
    def _map(self, log_odds: Array) -> Array:
        """Return calibrated log-odds of log-odds (rows, L), both float64."""

    def __repr__(self) -> str:
        if not self._is_fitted():
            return f"{type(self).__name__}()"
        shown = [
            f"{name}={getattr(self, name):.4g}"
            for name in self._parameters
            if isinstance(getattr(self, name), float)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _plain(value: object) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
