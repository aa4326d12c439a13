"""A loss's formula as source text, found by tracing: the NumPy expression is run once with symbols in place of arrays.

So every loss, a user's own too, is written once, in NumPy, and kernels have it inlined, each in its own language (:class:`Dialect`).
A formula that cannot be traced (a branch on an array, a function that the dialect does not list) has no text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from robustmf.losses import Loss


class UntraceableError(Exception):
    """The formula does something that has no text here."""


@dataclass(frozen=True)
class Dialect:
    """How a language writes down what NumPy does: ufuncs as templates, functions as what makes their text, constants as a template."""

    ufuncs: Mapping[Any, str]
    functions: Mapping[Any, Callable[..., str]]
    constant: str = "{0!r}"

    def text(self, value: Any) -> str:
        """An operand: a symbol's name, or a finite number."""
        if isinstance(value, Symbol):
            return value.name
        if isinstance(value, (int, float, np.number)) and np.isfinite(value):
            return self.constant.format(float(value))
        raise UntraceableError(repr(value))


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array in a formula; what is done to it is written down, a line each."""

    def __init__(self, dialect: Dialect, lines: list[str], name: str) -> None:
        self._dialect, self._lines, self.name = dialect, lines, name

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


def traced(formula: Callable[..., Any], count: int, dialect: Dialect) -> list[str] | None:
    """The lines of a function of a and p0 … p(count − 1), the last being its return; None where the formula cannot be traced."""
    lines: list[str] = []
    try:
        result = formula(
            *(Symbol(dialect, lines, name) for name in ["a", *(f"p{k}" for k in range(count))])
        )
        text = dialect.text(result)
    except (
        Exception
    ):  # a user's formula may raise anything at a symbol; it runs with NumPy all the same
        return None
    if not isinstance(result, Symbol):
        text = f"a * {dialect.text(0.0)} + {text}"
    return [*lines, f"return {text}"]


def value_formula(loss: Loss) -> tuple[Callable[..., Any], Sequence[float]]:
    """φ as a function of a and of the numbers of the loss (its float fields), and these numbers."""
    numbers = [field.name for field in fields(loss) if isinstance(getattr(loss, field.name), float)]

    def formula(a: Any, *symbols: Any) -> Any:
        # a twin whose numbers are symbols: not made by its constructor, which would judge them
        twin = object.__new__(type(loss))
        twin.__dict__.update(loss.__dict__)
        twin.__dict__.update(zip(numbers, symbols, strict=True))
        # not _value: a loss may have its own value instead
        return twin.value(a)

    return formula, [getattr(loss, name) for name in numbers]
