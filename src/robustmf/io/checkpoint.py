"""How far a fit is, on disk: a process that was killed goes on where it stood, and ends with the same bits.

The file is written whole or not at all, in the format of model files (:mod:`robustmf.io.model_file`). It holds what tells one fit from
another, and what was reached: fits that have ended (of ``n_init``), the start of the present one once it is found, where its loops stand.
What is not in it is done again, from the same random numbers.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from robustmf.backends.base import EntryOperations
from robustmf.exceptions import CheckpointError, CheckpointWriteError, ModelFileError
from robustmf.io.model_file import Saved, discard_leftovers, read, write
from robustmf.losses import Loss
from robustmf.solvers.base import Outcome, Resumable

_log = logging.getLogger(__name__)

#: What the file is, and the version of what is in it.
_KIND, _VERSION = "checkpoint", 2

Place = Callable[[Any], Any]


class Progress:
    """What is known of a fit before it begins, and a place to write down what is reached; this one forgets."""

    #: Fits that have ended, and the start of the one that has not, as plain values.
    ended: list[dict[str, Any]]
    prepared: dict[str, Any] | None = None

    def __init__(self) -> None:
        self.ended = []

    def keep_prepared(self, prepared: dict[str, Any]) -> None:
        """The start has been found."""

    def keep_ended(self, ended: dict[str, Any]) -> None:
        """A fit has ended; another may follow."""

    def loop(self, name: str) -> LoopProgress | None:
        """Where the loop of this name is written down."""
        return None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What was kept is being looked at: whatever is wrong with it is the file's fault."""
        yield


@dataclass(frozen=True)
class Checkpoint:
    """A file to write a fit to every so many seconds, and to go on from.

    Parameters
    ----------
    every : float
        Seconds between two writings; 0 writes after each iteration.
    must_exist : bool
        There must be something to go on from.
    seeded : bool
        The random numbers come from a seed that was given. If not, those of the file are taken.
    device : str
        Where the fit is made.
    """

    path: Path
    every: float
    must_exist: bool
    seeded: bool
    device: str

    def open(
        self,
        settings: dict[str, Any],
        operations: EntryOperations,
        weights: Any,
        rng: np.random.Generator,
    ) -> tuple[FileProgress, np.random.Generator]:
        """What the file knows of this fit, and the random numbers to make it with; without a file, a new one."""
        seed = _seed(rng)
        identity = {
            "version": _VERSION, "robustmf": version("robustmf"), "device": self.device, "shape": operations.observed.shape,
            "X": _entries_digest(operations), "weights": None if weights is None else _digest(weights),
            "random_state": seed if self.seeded else None, **{name: _plain(value) for name, value in settings.items()},
        }  # fmt: skip
        state = self._load(identity)
        if state is None:
            _log.info("checkpoint %s: new, every %g s", self.path, self.every)
            state = {"seed": seed, "ended": [], "prepared": None, "loops": {}}
        progress = FileProgress(self, identity, operations.array, state)
        if not state["ended"]:
            progress.write()  # finds out now, not in an hour, whether the file can be written
        return progress, rng if self.seeded else _generator(state["seed"])

    def _load(self, identity: dict[str, Any]) -> dict[str, Any] | None:
        try:
            discard_leftovers(self.path)
            saved = read(self.path)
        except FileNotFoundError as error:
            if self.must_exist:
                raise CheckpointError(
                    f"resume={os.fspath(self.path)!r} does not exist; checkpoint= would begin anew"
                ) from error
            return None
        except ModelFileError as error:
            raise CheckpointError(f"{error}; {_REMEDY}") from error.__cause__
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: {error.strerror or error}; give the path of a file that can be read"
            ) from error
        if saved.kind != _KIND:
            raise CheckpointError(
                f"{self.path}: holds a {saved.kind}, not a checkpoint; give another path"
            )
        _require_same(self.path, saved.parameters, identity)
        if set(saved.state) != {"seed", "ended", "prepared", "loops"}:
            raise CheckpointError(
                f"{self.path}: is sealed, but not what this release writes; {_REMEDY}"
            )
        _log.info("checkpoint %s: going on from it", self.path)
        return saved.state


