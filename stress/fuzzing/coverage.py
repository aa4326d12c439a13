"""Pairs of consecutive lines of selected files that a call executes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

#: A file, a line, and the line of the same function that was executed before it.
Arc = tuple[str, int, int]


class Coverage:
    """Records the arcs of the files below some folders.

    Parameters
    ----------
    folders : list of Path
        The folders.
    """

    def __init__(self, folders: list[Path]) -> None:
        self._prefixes = tuple(f"{folder}/" for folder in folders)
        self._followed: dict[str, bool] = {}
        self.arcs: set[Arc] = set()

    @contextmanager
    def recording(self) -> Iterator[set[Arc]]:
        """Context in which arcs of this thread are recorded; the set is filled in it."""
        self.arcs = set()
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield self.arcs
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace the lines of a function if its file is one of those to follow."""
        name = frame.f_code.co_filename
        followed = self._followed.get(name)
        if followed is None:
            followed = self._followed[name] = name.startswith(self._prefixes)
        if not followed:
            return None
        arcs = self.arcs
        last = frame.f_code.co_firstlineno

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                arcs.add((name, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line
