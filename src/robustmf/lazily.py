"""Attributes that are computed when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Value = TypeVar("Value")


class cached(Generic[Value]):  # noqa: N801 - used as a decorator
    """``functools.cached_property`` without a lock.

    Until Python 3.11 that has one for all instances: fits in threads wait for each other, and a process forked meanwhile waits for ever.
    Here two threads may compute the same value, and the last one is kept: they are equal.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Value: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | Value:
        """The value, which from now on is the instance's own attribute."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