_REMEDY = "it is left as it is: delete it or give another path to begin anew"


@dataclass
class FileProgress(Progress):
    """A fit's progress in a file."""

    checkpoint: Checkpoint
    identity: dict[str, Any]
    place: Place
    state: dict[str, Any]
    written_at: float = field(default=0.0)

    @property
    def ended(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Fits that have ended."""
        return [_placed(ended, self.place) for ended in self.state["ended"]]

    @property
    def prepared(self) -> dict[str, Any] | None:  # type: ignore[override]
        """The start of the fit that has not ended."""
        return _placed(self.state["prepared"], self.place)

    def keep_prepared(self, prepared: dict[str, Any]) -> None:
        """Write the start down: it may have taken most of the time."""
        self.state["prepared"] = _hosted(prepared)
        self.write()

    def keep_ended(self, ended: dict[str, Any]) -> None:
        """Write the result down; nothing else of this fit is needed any more."""
        self.state |= {
            "ended": [*self.state["ended"], _hosted(ended)],
            "prepared": None,
            "loops": {},
        }
        self.write()

    def loop(self, name: str) -> LoopProgress:
        """Where the loop of this name is written down."""
        return LoopProgress(self, name)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Errors name the file."""
        try:
            yield
        except (CheckpointError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"{self.checkpoint.path}: is sealed, but not what this release writes ({error}); {_REMEDY}"
            ) from error

    def write(self) -> None:
        """Write all of it."""
        path = self.checkpoint.path
        try:
            write(path, Saved(_KIND, self.identity, self.state))
        except OSError as error:
            raise CheckpointWriteError(
                f"cannot write the checkpoint {path}: {error.strerror or error}; what was last written there, if anything, is intact: "
                "make room or give another path, and fit again to go on"
            ) from error
        self.written_at = time.monotonic()
        _log.info("checkpoint %s: written", path)


@dataclass(frozen=True)
class LoopProgress:
    """One loop's part of the file."""

    progress: FileProgress
    name: str

    def resume(self, solver: Resumable) -> tuple[Outcome, float, float] | None:
        """Put the solver where it stood; the outcome so far, objective and seconds."""
        with self.progress.reading():
            saved = _placed(self.progress.state["loops"].get(self.name), self.progress.place)
            if saved is None:
                return None
            solver.restore(saved["solver"])
            return Outcome(**saved["outcome"]), saved["objective"], saved["seconds"]

    def offer(
        self, solver: Resumable, outcome: Outcome, objective: float, seconds: float, must: bool
    ) -> None:
        """Write it down, if it is time to."""
        if must or time.monotonic() - self.progress.written_at >= self.progress.checkpoint.every:
            parts = {
                "solver": solver.state(),
                "outcome": outcome.parts(),
                "objective": objective,
                "seconds": seconds,
            }
            self.progress.state["loops"][self.name] = _hosted(parts)
            self.progress.write()


def as_checkpoint(
    checkpoint: Any, every: Any, resume: Any, seeded: bool, device: str
) -> Checkpoint | None:
    """What the arguments of ``fit`` ask for, or an error that names them."""
    if (
        isinstance(every, (bool, str))
        or not isinstance(every, (int, float, np.number))
        or not 0 <= float(every) < np.inf
    ):
        raise ValueError(
            f"checkpoint_every must be a number of seconds >= 0, got checkpoint_every={every!r}"
        )
    if checkpoint is not None and resume is not None:
        raise ValueError(
            "give checkpoint= (begin, or go on if the file exists) or resume= (the file must exist), not both"
        )
    for name, path in (("checkpoint", checkpoint), ("resume", resume)):
        if path is not None:
            if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
                raise TypeError(f"{name} must be the path of a file, got {name}={path!r}")
            return Checkpoint(Path(path), float(every), resume is not None, seeded, device)
    return None


def _require_same(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    for name in ("version", "robustmf"):
        if theirs.get(name) != ours[name]:
            what = "robustmf" if name == "robustmf" else "checkpoints"
            raise CheckpointError(
                f"{path}: is of version {theirs.get(name)!r} of {what}, this is {ours[name]!r}: end the fit with that release; {_REMEDY}"
            )
    other = [
        name
        for name in sorted(theirs.keys() | ours.keys())
        if name not in theirs or name not in ours or theirs[name] != ours[name]
    ]
    if other:
        shown = ", ".join(_difference(name, theirs.get(name), ours.get(name)) for name in other)
        raise CheckpointError(
            f"{path}: is the checkpoint of another fit, with other {shown}; {_REMEDY}"
        )


def _difference(name: str, theirs: Any, ours: Any) -> str:
    if name == "random_state":  # kept as what it was made into, which says nothing to who gave it
        seeded = {True: "a seed", False: "none"}
        what = (
            "another seed"
            if theirs and ours
            else f"{seeded[bool(theirs)]} there, {seeded[bool(ours)]} here"
        )
        return f"random_state ({what}: give the same as when it was begun)"
    return f"{name} ({_shown(theirs)} there, {_shown(ours)} here)"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _entries_digest(operations: EntryOperations) -> str:
    rows = operations.observed.to_host().rows
    return _digest(rows.pointers, rows.indices, rows.values)


def _digest(*arrays: Any) -> str:
    """SHA-256 of arrays with their types and shapes."""
    found = hashlib.sha256()
    for array in arrays:
        host = np.ascontiguousarray(np.asarray(array))
        found.update(f"{host.dtype.str} {host.shape} ".encode())
        found.update(host.data.cast("B") if host.size else b"")
    return found.hexdigest()


def _plain(value: Any) -> Any:
    """A setting as a value that tells it from others: losses, also of one's own, in words, arrays by digest."""
    if isinstance(value, Loss):
        kind = type(value)
        return f"{kind.__module__}.{kind.__qualname__}({', '.join(f'{part.name}={getattr(value, part.name)!r}' for part in fields(value))})"
    if isinstance(value, (tuple, list)) and any(np.ndim(item) for item in value):
        return _digest(*value)
    return value


def _seed(rng: np.random.Generator) -> dict[str, Any]:
    """All that decides what a generator, and those it spawns, will give."""
    sequence = rng.bit_generator.seed_seq
    if not isinstance(sequence, np.random.SeedSequence):
        raise TypeError(
            f"random_state must be made from a seed for a checkpoint, got a generator with {type(sequence).__name__}"
        )
    entropy = [int(part) for part in np.atleast_1d(np.asarray(sequence.entropy, object))]
    key = [int(part) for part in sequence.spawn_key]
    return {
        "bits": type(rng.bit_generator).__name__,
        "entropy": entropy,
        "key": key,
        "pool": int(sequence.pool_size),
    }


def _generator(seed: dict[str, Any]) -> np.random.Generator:
    """The generator that a fit without a seed was begun with."""
    entropy = seed["entropy"] if len(seed["entropy"]) > 1 else seed["entropy"][0]
    return np.random.default_rng(
        np.random.SeedSequence(entropy, spawn_key=tuple(seed["key"]), pool_size=seed["pool"])
    )


def _hosted(value: Any) -> Any:
    """The same with arrays in the memory of the host."""
    return _mapped(
        value, lambda array: array if isinstance(array, np.ndarray) else np.asarray(array)
    )


def _placed(value: Any, place: Place) -> Any:
    """The same with arrays where the entries are."""
    return _mapped(value, place)


def _mapped(value: Any, change: Place) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_mapped(item, change) for item in value)
    return change(value) if hasattr(value, "dtype") and value.ndim > 0 else value
