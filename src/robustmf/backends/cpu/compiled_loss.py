"""The weight and the value of a loss as machine code for the kernels.

Kernels call ``void f(a*, out*, int64 n, double* parameters)`` through its address, once per block
of entries. So their own code is the same for every loss, compiled once and cached on disk. The loop
that is compiled here is cached too, for built-in and user-defined losses, if the formula can be
traced (:mod:`robustmf.losses.formula`); a weight that cannot be traced is compiled by Numba in each
process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import cfunc, njit, types
from numpy.typing import NDArray

from robustmf.kernels import elementary
from robustmf.kernels.jit import FASTMATH, sources_digest
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
        # selections, which vectorize; the result is NaN if either argument is
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
    # an untyped number would widen float32
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
    """The address of the compiled weight of a loss.

    0 stands for the weight 1; None means that it has no formula which Numba can compile.
    """
    if loss.unit_weight:
        return 0
    if loss.weight_formula is None:
        return None
    formula = loss.weight_formula
    count = len(loss.weight_parameters)
    # traced in every call, because a formula may read variables that have changed
    lines = trace(formula, count, _NUMBA)
    if lines is None:
        compiled = _by_numba(formula, count, dtype)
    else:
        compiled = _loop(tuple(lines), count, dtype)
    return None if compiled is None else int(compiled.address)


def weight_parameters(loss: Loss) -> NDArray[np.float64]:
    """The parameters of the weight formula."""
    return np.array(loss.weight_parameters, np.float64)


def value_address(loss: Loss, dtype: np.dtype[Any]) -> tuple[int, NDArray[np.float64]] | None:
    """The address of the compiled φ of a loss and its parameters; None if it cannot be traced."""
    formula, numbers = value_formula(loss)
    lines = trace(formula, len(numbers), _NUMBA)
    if lines is None:
        return None
    compiled = _loop(tuple(lines), len(numbers), dtype)
    return None if compiled is None else (int(compiled.address), np.array(numbers, np.float64))


@cache
def _by_numba(formula: Callable[..., Any], count: int, dtype: np.dtype[Any]) -> Any:
    """A loop around the formula as Numba compiles it; None if it cannot."""
    try:
        scalar = njit(fastmath=FASTMATH, error_model="numpy")(formula)
    except TypeError:  # a callable object that is not a function
        return None
    names = ", ".join(["a", *(f"p{k}" for k in range(count))])
    return _compiled(
        _source("block", [f"return scalar({names})"], count),
        "block",
        dtype,
        {"scalar": scalar},
        cached=False,
    )


@cache
def _loop(lines: tuple[str, ...], count: int, dtype: np.dtype[Any]) -> Any:
    """A loop around a traced formula."""
    name = _name(lines, count, dtype)
    return _compiled(_source(name, lines, count), name, dtype, _FUNCTIONS[dtype], cached=True)


def _name(lines: tuple[str, ...], count: int, dtype: np.dtype[Any]) -> str:
    """A name that identifies the machine code: Numba's cache on disk is indexed by it."""
    description = repr((lines, count, dtype.name, sorted(FASTMATH)))
    digest = hashlib.sha256((sources_digest() + description).encode())
    return f"block_{digest.hexdigest()[:16]}"


def _source(name: str, lines: Sequence[str], count: int) -> str:
    """The source of a loop over the entries; the last line of the formula returns the result."""
    *steps, last = lines
    # pointers, and one name per parameter: arrays and tuples would triple the compilation time
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
    source: str, name: str, dtype: np.dtype[Any], functions: dict[str, Any], cached: bool
) -> Any:
    """A C function compiled from ``source``; None if Numba cannot compile it."""
    number = numba.from_dtype(dtype)
    pointer = types.CPointer(number)
    namespace = {"number": dtype.type, "np": np, "__name__": __name__, **functions}
    # with the name of this file: Numba caches only functions that are defined in a file
    exec(compile(source, __file__, "exec"), namespace)
    signature = types.void(pointer, pointer, types.int64, types.CPointer(types.float64))
    try:
        return cfunc(signature, fastmath=FASTMATH, error_model="numpy", cache=cached)(
            namespace[name]
        )
    except numba.core.errors.NumbaError:
        return None
