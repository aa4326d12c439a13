"""A loss's formula as Triton code, found by tracing: the NumPy expression is run once with symbols in place of arrays.

So every loss, a user's own too, is written once, in NumPy, and a kernel has it inlined. A formula that cannot be traced (a branch
on an array, a function not listed here) has no code; its values are then computed between passes.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, cast

import numpy as np
import triton
import triton.language as tl

from robustmf.device.array import DeviceArray, tensor_like
from robustmf.losses import Loss

#: Kernels pass so many numbers to a formula; unused ones are 0.
SLOTS = 4

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
    np.maximum: "tl.maximum({0}, {1})",
    np.minimum: "tl.minimum({0}, {1})",
    np.less: "{0} < {1}",
    np.less_equal: "{0} <= {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
}

_FUNCTIONS: dict[Any, Callable[..., str]] = {
    np.where: lambda condition, a, b: f"tl.where({condition}, {a}, {b})",
    np.clip: lambda x, low, high: f"tl.minimum(tl.maximum({x}, {low}), {high})",
    np.ones_like: lambda x: f"{x} * 0.0 + 1.0",
    np.zeros_like: lambda x: f"{x} * 0.0",
}


class UntraceableError(Exception):
    """The formula does something that has no Triton code here."""


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array in a formula; what is done to it is written down."""

    def __init__(self, lines: list[str], text: str) -> None:
        self._lines, self._text = lines, text

    def _emit(self, code: str) -> Symbol:
        name = f"t{len(self._lines)}"
        self._lines.append(f"{name} = {code}")
        return Symbol(self._lines, name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Symbol:
        if ufunc is np.power and method == "__call__" and inputs[1] in (0, 1, 2, 3, 4):
            factors = [_text(inputs[0])] * int(inputs[1])
            return self._emit(" * ".join(factors) or f"{_text(inputs[0])} * 0.0 + 1.0")
        if method != "__call__" or options or ufunc not in _UFUNCS:
            raise UntraceableError(ufunc.__name__)
        return self._emit(_UFUNCS[ufunc].format(*map(_text, inputs)))

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Symbol:
        if options or function not in _FUNCTIONS:
            raise UntraceableError(function.__name__)
        return self._emit(_FUNCTIONS[function](*map(_text, args)))

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise UntraceableError("a conversion to an array")

    def __bool__(self) -> bool:
        raise UntraceableError("a branch on an array")


def _text(value: Any) -> str:
    if isinstance(value, Symbol):
        return value._text
    if isinstance(value, (int, float, np.number)) and np.isfinite(value):
        return repr(float(value))
    raise UntraceableError(repr(value))


def weight_code(loss: Loss) -> tuple[Any, tuple[float, ...]] | None:
    """The compiled ``weight_formula`` of a loss with its numbers; None where there is none."""
    formula = loss.weight_formula
    return None if formula is None else _traced(formula, loss.weight_parameters)


def value_code(loss: Loss) -> tuple[Any, tuple[float, ...]] | None:
    """φ of a loss compiled, with the numbers of the loss (its float fields) as parameters; None where it cannot be traced."""
    numbers = [field.name for field in fields(loss) if isinstance(getattr(loss, field.name), float)]

    def formula(a: Symbol, *symbols: Symbol) -> Any:
        # a twin whose numbers are symbols: not made by its constructor, which would judge them
        twin = object.__new__(type(loss))
        twin.__dict__.update(loss.__dict__)
        twin.__dict__.update(zip(numbers, symbols, strict=True))
        return twin._value(a)  # type: ignore[arg-type]

    return _traced(formula, tuple(getattr(loss, name) for name in numbers))


def _traced(formula: Callable[..., Any], parameters: Sequence[float]) -> tuple[Any, tuple[float, ...]] | None:
    if len(parameters) > SLOTS:
        return None
    lines: list[str] = []
    try:
        result = formula(Symbol(lines, "a"), *(Symbol(lines, f"p{k}") for k in range(len(parameters))))
        text = _text(result)
    except (UntraceableError, TypeError, ValueError, AttributeError):
        return None
    if not isinstance(result, Symbol):
        text = f"a * 0.0 + {text}"
    return _compiled("\n    ".join([*lines, f"return {text}"])), (*map(float, parameters), *[0.0] * (SLOTS - len(parameters)))


def values_of(function: Callable[[Any], Any], array: DeviceArray) -> DeviceArray:
    """A formula without code, of an array on the card: computed there, or on the host if it asks for what torch does not have."""
    try:
        return cast("DeviceArray", function(array))
    except (TypeError, ValueError, AttributeError):
        return DeviceArray(tensor_like(function(np.asarray(array)), array.tensor))


@cache
def _compiled(body: str) -> Any:
    """A Triton function of a and p0 … p3; Triton reads its source back, so it is put where Python looks for source."""
    return compiled_function("formula", f"def formula(a, p0, p1, p2, p3):\n    {body}\n")


def compiled_function(name: str, source: str) -> Any:
    """The Triton function ``name`` that this source defines."""
    file = f"<robustmf {name} {hash(source):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"tl": tl, "triton": triton, "__name__": __name__}
    exec(compile(source, file, "exec"), namespace)
    return triton.jit(namespace[name])
