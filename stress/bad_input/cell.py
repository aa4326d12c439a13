"""Cells of the table of bad input: a call, and the error or result that it must have."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robustmf.exceptions import RobustMFWarning


@dataclass(frozen=True)
class Raises:
    """An error of this type, whose message matches."""

    kind: type[Exception]
    match: str


@dataclass(frozen=True)
class Answers:
    """No error: a description of the result, and a check of it."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Cell:
    """One function with one kind of bad input."""

    function: str
    kind: str
    call: Callable[[], Any]
    expected: Raises | Answers

    def executed(self) -> str:
        """Make the call and describe its result; AssertionError if it is not the expected one."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", RobustMFWarning)
            try:
                answer = self.call()
            except Exception as error:
                if not isinstance(self.expected, Raises) or type(error) is not self.expected.kind:
                    raise AssertionError(
                        f"{type(error).__name__}: {error}, but {self.expected} was expected"
                    ) from error
                assert re.search(self.expected.match, str(error)), (
                    f"the message {str(error)!r} does not match {self.expected.match!r}"
                )
                return f"`{type(error).__name__}`: {' '.join(str(error).split())}"
        assert isinstance(self.expected, Answers), f"no error, but {self.expected} was expected"
        assert self.expected.holds(answer), f"{answer!r} is not: {self.expected.words}"
        return self.expected.words
