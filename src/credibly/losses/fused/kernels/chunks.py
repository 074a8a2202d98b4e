"""What kernels share: how they get tensors, chunks that stay in cache, how targets look.

Sums run in the scores' own precision inside a chunk and in float64 across chunks.

Tensors come as addresses. Making numpy arrays of three small tensors takes longer than the loss of
a small batch, and arrays that own nothing need no reference counts when they are sliced.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from credibly.types import Array
from credibly.vectormath import EXACT, JIT

CHUNK = 512


def _to_pointer(_typing: Any, address: Any, zero: Any) -> Any:
    result = types.CPointer(zero)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(address, zero), generate


_pointer: Any = intrinsic(_to_pointer)


@njit(**JIT)
def tensors_at(pointers: Any, shape: Any, zero: float) -> Any:
    """Arrays over scores, targets and gradient; whoever calls keeps the tensors alive.

    ``pointers`` are their addresses, ``zero`` is a number of their precision, which all three have,
    as they have the shape and lie row after row.
    """
    scores, targets, gradient = pointers
    return (
        carray(_pointer(scores, zero), shape),
        carray(_pointer(targets, zero), shape),
        carray(_pointer(gradient, zero), shape),
    )


@njit(**JIT)
def borrowed(array: Array) -> Any:
    """The same numbers without a reference count; for arrays that the caller holds.

    Counting is atomic: where rows are short it would take longer than the arithmetic.
    """
    return carray(_pointer(array.ctypes.data, array.dtype.type(0)), array.shape)


@njit(**JIT)
def all_hard(targets: Array) -> bool:
    """Whether every target is exactly 0 or 1: none soft, none unknown."""
    off = targets.dtype.type(0)
    one = targets.dtype.type(1)
    for i in range(targets.size):
        off += abs(targets[i] * (targets[i] - one))
    return off == 0


@njit(**EXACT)
def known_weights(target: float, one: float) -> Any:
    """Weights of the positive and the negative partial loss, and of the entry itself."""
    if target >= one - one:
        return target, one - target, one
    return one - one, one - one, one - one


@njit(**JIT)
def rescale(gradient: Array, factor: float) -> None:
    """Multiply in place."""
    factor = gradient.dtype.type(factor)
    for i in range(gradient.size):
        gradient[i] *= factor
