"""A deliberate fault, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change of one place in the code.

    Parameters
    ----------
    file : str
        The file, relative to ``src/robustmf``.
    old, new : str
        The text to replace, which occurs once in the file, and its replacement.
    tests : str
        Arguments of pytest, relative to ``tests``: files or tests, and options such as ``-k``.
    aimed : bool, default=False
        Whether a test was written for this mutant, or for the defect that it is; the others were
        chosen after the tests had been written.
    equivalent : str, default=""
        Why the change cannot be noticed; empty if it can.
    """

    file: str
    old: str
    new: str
    tests: str
    aimed: bool = False
    equivalent: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {_short(self.old)} -> {_short(self.new) or '(removed)'}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
