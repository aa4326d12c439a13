"""Cases that Hypothesis makes: as many as asked for, each within a time limit, every different failure told by its smallest example."""

from __future__ import annotations

import faulthandler
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

from stress.tally import Tally

#: Seconds for one case; a case that does not come back to Python at all ends the process after so many times that.
LIMIT = 20.0
_HARD = 6


class TooSlow(AssertionError):  # noqa: N818 - what is said of a case
    """A case that took longer than the limit."""


def explore(
    tally: Tally,
    strategy: SearchStrategy[Any],
    check: Callable[[Any], object],
    cases: int,
    seed: int,
) -> None:
    """Call ``check`` with ``cases`` examples; what it raises is a failure, counted once a place in the code and told as shrunk."""
    known: set[tuple[str, int]] = set()
    tried = 0
    while tried < cases:
        more, failing = _explored(strategy, check, cases - tried, seed + tried, known)
        tried += more
        if failing is None:
            break  # all of them, or the strategy has no more different examples
        known.add(failing.place)
        tally.fail(
            f"{failing.example!r}: {type(failing.error).__name__}: {failing.error} ({failing.place[0]}:{failing.place[1]})"
        )
    tally.cases += tried


@dataclass
class _Failing:
    """A failure, and the smallest example of it so far."""

    place: tuple[str, int]
    example: Any
    error: Exception


def _explored(
    strategy: SearchStrategy[Any],
    check: Callable[[Any], object],
    cases: int,
    seed: int,
    known: set[tuple[str, int]],
) -> tuple[int, _Failing | None]:
    """How many examples were tried until the first failure that is not known, and that failure."""
    tried, failing = 0, None

    @seeded(seed)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(strategy)
    def attempt(example: Any) -> None:
        nonlocal tried, failing
        tried += failing is None  # what shrinking tries is no new case
        try:
            with time_limit():
                check(example)
        except Exception as error:
            place = _place(error)
            if place in known or (failing is not None and failing.place != place):
                return
            failing = _Failing(place, example, error)
            raise

    try:
        attempt()
    except Exception:
        if failing is None:
            raise
    return tried, failing


@contextmanager
def time_limit(seconds: float = LIMIT) -> Iterator[None]:
    """Raise :class:`TooSlow` where the block takes longer; end the process where it never comes back from compiled code."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TooSlow(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(_HARD * seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _place(error: BaseException) -> tuple[str, int]:
    """The innermost line of our own that the error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame
        for frame in frames
        if "robustmf" in frame.filename or "stress/checks" in frame.filename
    ]
    frame = (ours or frames)[-1]
    return frame.filename, frame.lineno or 0
