"""Access to tensors from compiled loops, chunks that fit the cache, and kinds of targets.

Sums are in the precision of the scores inside a chunk and in float64 across chunks.

Loops take tensors by address. Converting three small tensors to numpy takes longer than the loss of
a small batch, and views that own no memory need no reference counts when they are sliced.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from credibly.vectormath import EXACT, INNER, THIN

CHUNK = 512


def _to_pointer(_typing: Any, address: Any, zero: Any) -> Any:
    result = types.CPointer(zero)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(address, zero), generate


_pointer: Any = intrinsic(_to_pointer)


def _to_type(_typing: Any, value: Any, like: Any) -> Any:
    several = isinstance(value, types.BaseTuple)
    given: list[Any] = [*value] if several else [value]  # pyright: ignore
    result = types.UniTuple(like, len(given)) if several else like

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        parts = cgutils.unpack_tuple(builder, arguments[0]) if several else [arguments[0]]
        cast = [
            context.cast(builder, part, kind, like) for part, kind in zip(parts, given, strict=True)
        ]
        return context.make_tuple(builder, result, cast) if several else cast[0]

    return result(value, like), generate


as_type: Any = intrinsic(_to_type)
"""``as_type(value, like)``: a number, or each of a tuple, in the type of the number ``like``."""


@njit(**THIN)
def tensors_at(pointers, shape, zero):
    """Return arrays over the memory of scores, targets and gradient.

    The caller keeps the tensors alive. All three are contiguous, of one shape and one dtype.

    Args:
        pointers: addresses of the three tensors.
        shape: their shape.
        zero: a number of their dtype.
    """
    scores, targets, gradient = pointers
    return (
        carray(_pointer(scores, zero), shape),
        carray(_pointer(targets, zero), shape),
        carray(_pointer(gradient, zero), shape),
    )


@njit(**THIN)
def array_at(address, size, zero):
    """Return an array of the type of ``zero`` over memory that the caller keeps alive."""
    return carray(_pointer(address, zero), size)


@njit(**INNER)
def all_hard(targets):
    """Return whether every target is exactly 0 or 1: none soft, none unknown."""
    off = targets.dtype.type(0)
    one = targets.dtype.type(1)
    for i in range(targets.size):
        off += abs(targets[i] * (targets[i] - one))
    return off == 0


@njit(**EXACT)
def known_weights(target, one):
    """Return the weights of the positive and the negative partial loss, and of the entry."""
    if target >= one - one:
        return target, one - target, one
    return one - one, one - one, one - one
