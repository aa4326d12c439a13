"""Cases and failures of a check."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Number of failures whose messages are kept; the others are only counted.
_MAX_MESSAGES = 20


@dataclass
class Tally:
    """Cases tried, and the failures among them."""

    cases: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def case(self, label: str) -> Iterator[None]:
        """One case: an exception raised inside is recorded as a failure; the check continues."""
        self.cases += 1
        try:
            yield
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            self.fail(f"{label}: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})")

    def add(self, other: Tally) -> None:
        """Add the cases and failures of another tally."""
        self.cases += other.cases
        self.failed += other.failed
        self.failures += other.failures

    def fail(self, message: str) -> None:
        """Record a failure of the current case."""
        self.failed += 1
        if len(self.failures) < _MAX_MESSAGES:
            self.failures.append(message)
