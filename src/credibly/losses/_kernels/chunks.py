"""What loops over entries share: chunks that stay in cache, and how their targets look.

Sums run in the scores' own precision inside a chunk and in float64 across chunks.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from credibly._vectormath import EXACT, JIT

CHUNK = 512


@njit(**JIT)
def all_hard(targets: Any) -> bool:
    """Whether every target is exactly 0 or 1: none soft, none unknown."""
    off = targets.dtype.type(0)
    one = targets.dtype.type(1)
    for i in range(targets.size):
        off += abs(targets[i] * (targets[i] - one))
    return off == 0


@njit(**EXACT)
def known_weights(target: Any, one: Any) -> Any:
    """Weights of the positive and the negative partial loss, and of the entry itself."""
    if target >= one - one:
        return target, one - target, one
    return one - one, one - one, one - one


@njit(**JIT)
def rescale(gradient: Any, factor: float) -> None:
    """Multiply in place."""
    factor = gradient.dtype.type(factor)
    for i in range(gradient.size):
        gradient[i] *= factor
