"""One compiled loop for all losses of single entries: value and gradient in one pass.

A loss gives a scalar function ``entry(score, present, numbers) → (value, slope)`` and its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from torch import Tensor

from credibly.compiled import compiled
from credibly.losses.fused.form import FusedForm, ValueAndGradient, run_flat
from credibly.losses.fused.memory import CHUNK, all_hard, as_type, known_weights, tensors_at
from credibly.types import Array, Scores, Targets
from credibly.vectormath import INNER, JIT

if TYPE_CHECKING:
    from credibly.losses.entries import BinaryLoss


@dataclass(frozen=True)
class EntryLoop(FusedForm):
    """The mean over known entries by a loop of ``entry_loop``."""

    loss: BinaryLoss
    loop: Callable[..., float]
    numbers: tuple[float, ...]

    def on_cpu(self, scores: Scores, targets: Targets, needs_grad: bool) -> ValueAndGradient:
        return run_flat(self.loop, scores, targets, needs_grad, self.numbers)

    def plain(self, scores: Scores, targets: Targets) -> Tensor:
        return self.loss.plain_mean(scores, targets)


def entry_loop(entry: Callable[..., Any]) -> Callable[..., float]:
    """Return a compiled loop for a scalar function of one score.

    Args:
        entry: ``entry(score, present, numbers)``, compiled with ``EXACT``. ``present`` says which
            partial loss is asked for, and ``numbers`` are a tuple in the type of the score.
    """

    @njit(**INNER)
    def hard(v: Array, y: Array, g: Array, numbers: Any, scale: Any) -> Any:
        """Return the sum for targets 0 or 1, where each entry needs only one partial loss."""
        total = as_type(0.0, scale)
        zero = total
        for i in range(v.size):
            value, slope = entry(v[i], y[i] > zero, numbers)
            total += value
            g[i] = scale * slope
        return total

    @njit(**INNER)
    def soft(v: Array, y: Array, g: Array, numbers: Any, scale: Any) -> Any:
        """Return the sum and the number of known entries for any targets."""
        zero, one = as_type(0.0, scale), as_type(1.0, scale)
        total, known = zero, zero
        for i in range(v.size):
            present, absent, counts = known_weights(y[i], one)
            score = v[i] if counts > zero else zero
            value_pos, slope_pos = entry(score, True, numbers)
            value_neg, slope_neg = entry(score, False, numbers)
            total += present * value_pos + absent * value_neg
            known += counts
            g[i] = scale * (present * slope_pos + absent * slope_neg)
        return total, known

    @compiled(**JIT)
    def run(pointers: Any, size: Any, zero: Any, needs_grad: bool, numbers: Any) -> float:
        """Return the mean over known entries; fill the gradient. See ``tensors_at``."""
        scores, targets, gradient = tensors_at(pointers, size, zero)
        typed, scale = as_type(numbers, zero), as_type(1.0 / max(size, 1), zero)
        scratch = np.empty(0 if needs_grad else CHUNK, scores.dtype)
        total, known = 0.0, 0.0
        for start in range(0, size, CHUNK):
            stop = min(size, start + CHUNK)
            v, y = scores[start:stop], targets[start:stop]
            g = gradient[start:stop] if needs_grad else scratch[: stop - start]
            if all_hard(y):
                total += hard(v, y, g, typed, scale)
                known += stop - start
            else:
                value, count = soft(v, y, g, typed, scale)
                total += value
                known += count
        if needs_grad and 0 < known < size:
            factor = as_type(size / known, zero)
            for i in range(size):
                gradient[i] *= factor
        return total / max(known, 1.0)

    return run
