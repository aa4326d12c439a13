"""exp, expm1, log, log1p that vectorize; those of the C library are one scalar call per entry."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# not "reassoc": it would merge the two parts of log 2
_compile = njit(fastmath={"contract", "nsz"}, error_model="numpy")


def _exponential(dtype, bits, bias, mantissa, degree, ln2, limit, less):
    """Compiles exp(x) - less, where less is 0 or 1.

    exp(x) = 2^k exp(r), k = round(x / log 2), r = x - k log 2 with log 2 in two parts (the first
    with trailing zeros, so that k times it is exact), exp(r) - 1 by its Taylor polynomial (|r| <=
    0.347), 2^k by its bits. Beyond `limit` the result is infinite, below -limit it is -less. So 2^k
    and the result are normal numbers everywhere; the limits are slightly below the largest
    arguments of the types (88.7 and 709.8).
    """
    high, low = dtype(ln2[0]), dtype(ln2[1])
    inverse, half, zero, infinite = dtype(1 / math.log(2)), dtype(0.5), dtype(0), dtype(np.inf)
    limit, less = dtype(limit), dtype(less)
    coefficients = tuple(dtype(1 / math.factorial(k)) for k in range(degree, 0, -1))

    @_compile
    def exponential(x):
        x = dtype(x)
        kept = limit if x > limit else x
        kept = -limit if kept < -limit else kept
        k = np.floor(kept * inverse + half)
        r = (kept - k * high) - k * low
        p = zero
        for c in coefficients:
            p = p * r + c
        scale = bits((bits(k) + bias) << mantissa).view(dtype)
        result = p * r * scale + (scale - less)
        result = -less if x < -limit else result
        return infinite if x > limit else result

    return exponential


def _log1p(dtype, bits, mantissa, root, ln2, coefficients):
    """Compiles log(1 + x).

    1 + x = 2^k (1 + f) with 1 + f between the roots of 1/2 and 2; if k is 0, f is x itself, so that
    a small x loses no digits. log(1 + f) = 2 artanh(s), s = f / (2 + f), by fdlibm's polynomial in
    s^2, with f^2 / 2 taken out of it.
    """
    high, low, root = dtype(ln2[0]), dtype(ln2[1]), bits(root)
    one, two, half, zero, infinite, nothing = (
        dtype(1),
        dtype(2),
        dtype(0.5),
        dtype(0),
        dtype(np.inf),
        dtype(np.nan),
    )
    fraction = bits((1 << mantissa) - 1)
    coefficients = tuple(dtype(c) for c in reversed(coefficients))

    @_compile
    def log1p(x):
        x = dtype(x)
        above_root = dtype(one + x).view(bits) - root
        exponent = above_root >> mantissa
        scaled = bits((above_root & fraction) + root).view(dtype)
        f = x if exponent == 0 else scaled - one
        k = dtype(exponent)
        s = f / (two + f)
        z = s * s
        p = zero
        for c in coefficients:
            p = p * z + c
        square = half * f * f
        result = k * high + (f - (square - (s * (square + p * z) + k * low)))
        outside = nothing if x < -one else -infinite
        result = result if x > -one else outside
        return result if x < infinite else x

    return log1p


def _logarithm(dtype, bits, mantissa, root, ln2, coefficients):
    """Compiles log(x) for positive normal numbers, as log(1 + f) of :func:`_log1p`."""
    high, low, root = dtype(ln2[0]), dtype(ln2[1]), bits(root)
    one, two, half, zero = dtype(1), dtype(2), dtype(0.5), dtype(0)
    fraction = bits((1 << mantissa) - 1)
    coefficients = tuple(dtype(c) for c in reversed(coefficients))

    @_compile
    def logarithm(x):
        above_root = dtype(x).view(bits) - root
        k = dtype(above_root >> mantissa)
        f = bits((above_root & fraction) + root).view(dtype) - one
        s = f / (two + f)
        z = s * s
        p = zero
        for c in coefficients:
            p = p * z + c
        square = half * f * f
        return k * high + (f - (square - (s * (square + p * z) + k * low)))

    return logarithm


_FLOAT32 = (np.float32, np.int32, 127, 23, 7, (0.693145751953125, 1.428606765330187e-06), 87.0)
_FLOAT64 = (
    np.float64,
    np.int64,
    1023,
    52,
    13,
    (6.93147180369123816490e-01, 1.90821492927058770002e-10),
    708.0,
)

exp32 = _exponential(*_FLOAT32, 0)
expm1_32 = _exponential(*_FLOAT32, 1)
exp64 = _exponential(*_FLOAT64, 0)
expm1_64 = _exponential(*_FLOAT64, 1)

log1p_32 = _log1p(
    np.float32, np.int32, 23, 0x3F3504F3, _FLOAT32[5],
    (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841),
)  # fmt: skip
_LOG64 = (
    np.float64, np.int64, 52, 0x3FE6A09E667F3BCD, _FLOAT64[5],
    (
        6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
        2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
        1.479819860511658591e-01,
    ),
)  # fmt: skip
log1p_64 = _log1p(*_LOG64)
log64 = _logarithm(*_LOG64)
