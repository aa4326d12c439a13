"""The phases of a long computation, for a display of progress.

Long computations report their phases; a progress bar that is installed with :func:`shown_by`
receives the reports. Without one, a report costs one look-up of a context variable. Computations
therefore do not depend on how progress is displayed, and need no argument for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Display(Protocol):
    """Shows phases, for example a progress bar."""

    def begin(self, name: str, steps: int | None, at_most: bool) -> None:
        """A phase begins; ``steps`` is its length or its limit, None if that is unknown."""
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


def begin(name: str, steps: int | None = None, at_most: bool = False) -> None:
    """Report that a phase begins; ``at_most``: it may end after fewer steps."""
    display = _display.get()
    if display is not None:
        display.begin(name, steps, at_most)


def step(done: int, detail: str = "") -> None:
    """Report that ``done`` steps of the phase are made."""
    display = _display.get()
    if display is not None:
        display.step(done, detail)
