"""A loss's weight as machine code, for the half-step kernel.

The kernel calls ``void f(a*, w*, int64 n, double* parameters)`` through its address, once a block of entries. So its own code
is the same for every loss, and is compiled once and kept on disk; only this small loop is compiled in each process (about
0.1 s), for built-in losses and a user's own alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import cfunc, njit, types
from numba.extending import overload
from numpy.typing import NDArray

from robustmf.kernels.exponential import exp_neg32, exp_neg64
from robustmf.kernels.jit import FAST_BUT_HONEST
from robustmf.losses import Loss
from robustmf.losses.base import exp_neg


@overload(exp_neg)
def _exp_neg_in_kernels(x):  # type: ignore[no-untyped-def]  # Numba compares the signatures, annotations included
    if x == types.float32:
        return lambda x: exp_neg32(x)
    return lambda x: exp_neg64(x)


def weight_address(loss: Loss, dtype: np.dtype[Any]) -> int | None:
    """Where the compiled weight of this loss begins: 0 for the weight 1, None if it has no formula that Numba can compile."""
    if loss.unit_weight:
        return 0
    if loss.weight_formula is None:
        return None
    compiled = _compiled(loss.weight_formula, len(loss.weight_parameters), dtype)
    return None if compiled is None else int(compiled.address)


def weight_parameters(loss: Loss) -> NDArray[np.float64]:
    """The numbers that the formula takes beside a."""
    return np.array(loss.weight_parameters, np.float64)


@cache
def _compiled(formula: Callable[..., Any], count: int, dtype: np.dtype[Any]) -> Any:
    number = numba.from_dtype(dtype)
    pointer = types.CPointer(number)
    # bare pointers and one name a parameter: arrays and tuples in here would treble the time to compile
    names = [f"p{k}" for k in range(count)]
    lines = ["def block(a, w, n, parameters):"]
    lines += [f"    {name} = number(parameters[{k}])" for k, name in enumerate(names)]
    lines += ["    for t in range(n):", f"        w[t] = scalar({', '.join(['a[t]', *names])})"]
    namespace = {"number": number, "scalar": njit(fastmath=FAST_BUT_HONEST, error_model="numpy")(formula)}
    exec("\n".join(lines), namespace)
    signature = types.void(pointer, pointer, types.int64, types.CPointer(types.float64))
    try:
        return cfunc(signature, fastmath=FAST_BUT_HONEST, error_model="numpy")(namespace["block"])
    except numba.core.errors.NumbaError:
        return None
