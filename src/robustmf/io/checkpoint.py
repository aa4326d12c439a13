"""The state of a fit in a file, from which another process resumes it with bitwise equal results.

The file has the format of model files (:mod:`robustmf.io.model_file`) and is replaced atomically.
It contains what distinguishes this fit from others, and what has been computed: fits that are
complete (of ``n_init``), the initialization of the current one, and the states of its loops. All
else is computed again from the same random numbers.

States are dictionaries of arrays and plain values; the solvers convert to and from them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from robustmf.data.observed import Observed
from robustmf.exceptions import CheckpointError, CheckpointWriteError, ModelFileError
from robustmf.io.atomic import discard_leftovers, write_atomically
from robustmf.io.encoding import CONTENT_ERRORS
from robustmf.io.fit_identity import (
    REMEDY,
    digest,
    digest_of_ids,
    generator_of,
    plain_setting,
    require_same_fit,
    seed_of,
)
from robustmf.io.model_file import Saved, read, write

_log = logging.getLogger(__name__)

#: Kind of the file, and version of its content.
_KIND = "checkpoint"
_VERSION = 6

_PARTS = frozenset({"seed", "ended", "prepared", "loops"})

#: Moves an array to the device of the fit.
Place = Callable[[Any], Any]


class Progress:
    """The progress of a fit that is not saved; base class of :class:`FileProgress`.

    Attributes
    ----------
    ended : list of dict
        The fits that are complete.
    prepared : dict or None
        The initialization of the current fit, as soon as it is known.
    """

    ended: list[dict[str, Any]]
    prepared: dict[str, Any] | None = None

    def __init__(self) -> None:
        self.ended = []

    def save_initialization(self, prepared: dict[str, Any]) -> None:
        """Save the initialization of the current fit."""

    def save_result(self, ended: dict[str, Any]) -> None:
        """Save the result of the current fit; another one may follow."""

    def loop(self, name: str) -> LoopProgress | None:
        """The progress of the loop of this name, or None if it is not saved."""
        return None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context in which errors are attributed to the content of the file."""
        yield


class Storage(Protocol):
    """How the values of a state are represented in the file."""

    def to_file(self, value: Any) -> Any:
        """A value that the file format has, for a value that is neither a dict nor a tuple."""

    def from_file(self, value: Any) -> Any:
        """The inverse of :meth:`to_file`."""

    def clean_up(self, state: dict[str, Any]) -> None:
        """Discard what this state, which has been written, does not refer to."""


@dataclass(frozen=True)
class ArrayStorage:
    """Arrays are in the file; ``place`` moves an array to the device of the fit."""

    place: Place

    def to_file(self, value: Any) -> Any:
        """The value, an array on the host."""
        return np.asarray(value) if _is_array(value) else value

    def from_file(self, value: Any) -> Any:
        """The value, an array on the device of the fit."""
        if not _is_array(value):
            return value
        if value.dtype.kind not in "biuf" or not np.isfinite(value).all():
            raise CheckpointError("its arrays must hold finite numbers")
        return self.place(value)

    def clean_up(self, state: dict[str, Any]) -> None:
        """Nothing is stored beside the file."""


@dataclass(frozen=True)
class Checkpoint:
    """A file to which a fit is saved periodically, and from which it is resumed.

    Parameters
    ----------
    path : Path
        The file.
    every : float
        Seconds between two writes; 0 writes after each iteration.
    must_exist : bool
        Whether the file must exist.
    seeded : bool
        Whether the random numbers come from a seed that the user gave. If not, the seed in the
        file is used.
    device : str
        The device of the fit.
    """

    path: Path
    every: float
    must_exist: bool
    seeded: bool
    device: str

    def open(
        self,
        settings: dict[str, Any],
        observed: Observed,
        weights: Any,
        rng: np.random.Generator,
        place: Place,
    ) -> tuple[FileProgress, np.random.Generator]:
        """Read the file, or create it, for entries on one machine.

        Parameters
        ----------
        settings : dict
            The parameters that determine the result, ``validation_fraction`` among them.
        observed : Observed
            The entries, on any device.
        weights : array or None
            Their weights.
        rng : Generator
            The random numbers of the fit.
        place : callable
            Moves an array to the device of the fit.

        Returns
        -------
        progress : FileProgress
            The state in the file.
        rng : Generator
            The random numbers to use.
        """
        rows = observed.to_host().rows
        data = {
            "device": self.device,
            "shape": observed.shape,
            "X": digest(rows.pointers, rows.indices, rows.values),
            "weights": None if weights is None else digest(weights),
            "ids": digest_of_ids(observed) if settings["validation_fraction"] is not None else None,
        }
        return self.open_with(settings, data, rng, ArrayStorage(place))

    def open_with(
        self,
        settings: dict[str, Any],
        data: dict[str, Any],
        rng: np.random.Generator,
        storage: Storage,
    ) -> tuple[FileProgress, np.random.Generator]:
        """The same for data that are identified by the values ``data``."""
        seed = seed_of(rng)
        identity = {
            "version": _VERSION,
            "robustmf": version("robustmf"),
            "random_state": seed if self.seeded else None,
            **data,
            **{name: plain_setting(value) for name, value in settings.items()},
        }
        state = self._load(identity)
        is_new = state is None
        if state is None:
            _log.info("checkpoint %s: new, every %g s", self.path, self.every)
            state = {"seed": seed, "ended": [], "prepared": None, "loops": {}}
        progress = FileProgress(self, identity, storage, state)
        if not self.seeded:
            with progress.reading():
                rng = generator_of(state["seed"])
        # a file that cannot be written is reported now, and not after the first iterations
        if is_new:
            progress.write()
        elif not state["ended"]:
            progress.write_unchanged()
        return progress, rng

    def saved(self) -> Saved | None:
        """The content of the file, or None if there is none."""
        try:
            discard_leftovers(self.path)
            saved = read(self.path)
        except FileNotFoundError as error:
            if self.must_exist:
                raise CheckpointError(
                    f"resume={os.fspath(self.path)!r} does not exist; "
                    "checkpoint= would start a new fit"
                ) from error
            return None
        except ModelFileError as error:
            raise CheckpointError(f"{error}; {REMEDY}") from error.__cause__
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: {error.strerror or error}; give the path of a file that can be read"
            ) from error
        if saved.kind != _KIND:
            raise CheckpointError(
                f"{self.path}: holds a {saved.kind}, not a checkpoint; give another path"
            )
        return saved

    def _load(self, identity: dict[str, Any]) -> dict[str, Any] | None:
        """The state in the file, or None if there is no file; CheckpointError for another fit."""
        saved = self.saved()
        if saved is None:
            return None
        require_same_fit(self.path, saved.parameters, identity)
        if set(saved.state) != _PARTS:
            raise CheckpointError(
                f"{self.path}: the checksum is valid, but the content is not what this release "
                f"writes; {REMEDY}"
            )
        _log.info("checkpoint %s: resuming", self.path)
        return saved.state


