"""Formulas of losses as Triton code.

See :mod:`robustmf.losses.formula`. The values of a formula that cannot be traced are computed
between passes.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import triton
import triton.language as tl

from robustmf.backends.cuda.array import DeviceArray, as_tensor
from robustmf.losses import Loss
from robustmf.losses.formula import Dialect, trace, value_formula

#: Number of parameters that kernels pass to a formula; unused ones are 0.
N_PARAMETERS = 4

_UFUNCS: dict[Any, str] = {
    np.add: "{0} + {1}",
    np.subtract: "{0} - {1}",
    np.multiply: "{0} * {1}",
    np.divide: "{0} / {1}",
    np.negative: "-{0}",
    np.reciprocal: "1.0 / {0}",
    np.absolute: "tl.abs({0})",
    np.square: "{0} * {0}",
    np.sqrt: "tl.sqrt({0})",
    np.exp: "tl.exp({0})",
    np.expm1: "tl.exp({0}) - 1.0",
    np.log: "tl.log({0})",
    np.log1p: "tl.log(1.0 + {0})",
    np.hypot: "tl.sqrt({0} * {0} + {1} * {1})",
    np.maximum: "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    np.minimum: "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    np.less: "{0} < {1}",
    np.less_equal: "{0} <= {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
}

_FUNCTIONS: dict[Any, Callable[..., str]] = {
    np.where: lambda condition, a, b: f"tl.where({condition}, {a}, {b})",
    np.ones_like: lambda x: f"{x} * 0.0 + 1.0",
    np.zeros_like: lambda x: f"{x} * 0.0",
}


_TRITON = Dialect(_UFUNCS, _FUNCTIONS)


def weight_code(loss: Loss) -> tuple[Any, tuple[float, ...]] | None:
    """The compiled ``weight_formula`` of a loss with its parameters; None if it has none."""
    formula = loss.weight_formula
    return None if formula is None else _traced(formula, loss.weight_parameters)


def value_code(loss: Loss) -> tuple[Any, tuple[float, ...]] | None:
    """The compiled φ of a loss, with its float fields as parameters; None if not traceable."""
    return _traced(*value_formula(loss))


def _traced(
    formula: Callable[..., Any], parameters: Sequence[float]
) -> tuple[Any, tuple[float, ...]] | None:
    """The compiled formula with its padded parameters; None if it cannot be traced."""
    if len(parameters) > N_PARAMETERS:
        return None
    lines = trace(formula, len(parameters), _TRITON)
    if lines is None:
        return None
    padding = [0.0] * (N_PARAMETERS - len(parameters))
    return _compiled("\n    ".join(lines)), (*map(float, parameters), *padding)


def values_of(function: Callable[[Any], Any], array: DeviceArray) -> DeviceArray:
    """The values of a formula without code: on the GPU, or on the host if torch cannot do it."""
    try:
        return cast("DeviceArray", function(array))
    except Exception:  # a user-defined formula may raise anything if it is not given a NumPy array
        return DeviceArray(as_tensor(function(np.asarray(array)), array.tensor))


@cache
def _compiled(body: str) -> Any:
    """A Triton function of a and p0 … p3."""
    return compiled_function("formula", f"def formula(a, p0, p1, p2, p3):\n    {body}\n")


def compiled_function(name: str, source: str) -> Any:
    """The Triton function ``name`` that this source defines.

    Triton reads the source of a function, so it is registered where Python looks for it.
    """
    file = f"<robustmf {name} {hash(source):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"tl": tl, "triton": triton, "__name__": __name__}
    exec(compile(source, file, "exec"), namespace)
    return triton.jit(namespace[name])
