"""Errors that an action must raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def refusal(kind: type[Exception], action: Callable[[], Any]) -> str:
    """The message of the error of this kind that the action must raise."""
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")
