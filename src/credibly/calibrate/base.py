"""The base class of calibrators: fitted increasing maps of log-odds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from credibly import checks
from credibly.arrays import like, to_numpy
from credibly.runtime import calibrated, in_blocks
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike, JsonObject

if TYPE_CHECKING:
    from torch import nn

PIECE = 1 << 16
"""Entries converted to float64 at a time: 512 KB per array, whatever the size of the whole."""


@dataclass(frozen=True)
class Entries:
    """Log-odds with their targets and weights; unknown or unweighted entries are ignored."""

    log_odds: Array
    targets: Array
    weights: Array | None  # (n, 1) or (n, L)

    @classmethod
    def check(
        cls, log_odds: ArrayLike, targets: Targets, weights: ArrayLike | None = None
    ) -> Entries:
        """Return the entries of checked arrays.

        Raises:
            InputError: if shapes do not agree, a value is not valid, or no entry is known.
        """
        odds = checks.matrix("log_odds", to_numpy(log_odds))
        if odds.dtype.kind not in "fiu":
            raise checks.InputError(f"`log_odds` must be numbers; got {odds.dtype}.")
        checks.same_shapes(log_odds=odds, targets=targets.matrix)
        entries = cls(odds, targets.matrix, _weights(weights, odds.shape))
        known = 0
        for start, (g, _, w) in zip(entries._starts(), entries.pieces(), strict=True):
            known += int(np.count_nonzero(w))
            bad = np.isnan(g) & (w > 0)
            if bad.any():
                row, column = np.argwhere(bad)[0]
                raise checks.InputError(
                    "`log_odds` must not be NaN where the target is known; got NaN at "
                    f"({start + row}, {column}). Drop those rows or mark their targets −1."
                )
        if not known:
            raise checks.InputError(
                f"calibration needs known targets (0, 1 or soft); got none in {odds.shape[0]} rows "
                f"× {odds.shape[1]} labels that are known and have a weight above 0. Pass held-out "
                "rows with truth."
            )
        return entries

    @property
    def num_labels(self) -> int:
        return self.log_odds.shape[1]

    def pieces(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield log-odds, targets and weights in float64, in blocks of rows.

        Unknown entries have weight 0.
        """
        for start in self._starts():
            rows = slice(start, start + self._step)
            y = self.targets[rows].astype(np.float64)
            if self.weights is None:
                w = (y >= 0).astype(np.float64)
            else:
                w = np.where(y >= 0, self.weights[rows], 0.0)
            yield np.where(w > 0, self.log_odds[rows], 0.0).astype(np.float64, copy=False), y, w

    def take(self, rows: Array) -> Entries:
        """Return the entries of some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return Entries(self.log_odds[rows], self.targets[rows], weights)

    @property
    def _step(self) -> int:
        return max(1, PIECE // max(1, self.num_labels))

    def _starts(self) -> range:
        return range(0, self.log_odds.shape[0], self._step)


def _weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    if weights is None:
        return None
    array = to_numpy(weights)
    array = array[:, None] if array.ndim == 1 else array
    if array.shape not in (shape, (shape[0], 1)):
        raise checks.InputError(
            f"`weights` must have shape ({shape[0]},), one per row, or {shape}, one per entry; got "
            f"{np.shape(weights)}."
        )
    array = array.astype(np.float64)
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise checks.InputError(
            "`weights` must be finite and at least 0; got NaN, infinite or negative weights."
        )
    return array


class Calibrator(ABC):
    """An increasing map of log-odds, fitted by log loss on rows the model was not trained on.

    A subclass defines ``_fit``, which sets its parameters from :class:`Entries`, and
    ``_parameters``, the attributes of its state. The map itself is in `credibly.runtime`,
    for numpy and torch, under its ``name``.

    Example:
        >>> import credibly as cr
        >>> calibrator: Calibrator = cr.calibrate.Temperature()
        >>> log_odds = [[4.0], [4.0], [4.0], [-4.0], [-4.0], [-4.0]]
        >>> fitted = calibrator.fit(log_odds, [[1], [1], [0], [0], [0], [1]])
        >>> fitted.transform([[4.0], [0.0]]).round(2).tolist()
        [[0.85], [0.0]]
        >>> restored = cr.calibrate.from_state(fitted.state())
        >>> restored.transform([[4.0]]).tolist() == fitted.transform([[4.0]]).tolist()
        True
    """

    name: ClassVar[str]
    """The name on the command line, for ``from_name``."""

    strict: ClassVar[bool] = True
    """Whether the map is strictly increasing, so that it makes no ties."""

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
        truth = Targets.beside(log_odds, targets, "log_odds", coding=coding)
        self._fit(Entries.check(log_odds, truth, weights))
        return self

    def transform(self, log_odds: ArrayLike) -> Any:
        """Return calibrated log-odds: numpy for numpy, torch for torch; float64 stays float64."""
        self._require_fitted()
        array = to_numpy(log_odds)
        return like(self._mapped(array), log_odds)

    def state(self) -> JsonObject:
        """Return the fitted map as plain values, for JSON; ``from_state`` restores it exactly."""
        self._require_fitted()
        return {name: _plain(value) for name, value in self._numbers().items()}

    def _load(self, values: JsonObject) -> None:
        for name in self._parameters:
            if name not in values:
                raise checks.InputError(
                    f"the state of a {self.name!r} calibrator must hold {name!r}; got "
                    f"{sorted(values)}."
                )
            setattr(self, name, self._number(name, values[name]))

    def _number(self, name: str, value: object) -> object:
        """Return a stored number, or a list of numbers as an array; raise for anything else."""
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
        rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)

        def mapped(block: Array) -> Array:
            return self._map(block.astype(np.float64)).astype(dtype, copy=False)

        return in_blocks(mapped, rows, entries=PIECE).reshape(array.shape)

    def _is_fitted(self) -> bool:
        return all(name in vars(self) for name in self._parameters)

    def _width(self) -> int:
        """Return the number of labels of the fitted map, or 1 if it takes any number."""
        return 1

    def _require_fitted(self) -> None:
        if not self._is_fitted():
            raise checks.InputError(
                f"{type(self).__name__} must be fitted first: call `.fit(log_odds, targets)` on "
                "held-out rows."
            )

    def to_module(self) -> nn.Module:
        """Return the fitted map of log-odds as a torch module.

        Its parameters are float64 buffers, so it moves to any device and exports to ONNX.
        """
        self._require_fitted()
        import torch
        from torch import Tensor, nn

        state = self._numbers()

        class CalibratorModule(nn.Module):
            """The map of a calibrator, with the numbers of its state as float64 buffers."""

            def __init__(self) -> None:
                super().__init__()
                for name in state.keys() - {"calibrator", "rest"}:
                    self.register_buffer(name, torch.as_tensor(state[name], dtype=torch.float64))

            def forward(self, log_odds: Tensor) -> Tensor:
                return calibrated({**state, **dict(self.named_buffers())}, log_odds, torch)

        return CalibratorModule()

    @abstractmethod
    def _fit(self, entries: Entries) -> None:
        """Set the parameters."""

    def _map(self, log_odds: Array) -> Array:
        """Return calibrated log-odds (rows, L); input and output are float64."""
        return calibrated(self._numbers(), log_odds)

    def _numbers(self) -> JsonObject:
        return {"calibrator": self.name, **{name: getattr(self, name) for name in self._parameters}}

    def __repr__(self) -> str:
        if not self._is_fitted():
            return f"{type(self).__name__}()"
        shown = [
            f"{name}={getattr(self, name):.4g}"
            for name in self._parameters
            if isinstance(getattr(self, name), float)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value
