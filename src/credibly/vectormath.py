"""Elementary functions for numba loops that the compiler turns into vector instructions.

In float32 they are polynomials accurate to about 1e-7, without branches or library calls; in
float64 they are the C library's. NaN in is NaN out. The plain Python bodies say what each means;
compiled code takes the overloads below.

``JIT`` are the options of a kernel, for ``credibly.compiled``: fast-math without the flags that
would assume that NaN and infinity never occur. ``INNER`` are those of functions that only kernels
call, and ``THIN`` of those whose text is copied into the kernel, which compiles faster still where
they are short; both are for ``numba.njit``, since only whole kernels are kept on disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

JIT: Any = {
    "error_model": "numpy",
    "nogil": True,
    "fastmath": {"reassoc", "contract", "arcp", "nsz", "afn"},
}
# Nothing outside compiled code may call these: the ways in from Python and C are left out, each of
# which would be compiled with a copy of the function.
_CALLED_BY_KERNELS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INNER: Any = JIT | _CALLED_BY_KERNELS
THIN: Any = JIT | {"inline": "always"}
# For what kernels call on each entry: sums stay in order (only fused multiply-add is allowed),
# and it is always inlined, without which no loop around it becomes vector instructions.
EXACT: Any = {
    "error_model": "numpy",
    "fastmath": {"contract"},
    "forceinline": True,
} | _CALLED_BY_KERNELS


def exp_nonpositive(x: Any) -> Any:
    """exp(x) for x ≤ 0; below the smallest normal float it is 0.

    Example:
        >>> round(float(exp_nonpositive(np.float32(-1.0))), 6)
        0.367879
    """
    return np.exp(x)


def log1p_unit(x: Any) -> Any:
    """log(1 + x) for x in [0, 1].

    Example:
        >>> round(float(log1p_unit(np.float32(1.0))), 6)
        0.693147
    """
    return np.log1p(x)


def log_positive(x: Any) -> Any:
    """log(x) for a positive normal x.

    Example:
        >>> round(float(log_positive(np.float32(2.0))), 6)
        0.693147
    """
    return np.log(x)


def _to_int(_typing: Any, x: Any) -> Any:
    result, width = (types.int32, 32) if x == types.float32 else (types.int64, 64)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(width))

    return result(x), generate


def _to_float(_typing: Any, x: Any) -> Any:
    result, llvm_type = (
        (types.float32, ir.FloatType()) if x == types.int32 else (types.float64, ir.DoubleType())
    )

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], llvm_type)

    return result(x), generate


# The bits of a float as an integer of its width, and back. For x ≥ 0 they have the order of x, with
# NaN on top: a maximum over bits becomes vector instructions, one over floats does not.
float_bits: Any = intrinsic(_to_int)
bits_float: Any = intrinsic(_to_float)

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_LOG2_E = np.float32(1 / math.log(2))
# log 2 in two parts, the first with few bits, so that n · log 2 is exact for small whole n.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(math.log(2) - 0.693359375)
_LOWEST = np.float32(-87.33654)
# Adding 1.5 · 2²³ rounds to a whole number, which then stands in the low bits.
_ROUND, _ROUND_BITS = np.float32(12582912.0), np.int32(0x4B400000)
_NEVER_SUBNORMAL = np.float32(1e-16)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


def _minimax(function: Any, low: float, high: float, degree: int) -> list[np.float32]:
    """Coefficients, constant first, of the Chebyshev interpolant of ``function`` on [low, high]."""
    fit = np.polynomial.Chebyshev.interpolate(function, degree, domain=[low, high])
    return [np.float32(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]


def _exp_rest(r: Any) -> Any:
    """(exp(r) − 1 − r) / r², by its series."""
    return sum(r**k / math.factorial(k + 2) for k in range(20))


def _log1p_ratio(x: Any) -> Any:
    return np.log1p(x) / x


def _log_rest(x: Any) -> Any:
    """(log(1 + x) − x + x²/2) / x³, by its series."""
    return sum((-x) ** k / (k + 3) for k in range(60))


_E0, _E1, _E2, _E3, _E4 = _minimax(_exp_rest, -math.log(2) / 2, math.log(2) / 2, 4)
_P0, _P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8, _P9 = _minimax(_log1p_ratio, 1e-9, 1.0, 9)


_SQRT_HALF_BITS = np.int32(0x3F3504F3)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = _minimax(
    _log_rest, math.sqrt(0.5) - 1, math.sqrt(2) - 1, 8
)


@overload(exp_nonpositive, jit_options=EXACT)
def _exp_nonpositive(x: Any) -> Any:
    if x != types.float32:

        def double(x: Any) -> Any:
            return math.exp(x)

        return double

    def single(x: Any) -> Any:
        # exp(x) = 2ⁿ exp(r), |r| ≤ log 2 / 2. Comparisons are written so that NaN goes through.
        inside = _LOWEST if x < _LOWEST else x
        shifted = inside * _LOG2_E + _ROUND
        n = shifted - _ROUND
        r = (inside - n * _LN2_HIGH) - n * _LN2_LOW
        r2 = r * r
        rest = (_E0 + r * _E1) + r2 * ((_E2 + r * _E3) + r2 * _E4)
        power = bits_float(np.int32((float_bits(shifted) - _ROUND_BITS + _BIAS) << _MANTISSA))
        return _ZERO if x < _LOWEST else (_ONE + (r + r2 * rest)) * power

    return single


@overload(log1p_unit, jit_options=EXACT)
def _log1p_unit(x: Any) -> Any:
    if x != types.float32:

        def double(x: Any) -> Any:
            return math.log1p(x)

        return double

    def single(x: Any) -> Any:
        # Two halves of the polynomial side by side keep the chain of multiply-adds short.
        # Without the small number x⁴ would be subnormal for x from 6e-12 to 3e-10, and arithmetic
        # on subnormal numbers is slow. It is below the rounding of every sum it enters.
        x2 = x * x + _NEVER_SUBNORMAL
        x4 = x2 * x2
        low = (_P0 + x * _P1) + x2 * (_P2 + x * _P3)
        high = (_P4 + x * _P5) + x2 * (_P6 + x * _P7)
        return x * (low + x4 * (high + x4 * (_P8 + x * _P9)))

    return single


@overload(log_positive, jit_options=EXACT)
def _log_positive(x: Any) -> Any:
    if x != types.float32:

        def double(x: Any) -> Any:
            return math.log(x)

        return double

    def single(x: Any) -> Any:
        # x = 2ⁿ (1 + m), 1 + m in [√½, √2), cut from the bits without a branch.
        bits = float_bits(x)
        whole = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> _MANTISSA)
        m = bits_float(np.int32(bits - np.int32(whole << _MANTISSA))) - _ONE
        n = bits_float(np.int32(whole + _ROUND_BITS)) - _ROUND
        m2 = m * m
        m4 = m2 * m2
        low = (_L0 + m * _L1) + m2 * (_L2 + m * _L3)
        high = (_L4 + m * _L5) + m2 * (_L6 + m * _L7)
        rest = low + m4 * (high + m4 * _L8)
        logarithm = n * _LN2_HIGH + (m + (n * _LN2_LOW + (m * m2 * rest - _HALF * m2)))
        return logarithm + (x - x)  # NaN, whose bits mean nothing, stays NaN

    return single
