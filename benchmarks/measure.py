"""Timing, memory, separate processes, problem sizes and Markdown tables for all benchmarks."""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

#: No dimension of a scaled problem becomes smaller than this.
_SMALLEST = 60


def announce(text: str) -> None:
    """Report progress on the standard error stream."""
    print(text, file=sys.stderr, flush=True)


def timed(
    work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """Seconds of one call, and what it returned."""
    started = clock()
    result = work()
    return clock() - started, result


def quickest(
    work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Least seconds of ``repeats`` calls, after one that compiles."""
    return interleaved({"": work}, repeats, clock)[""]


def interleaved(
    works: Mapping[str, Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Least seconds of each work; turns alternate, so that a slow phase of the machine hits all."""
    for work in works.values():
        work()
    best = dict.fromkeys(works, math.inf)
    for _ in range(repeats):
        for name, work in works.items():
            best[name] = min(best[name], timed(work, clock)[0])
    return best


def peak_gigabytes() -> float:
    """The largest resident memory of this process so far."""
    import resource  # noqa: PLC0415 - does not exist on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def in_new_process(work: Callable[..., Any], *given: Any, limit: float | None = None) -> Any:
    """Return ``work(*given)`` from a new process; both must be picklable.

    Raises TimeoutError after ``limit`` seconds, and RuntimeError where the work fails.
    """
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_send_result, args=(sender, work, given), daemon=True)
    process.start()
    sender.close()
    try:
        with receiver:
            if not receiver.poll(limit):
                raise TimeoutError(f"no result within {limit:.0f} s")
            succeeded, result = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(
            f"the process ended without a result, exit code {process.exitcode}"
        ) from None
    finally:
        process.kill()
        process.join()
    if not succeeded:
        raise RuntimeError(result)
    return result


def _send_result(to: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            to.send((True, work(*given)))
    except Exception as error:  # every failure is reported to the calling process
        to.send((False, repr(error)))


def side(full: int, scale: float) -> int:
    """Rows or columns of a problem with ``scale`` times the cells of the full one."""
    return min(full, max(_SMALLEST, round(full * math.sqrt(scale))))


def part(full: float, scale: float) -> int:
    """Entries of a problem with ``scale`` times the entries of the full one."""
    return min(int(full), max(_SMALLEST, round(full * scale)))


def markdown(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line of text above it."""
    lines = [f"{title}:\n"] if title else []
    lines += [_row(header), "|" + "---|" * len(header), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[object]) -> str:
    escaped = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(escaped) + " |"


def shown(value: Any) -> str:
    """A figure in a table: integers in full, other numbers with four digits."""
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    large = isinstance(value, int) or abs(value) >= 1000
    return f"{value:,.0f}" if large else f"{value:.4g}"


def figures(title: str, results: Mapping[str, Any]) -> str:
    """A table of single figures, one row per field; nested fields have their names joined."""
    return markdown(title, ["quantity", "measured"], [[k, shown(v)] for k, v in _flat("", results)])


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [(name, value)]
    prefix = f"{name}: " if name else ""
    parts = (_flat(prefix + key.replace("_", " "), inner) for key, inner in value.items())
    return [pair for part in parts for pair in part]


def grouped(
    records: Iterable[dict[str, Any]], *names: str
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Records by the values of some fields, in order of appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups


def column(records: Iterable[dict[str, Any]], name: str) -> np.ndarray[Any, Any]:
    """One field of all records."""
    return np.array([record[name] for record in records])
