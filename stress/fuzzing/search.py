"""The search of one kind of file, in a separate process with limited memory."""

from __future__ import annotations

import hashlib
import multiprocessing
import resource
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import robustmf
from robustmf.exceptions import RobustMFWarning
from stress.fuzzing.coverage import Arc, Coverage
from stress.fuzzing.model_files import model_targets
from stress.fuzzing.tables import table_targets
from stress.fuzzing.target import Target
from stress.generated import time_limit

#: Files whose lines guide the search.
_FOLLOWED = ["io", "data"]

#: Bytes of address space that the process may allocate; Arrow's allocator reserves 1 GiB at once.
_MEMORY = 3 * 2**30

#: Bytes of memory that one small file may take.
_RESIDENT = 2**30

#: Seconds for one file, the compilation of kernels on a busy machine included.
_LIMIT = 120.0

#: Seconds after which a process that does not answer is ended, per file and at least.
_PATIENCE = 1.0
_LEAST_PATIENCE = 300.0


@dataclass
class Found:
    """The outcome of a search."""

    executions: int = 0
    accepted: int = 0
    corpus: int = 0
    arcs: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def targets() -> dict[str, Target]:
    """All kinds of files by name."""
    return table_targets() | model_targets()


def search(
    name: str, executions: int, seed: int, answer: Callable[..., None] | None = None
) -> Found:
    """Search a kind of file in a separate process; a crash of the process is a failure, too.

    Parameters
    ----------
    name : str
        The kind of file.
    executions : int
        Number of files that are read.
    seed : int
        Seed of the random changes.
    answer : callable, default=None
        What the process runs; None is the search.

    Returns
    -------
    Found
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with tempfile.TemporaryDirectory(prefix="robustmf-fuzzing-") as folder:
        here, there = context.Pipe(duplex=False)
        child = context.Process(
            target=answer or _answer, args=(there, name, executions, seed, folder)
        )
        child.start()
        there.close()
        found = None
        if here.poll(max(_LEAST_PATIENCE, _PATIENCE * executions)):
            try:
                found = here.recv()
            except EOFError:
                child.join()
        child.kill()
        child.join()
        if found is None:
            path = Path(folder) / targets()[name].file
            what = f"the process ended with {child.exitcode}"
            found = Found(1, failures={what: f"{what}: {_kept(name, path)}"})
        return found


def _answer(connection: Connection, name: str, executions: int, seed: int, folder: str) -> None:
    try:
        found = explore(targets()[name], executions, seed, Path(folder), name)
    except Exception as error:  # of the search itself
        found = Found(1, failures={str(error): "".join(traceback.format_exception(error))})
    connection.send(found)


def explore(target: Target, executions: int, seed: int, folder: Path, name: str) -> Found:
    """Damage files of the corpus; a file that executes new lines joins it."""
    rng = np.random.default_rng(seed)
    coverage = Coverage([Path(robustmf.__file__).parent / one for one in _FOLLOWED])
    path = folder / target.file
    found = Found()
    corpus: list[tuple[Any, frozenset[Arc]]] = []
    frequency: Counter[Arc] = Counter()

    def execute(one: Any, *, valid: bool) -> None:
        path.write_bytes(target.content(one))
        with coverage.recording() as arcs:
            error = _outcome(target, path)
        found.executions += 1
        found.accepted += error is None
        if error is not None and (valid or not _is_allowed(error, path)):
            location = _location(error)
            if location not in found.failures:
                message = f"{type(error).__name__}: {str(error)[:300]!r} at {location}"
                found.failures[location] = f"{message}: {_kept(name, path)}"
        if valid or not arcs <= frequency.keys():
            corpus.append((one, frozenset(arcs)))
            frequency.update(arcs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        seeds = target.seeds()
    for valid in seeds:
        execute(valid, valid=True)
    with _limited_memory():
        while found.executions < executions:
            one = corpus[_chosen(rng, corpus, frequency)][0]
            other = corpus[int(rng.integers(len(corpus)))][0]
            execute(target.damaged(rng, one, other), valid=False)
    found.corpus = len(corpus)
    found.arcs = len(frequency)
    return found


def _outcome(target: Target, path: Path) -> BaseException | None:
    """The exception that is raised while the file is read, or None."""
    before = path.read_bytes()
    known_peak = _peak_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RobustMFWarning)
        # of NumPy about a file that is valid
        warnings.filterwarnings("ignore", "Reading `.npy` or `.npz` file required additional")
        try:
            with time_limit(_LIMIT):
                target.read(path)
            peak = _peak_bytes()
            if peak > known_peak + _RESIDENT:
                raise MemoryError(f"{peak - known_peak:.3g} bytes for a file of {len(before)}")
        except Exception as error:
            if isinstance(error, ValueError) and path.read_bytes() != before:
                return AssertionError(f"the file was modified by a read that failed: {error}")
            return error
    return None


def _is_allowed(error: BaseException, path: Path) -> bool:
    """Whether an error is documented: a ValueError of one line that names the file."""
    message = str(error)
    return isinstance(error, ValueError) and str(path) in message and "\n" not in message


def _chosen(
    rng: np.random.Generator, corpus: list[tuple[Any, frozenset[Arc]]], frequency: Counter[Arc]
) -> int:
    """A file of the corpus: half of the time one with lines that few others execute."""
    candidates = rng.integers(len(corpus), size=4)
    if rng.random() < 0.5:
        return int(candidates[0])
    rarest = [min((frequency[arc] for arc in corpus[k][1]), default=0) for k in candidates]
    return int(candidates[int(np.argmin(rarest))])


def _peak_bytes() -> int:
    """The largest resident memory of the process so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _location(error: BaseException) -> str:
    """The innermost line of this package in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/robustmf/" in frame.filename]
    frame = (ours or frames)[-1] if frames else None
    where = f"{Path(frame.filename).name}:{frame.lineno}" if frame else "no line"
    return f"{type(error).__name__} in {where}"


def _kept(name: str, path: Path) -> str:
    """Where a copy of the file is kept."""
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:12]
    kept = Path(tempfile.gettempdir()) / f"robustmf-{name.replace(' ', '-')}-{digest}-{path.name}"
    kept.write_bytes(content)
    return str(kept)


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Limit the additional address space of the process; larger allocations raise MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
