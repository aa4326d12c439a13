"""The phases of a long computation, for whoever shows them.

Code that takes long reports what it does; a progress bar that is installed with :func:`shown_by`
receives it. Without one, reports cost a look at a context variable. So no code that computes knows
how progress is shown, and nothing is passed through its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Display(Protocol):
    """Shows phases, for example a progress bar."""

    def begin(self, name: str, steps: int | None) -> None:
        """A phase begins; ``steps`` is its length, None if that is unknown."""
        ...

    def step(self, done: int, detail: str) -> None:
        """``done`` steps of the phase are made."""
        ...


_display: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def shown_by(display: Display | None) -> Iterator[None]:
    """Send the reports of this context to a display; None hides them."""
    token = _display.set(display)
    try:
        yield
    finally:
        _display.reset(token)


def begin(name: str, steps: int | None = None) -> None:
    """Report that a phase begins."""
    display = _display.get()
    if display is not None:
        display.begin(name, steps)


def step(done: int, detail: str = "") -> None:
    """Report that ``done`` steps of the phase are made."""
    display = _display.get()
    if display is not None:
        display.step(done, detail)
