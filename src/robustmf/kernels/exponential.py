"""exp(−x) that vectorises: in a compiled loop the C library's exp is one scalar call an entry."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


def _exp_neg(dtype, bits, bias, mantissa, degree, ln2, limit):
    """Compiles exp(-x) for x >= 0.

    exp(-x) = 2^k exp(r), k = round(-x / log 2), r = -x - k log 2 with log 2 in two parts (the first with trailing zeros, so
    that k times it is exact), exp(r) by its Taylor sum (|r| <= 0.347), 2^k by its bits. Beyond `limit` the result is 0.
    """
    high, low = dtype(ln2[0]), dtype(ln2[1])
    inverse, half, zero = dtype(1 / math.log(2)), dtype(0.5), dtype(0)
    limit = dtype(limit)
    coefficients = tuple(dtype(1 / math.factorial(k)) for k in range(degree, -1, -1))

    # not "reassoc": it would merge the two parts of log 2
    @njit(fastmath={"contract", "nsz"}, error_model="numpy")
    def exp_neg(x):
        x = dtype(x)
        kept = x if x < limit else limit
        k = np.floor(half - kept * inverse)
        r = (-kept - k * high) - k * low
        p = zero
        for c in coefficients:
            p = p * r + c
        scale = bits((bits(k) + bias) << mantissa).view(dtype)
        return p * scale if x < limit else zero

    return exp_neg


exp_neg32 = _exp_neg(np.float32, np.int32, 127, 23, 7, (0.693145751953125, 1.428606765330187e-06), 87.0)
exp_neg64 = _exp_neg(np.float64, np.int64, 1023, 52, 13, (6.93147180369123816490e-01, 1.90821492927058770002e-10), 708.0)
