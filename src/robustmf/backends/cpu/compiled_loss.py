"""A loss's weight and value as machine code, for the kernels.

Kernels call ``void f(a*, out*, int64 n, double* parameters)`` through its address, once a block of entries. So their own code is the
same for every loss, and is compiled once and kept on disk. So is this small loop, for built-in losses and a user's own alike, where
the formula can be traced (:mod:`robustmf.losses.formula`); a weight that cannot be traced is compiled in each process, as Numba understands it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import cfunc, njit, types
from numpy.typing import NDArray

from robustmf.kernels import elementary
from robustmf.kernels.jit import FAST_BUT_HONEST
from robustmf.losses import Loss
from robustmf.losses.formula import Dialect, trace, value_formula

_NUMBA = Dialect(
    {
        np.add: "{0} + {1}",
        np.subtract: "{0} - {1}",
        np.multiply: "{0} * {1}",
        np.divide: "{0} / {1}",
        np.negative: "-{0}",
        np.reciprocal: "number(1) / {0}",
        np.absolute: "abs({0})",
        np.square: "{0} * {0}",
        np.sqrt: "np.sqrt({0})",
        np.exp: "exp({0})",
        np.expm1: "expm1({0})",
        np.log: "np.log({0})",
        np.log1p: "log1p({0})",
        np.hypot: "np.sqrt({0} * {0} + {1} * {1})",
        # plain choices, which vectorise; NaN on either side stays NaN
        np.maximum: "{0} if ({0} > {1}) | ({0} != {0}) else {1}",
        np.minimum: "{0} if ({0} < {1}) | ({0} != {0}) else {1}",
        np.less: "{0} < {1}",
        np.less_equal: "{0} <= {1}",
        np.greater: "{0} > {1}",
        np.greater_equal: "{0} >= {1}",
    },
    {
        np.where: lambda condition, a, b: f"{a} if {condition} else {b}",
        np.ones_like: lambda x: "number(1)",
        np.zeros_like: lambda x: "number(0)",
    },
    # a bare number would widen float32
    constant="number({0!r})",
)

_FUNCTIONS = {
    np.dtype(np.float32): {
        "exp": elementary.exp32,
        "expm1": elementary.expm1_32,
        "log1p": elementary.log1p_32,
    },
    np.dtype(np.float64): {
        "exp": elementary.exp64,
        "expm1": elementary.expm1_64,
        "log1p": elementary.log1p_64,
    },
}


def weight_address(loss: Loss, dtype: np.dtype[Any]) -> int | None:
    """Where the compiled weight of this loss begins: 0 for the weight 1, None if it has no formula that Numba can compile."""
    if loss.unit_weight:
        return 0
    if loss.weight_formula is None:
        return None
    formula, count = loss.weight_formula, len(loss.weight_parameters)
    # traced anew: a formula may read numbers that have changed since
    lines = trace(formula, count, _NUMBA)
    compiled = (
        _by_numba(formula, count, dtype) if lines is None else _loop(tuple(lines), count, dtype)
    )
    return None if compiled is None else int(compiled.address)


def weight_parameters(loss: Loss) -> NDArray[np.float64]:
    """The numbers that the formula takes beside a."""
    return np.array(loss.weight_parameters, np.float64)


def value_address(loss: Loss, dtype: np.dtype[Any]) -> tuple[int, NDArray[np.float64]] | None:
    """Where the compiled φ of this loss begins, this type in and out, and the numbers it takes beside a; None if it cannot be traced."""
    formula, numbers = value_formula(loss)
    lines = trace(formula, len(numbers), _NUMBA)
    if lines is None:
        return None
    compiled = _loop(tuple(lines), len(numbers), dtype)
    return None if compiled is None else (int(compiled.address), np.array(numbers, np.float64))


@cache
def _by_numba(formula: Callable[..., Any], count: int, dtype: np.dtype[Any]) -> Any:
    try:
        scalar = njit(fastmath=FAST_BUT_HONEST, error_model="numpy")(formula)
    except TypeError:  # an object that can be called, but no function
        return None
    names = ", ".join(["a", *(f"p{k}" for k in range(count))])
    return _compiled(
        _source("block", [f"return scalar({names})"], count),
        "block",
        dtype,
        {"scalar": scalar},
        kept=False,
    )


@cache
def _loop(lines: tuple[str, ...], count: int, dtype: np.dtype[Any]) -> Any:
    name = _name(lines, count, dtype)
    return _compiled(_source(name, lines, count), name, dtype, _FUNCTIONS[dtype], kept=True)


def _name(lines: tuple[str, ...], count: int, dtype: np.dtype[Any]) -> str:
    """Holds all that the machine code follows from: Numba looks for it on disk by its name."""
    told = repr((lines, count, dtype.name, sorted(FAST_BUT_HONEST)))
    return f"block_{hashlib.sha256(_functions_source() + told.encode()).hexdigest()[:16]}"


@cache
def _functions_source() -> bytes:
    return Path(elementary.__file__).read_bytes()


def _source(name: str, lines: Sequence[str], count: int) -> str:
    """A loop over the entries; the last line returns the result."""
    *steps, last = lines
    # bare pointers and one name a parameter: arrays and tuples in here would treble the time to compile
    text = [f"def {name}(entries, out, n, parameters):"]
    text += [f"    p{k} = number(parameters[{k}])" for k in range(count)]
    text += [
        "    for t in range(n):",
        "        a = entries[t]",
        *(f"        {step}" for step in steps),
    ]
    text += [f"        out[t] = {last.removeprefix('return ')}"]
    return "\n".join(text)


def _compiled(
    source: str, name: str, dtype: np.dtype[Any], functions: dict[str, Any], kept: bool
) -> Any:
    number = numba.from_dtype(dtype)
    pointer = types.CPointer(number)
    namespace = {"number": dtype.type, "np": np, "__name__": __name__, **functions}
    # as if it stood in this file: Numba keeps machine code only of functions that stand in one
    exec(compile(source, __file__, "exec"), namespace)
    signature = types.void(pointer, pointer, types.int64, types.CPointer(types.float64))
    try:
        return cfunc(signature, fastmath=FAST_BUT_HONEST, error_model="numpy", cache=kept)(
            namespace[name]
        )
    except numba.core.errors.NumbaError:
        return None
