"""Source code of a loss's formula, obtained by evaluating its NumPy expression with symbols.

Every loss, user-defined or not, is written once as a NumPy expression, and kernels inline it in
their own language (:class:`Dialect`). A formula that cannot be traced, because it branches on an
array or calls a function that the dialect does not have, is evaluated with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from robustmf.losses import Loss


class UntraceableError(Exception):
    """The formula uses an operation that the dialect does not have."""


@dataclass(frozen=True)
class Dialect:
    """The notation of NumPy's operations in another language.

    Parameters
    ----------
    ufuncs : mapping
        From ufuncs to format strings of their arguments.
    functions : mapping
        From other NumPy functions to functions that return the code from that of the arguments.
    constant : str, default="{0!r}"
        Format string of a number.
    """

    ufuncs: Mapping[Any, str]
    functions: Mapping[Any, Callable[..., str]]
    constant: str = "{0!r}"

    def text(self, value: Any) -> str:
        """The code of an operand: the name of a symbol, or a finite number."""
        if isinstance(value, Symbol):
            return value.name
        if isinstance(value, (int, float, np.number)) and np.isfinite(value):
            return self.constant.format(float(value))
        raise UntraceableError(repr(value))


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array in a formula, and records each operation as one line of code."""

    def __init__(self, dialect: Dialect, lines: list[str], name: str) -> None:
        self._dialect = dialect
        self._lines = lines
        self.name = name

    def _emit(self, code: str) -> Symbol:
        name = f"t{len(self._lines)}"
        self._lines.append(f"{name} = {code}")
        return Symbol(self._dialect, self._lines, name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Symbol:
        text = self._dialect.text
        if method != "__call__" or options:
            raise UntraceableError(ufunc.__name__)
        if ufunc is np.power and inputs[1] in (0, 1, 2, 3, 4):
            factors = [text(inputs[0])] * int(inputs[1])
            return self._emit(
                " * ".join(factors) or f"{text(inputs[0])} * {text(0.0)} + {text(1.0)}"
            )
        if ufunc not in self._dialect.ufuncs:
            raise UntraceableError(ufunc.__name__)
        return self._emit(self._dialect.ufuncs[ufunc].format(*map(text, inputs)))

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Symbol:
        if function is np.clip and not options and len(args) == 3:
            return cast("Symbol", np.minimum(np.maximum(args[0], args[1]), args[2]))
        if options or function not in self._dialect.functions:
            raise UntraceableError(function.__name__)
        return self._emit(self._dialect.functions[function](*map(self._dialect.text, args)))

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise UntraceableError("a conversion to an array")

    def __bool__(self) -> bool:
        raise UntraceableError("a branch on an array")


def trace(formula: Callable[..., Any], n_parameters: int, dialect: Dialect) -> list[str] | None:
    """Trace a formula.

    Parameters
    ----------
    formula : callable
        A function of a and the parameters.
    n_parameters : int
        Number of parameters, whose names in the code are p0, p1, ….
    dialect : Dialect
        The language of the code.

    Returns
    -------
    list of str or None
        The lines of the body of a function, or None if the formula cannot be traced.
    """
    lines: list[str] = []
    names = ["a", *(f"p{k}" for k in range(n_parameters))]
    try:
        result = formula(*(Symbol(dialect, lines, name) for name in names))
        text = dialect.text(result)
    except Exception:  # a user-defined formula may raise any exception for a symbol
        return None
    if not isinstance(result, Symbol):
        text = f"a * {dialect.text(0.0)} + {text}"
    return [*lines, f"return {text}"]


def value_formula(loss: Loss) -> tuple[Callable[..., Any], Sequence[float]]:
    """φ as a function of a and of the parameters (the float fields), and their values."""
    names = [field.name for field in fields(loss) if isinstance(getattr(loss, field.name), float)]

    def formula(a: Any, *symbols: Any) -> Any:
        # a copy whose parameters are symbols, without its constructor, which validates them
        symbolic = object.__new__(type(loss))
        symbolic.__dict__.update(loss.__dict__)
        symbolic.__dict__.update(zip(names, symbols, strict=True))
        # not _value, since a user-defined loss may override value
        return symbolic.value(a)

    return formula, [getattr(loss, name) for name in names]