@dataclass
class FileProgress(Progress):
    """The progress of a fit that is saved to a file."""

    checkpoint: Checkpoint
    identity: dict[str, Any]
    storage: Storage
    state: dict[str, Any]
    written_at: float = field(default=0.0)

    @property
    def ended(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The fits that are complete."""
        return [self.from_file(ended) for ended in self.state["ended"]]

    @property
    def prepared(self) -> dict[str, Any] | None:  # type: ignore[override]
        """The initialization of the current fit."""
        return cast("dict[str, Any] | None", self.from_file(self.state["prepared"]))

    def save_initialization(self, prepared: dict[str, Any]) -> None:
        """Save the initialization, which may have taken most of the time."""
        self.state["prepared"] = self.to_file(prepared)
        self.write()

    def save_result(self, ended: dict[str, Any]) -> None:
        """Save the result, and discard all other states of this fit."""
        self.state |= {
            "ended": [*self.state["ended"], self.to_file(ended)],
            "prepared": None,
            "loops": {},
        }
        self.write()

    def loop(self, name: str) -> LoopProgress:
        """The progress of the loop of this name."""
        return LoopProgress(self, name)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See :func:`reading_content`."""
        with reading_content(self.checkpoint.path):
            yield

    def to_file(self, value: Any) -> Any:
        """A part of the state as it is stored."""
        with self._writing():
            return map_values(value, self.storage.to_file)

    def from_file(self, value: Any) -> Any:
        """A stored part of the state, with arrays where the fit has them."""
        return map_values(value, self.storage.from_file)

    def write(self) -> None:
        """Write the file."""
        with self._writing():
            write(self.checkpoint.path, Saved(_KIND, self.identity, self.state))
            self.storage.clean_up(self.state)
        self.written_at = time.monotonic()
        _log.info("checkpoint %s: written", self.checkpoint.path)

    def write_unchanged(self) -> None:
        """Replace the file by a copy of itself."""
        with self._writing():
            write_atomically(self.checkpoint.path, self.checkpoint.path.read_bytes())
        self.written_at = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError:  # of a cluster that has the arrays
            raise
        except OSError as error:
            raise CheckpointWriteError(
                f"cannot write the checkpoint {self.checkpoint.path}: {error.strerror or error}; "
                "the previous checkpoint, if any, is intact: "
                "free disk space or give another path, and fit again to resume"
            ) from error


@dataclass(frozen=True)
class LoopProgress:
    """The state of one loop in the file."""

    progress: FileProgress
    name: str

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See :meth:`FileProgress.reading`."""
        with self.progress.reading():
            yield

    def load(self) -> dict[str, Any] | None:
        """The saved state of the loop, with arrays where the fit has them."""
        saved = self.progress.state["loops"].get(self.name)
        return cast("dict[str, Any] | None", self.progress.from_file(saved))

    def is_due(self) -> bool:
        """Whether the interval between two writes has passed."""
        elapsed = time.monotonic() - self.progress.written_at
        return elapsed >= self.progress.checkpoint.every

    def save(self, state: dict[str, Any]) -> None:
        """Write the state of the loop."""
        self.progress.state["loops"][self.name] = self.progress.to_file(state)
        self.progress.write()


@contextmanager
def reading_content(path: Path) -> Iterator[None]:
    """Context in which errors become :class:`CheckpointError` with the name of the file."""
    try:
        yield
    except ModelFileError as error:
        raise CheckpointError(f"{error}; {REMEDY}") from error
    except (*CONTENT_ERRORS, FileNotFoundError) as error:
        raise CheckpointError(
            f"{path}: the checksum is valid, but the content is not what this release writes "
            f"({error}); {REMEDY}"
        ) from error


def as_checkpoint(
    checkpoint: Any, every: Any, resume: Any, seeded: bool, device: str
) -> Checkpoint | None:
    """Validate the arguments ``checkpoint``, ``checkpoint_every`` and ``resume`` of ``fit``."""
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
            "give checkpoint= (start, or resume if the file exists) "
            "or resume= (the file must exist), not both"
        )
    for name, path in (("checkpoint", checkpoint), ("resume", resume)):
        if path is not None:
            if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
                raise TypeError(f"{name} must be the path of a file, got {name}={path!r}")
            return Checkpoint(Path(path), float(every), resume is not None, seeded, device)
    return None


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and value.ndim > 0


def map_values(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply ``function`` to what is in nested dictionaries and tuples."""
    if isinstance(value, dict):
        return {name: map_values(item, function) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map_values(item, function) for item in value)
    return function(value)
