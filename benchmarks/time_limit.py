"""Other people's code under a time limit: in a process of its own, which can be ended."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def within(seconds: float, work: Callable[..., Any], *given: Any) -> Any:
    """What ``work(*given)`` returns in a new process; TimeoutError where it takes longer, RuntimeError where it fails.

    Both must be picklable.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_answer, args=(there, work, given), daemon=True)
    process.start()
    there.close()
    try:
        with here:
            if not here.poll(seconds):
                raise TimeoutError(f"no answer within {seconds:.0f} s")
            done, answer = here.recv()
    except EOFError:
        process.join()
        raise RuntimeError(
            f"the process ended without an answer, exit code {process.exitcode}"
        ) from None
    finally:
        process.kill()
        process.join()
    if not done:
        raise RuntimeError(answer)
    return answer


def _answer(to: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        to.send((True, work(*given)))
    except Exception as error:  # whatever it is, the one who asked is to hear of it
        to.send((False, repr(error)))
