"""Elementary functions for numba loops, which the compiler turns into vector instructions.

In float32 they are polynomials accurate to about 1e-7, without branches or library calls. In
float64 they call the C library. NaN gives NaN. The plain Python functions define their meaning;
compiled code uses the overloads below.

``JIT`` are the options of a kernel, for ``credibly.compiled``: fast-math without the flags that
assume that NaN and infinity never occur. ``INNER`` are the options of functions that only kernels
call. ``THIN`` are the options of short functions whose text is copied into the kernel, which makes
compilation faster. Both are for ``numba.njit``, because only complete kernels are stored on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from credibly.types import Array

JIT: Any = {
    "error_model": "numpy",
    "nogil": True,
    "fastmath": {"reassoc", "contract", "arcp", "nsz", "afn"},
}
# Only compiled code calls these functions. Each wrapper for Python or C would be compiled with its
# own copy of the function, so the wrappers are omitted.
_CALLED_BY_KERNELS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INNER: Any = JIT | _CALLED_BY_KERNELS
THIN: Any = JIT | {"inline": "always"}
# For functions that kernels call on each entry. Sums stay in order (only fused multiply-add is
# allowed). Inlining is forced: without it, loops around the call get no vector instructions.
EXACT: Any = {
    "error_model": "numpy",
    "fastmath": {"contract"},
    "forceinline": True,
} | _CALLED_BY_KERNELS


def exp_nonpositive(x: Array) -> Array:
    """Return exp(x) for x ≤ 0; the result is 0 below the smallest normal float.

    Example:
        >>> round(float(exp_nonpositive(np.float32(-1.0))), 6)
        0.367879
    """
    return np.exp(x)


def log1p_unit(x: Array) -> Array:
    """Return log(1 + x) for x in [0, 1].

    Example:
        >>> round(float(log1p_unit(np.float32(1.0))), 6)
        0.693147
    """
    return np.log1p(x)


def log_positive(x: Array) -> Array:
    """Return log(x) for a positive normal x.

    Example:
        >>> round(float(log_positive(np.float32(2.0))), 6)
        0.693147
    """
    return np.log(x)


_BITS = {
    types.float32: (types.int32, ir.IntType(32)),
    types.float64: (types.int64, ir.IntType(64)),
    types.int32: (types.float32, ir.FloatType()),
    types.int64: (types.float64, ir.DoubleType()),
}


def _same_bits(_typing, x):
    result, llvm_type = _BITS[x]

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], llvm_type)

    return result(x), generate


# Convert a float to the integer with the same bits, and back. For x ≥ 0 the integers have the order
# of x, with NaN on top. Only a maximum over integers becomes vector instructions.
same_bits: Any = intrinsic(_same_bits)

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_LOG2_E = np.float32(1 / math.log(2))
# log 2 in two parts. The first has few bits, so n · log 2 is exact for small whole n.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(math.log(2) - 0.693359375)
_LOWEST = np.float32(-87.33654)
# Adding 1.5 · 2²³ rounds to a whole number and puts it into the low bits.
_ROUND, _ROUND_BITS = np.float32(12582912.0), np.int32(0x4B400000)
_NEVER_SUBNORMAL = np.float32(1e-16)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


def _minimax(
    function: Callable[[Array], Array], low: float, high: float, degree: int
) -> list[np.float32]:
    """Return the coefficients, constant first, of the Chebyshev interpolant on [low, high]."""
    fit = np.polynomial.Chebyshev.interpolate(function, degree, domain=[low, high])
    return [np.float32(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]


def _exp_rest(r: Array) -> Array:
    """Return (exp(r) − 1 − r) / r² from its series."""
    return np.asarray(sum(r**k / math.factorial(k + 2) for k in range(20)))


def _log1p_ratio(x: Array) -> Array:
    return np.log1p(x) / x


def _log_rest(x: Array) -> Array:
    """Return (log(1 + x) − x + x²/2) / x³ from its series."""
    return np.asarray(sum((-x) ** k / (k + 3) for k in range(60)))


_E0, _E1, _E2, _E3, _E4 = _minimax(_exp_rest, -math.log(2) / 2, math.log(2) / 2, 4)
_P0, _P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8, _P9 = _minimax(_log1p_ratio, 1e-9, 1.0, 9)


_SQRT_HALF_BITS = np.int32(0x3F3504F3)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = _minimax(
    _log_rest, math.sqrt(0.5) - 1, math.sqrt(2) - 1, 8
)


def _overload(function: Callable[[Array], Array], library: Callable[[float], float]) -> Callable:
    """Return a decorator of the polynomial that stands for ``function`` in float32.

    For float64, it is the function of the C library.
    """

    def decorate(polynomial):
        def double(x):
            return library(x)

        overload(function, jit_options=EXACT)(
            lambda x: polynomial if x == types.float32 else double
        )
        return polynomial

    return decorate


@_overload(exp_nonpositive, math.exp)
def _exp_nonpositive(x):
    # exp(x) = 2ⁿ exp(r), |r| ≤ log 2 / 2. These comparisons let NaN pass.
    inside = _LOWEST if x < _LOWEST else x
    shifted = inside * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (inside - n * _LN2_HIGH) - n * _LN2_LOW
    r2 = r * r
    rest = (_E0 + r * _E1) + r2 * ((_E2 + r * _E3) + r2 * _E4)
    power = same_bits(np.int32((same_bits(shifted) - _ROUND_BITS + _BIAS) << _MANTISSA))
    return _ZERO if x < _LOWEST else (_ONE + (r + r2 * rest)) * power


@_overload(log1p_unit, math.log1p)
def _log1p_unit(x):
    # Evaluating two halves of the polynomial in parallel shortens the chain of multiply-adds.
    # For x from 6e-12 to 3e-10, x⁴ alone would be subnormal, and subnormal arithmetic is slow.
    # The small constant prevents that. It is below the rounding error of every sum it enters.
    x2 = x * x + _NEVER_SUBNORMAL
    x4 = x2 * x2
    low = (_P0 + x * _P1) + x2 * (_P2 + x * _P3)
    high = (_P4 + x * _P5) + x2 * (_P6 + x * _P7)
    return x * (low + x4 * (high + x4 * (_P8 + x * _P9)))


@_overload(log_positive, math.log)
def _log_positive(x):
    # x = 2ⁿ (1 + m), 1 + m in [√½, √2), computed from the bits without a branch.
    bits = same_bits(x)
    whole = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> _MANTISSA)
    m = same_bits(np.int32(bits - np.int32(whole << _MANTISSA))) - _ONE
    n = same_bits(np.int32(whole + _ROUND_BITS)) - _ROUND
    m2 = m * m
    m4 = m2 * m2
    low = (_L0 + m * _L1) + m2 * (_L2 + m * _L3)
    high = (_L4 + m * _L5) + m2 * (_L6 + m * _L7)
    rest = low + m4 * (high + m4 * _L8)
    logarithm = n * _LN2_HIGH + (m + (n * _LN2_LOW + (m * m2 * rest - _HALF * m2)))
    return logarithm + (x - x)  # for NaN, the bits are meaningless; x - x restores NaN
