"""What a check counts."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: So many failures are kept in words; the others are only counted.
_TOLD = 20


@dataclass
class Tally:
    """Cases tried, and the failures among them."""

    cases: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def case(self, label: str) -> Iterator[None]:
        """One case: whatever is raised inside is a failure, told by its label and its last line, and the check goes on."""
        self.cases += 1
        try:
            yield
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.fail(f"{label}: {type(error).__name__}: {error} ({place.filename}:{place.lineno})")

    def fail(self, what: str) -> None:
        """A failure of the case that runs now."""
        self.failed += 1
        if len(self.failures) < _TOLD:
            self.failures.append(what)
