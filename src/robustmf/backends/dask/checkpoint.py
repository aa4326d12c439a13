"""How far a fit on a cluster is, in a folder: one sealed file a block of factors, and a manifest, written last and all at once.

The client writes it, a block at a time. Files of the last manifest stay until the next one is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from robustmf.backends.dask.factors import Factors
from robustmf.backends.dask.load import Matrix
from robustmf.backends.dask.start import Basis
from robustmf.exceptions import CheckpointError, CheckpointWriteError, ModelFileError
from robustmf.io.model_file import Saved, read, write
from robustmf.losses import Loss
from robustmf.solvers.base import Outcome

_KIND, _BLOCK, _VERSION = "cluster checkpoint", "factor block", 2
_MANIFEST = "manifest.rmf"
_REMEDY = "it is left as it is: delete the folder or give another path to begin anew"


@dataclass(frozen=True)
class Known:
    """What must be known before the data are read again: how they were cut, and what was set aside."""

    blocks: int
    aside_seed: int


@dataclass
class Folder:
    """A folder to write a fit to every so many seconds, and to go on from."""

    path: Path
    every: float
    must_exist: bool
    seeded: bool

    def __post_init__(self) -> None:
        self._saved: Saved | None = None
        self._written_at = time.monotonic()
        self._turn = 0
        manifest = self.path / _MANIFEST
        if manifest.is_file():
            with self._reading():
                self._saved = read(manifest)
                if self._saved.kind != _KIND or self._saved.parameters.get("version") != _VERSION:
                    raise CheckpointError(
                        f"{manifest}: is no checkpoint of a cluster of this version; {_REMEDY}"
                    )
        elif self.path.exists() and not self.path.is_dir():
            raise CheckpointError(
                f"{os.fspath(self.path)!r} is a file; a fit on a cluster is kept in a folder"
            )
        elif self.must_exist:
            raise CheckpointError(
                f"resume={os.fspath(self.path)!r} has no {_MANIFEST}; checkpoint= would begin anew"
            )
        elif self.path.is_dir() and any(not _is_ours(file) for file in self.path.iterdir()):
            raise CheckpointError(
                f"{os.fspath(self.path)!r} holds other files; a fit on a cluster is kept in a folder of its own"
            )

    @property
    def known(self) -> Known | None:
        """What the fit that is to be gone on with began with."""
        return (
            None
            if self._saved is None
            else Known(self._saved.state["blocks"], self._saved.state["aside_seed"])
        )

    def require_seed(self, seed: int) -> None:
        """The fit that is to be gone on with has drawn from the same seed, where one is given."""
        if self.seeded and self.known is not None and self.known.aside_seed != seed:
            raise CheckpointError(
                f"{self.path}: is the checkpoint of another fit, with another random_state; {_REMEDY}"
            )

    def begin(self, matrix: Matrix, settings: dict[str, Any], known: Known) -> None:
        """Say which fit this is; one that the folder holds must be the same."""
        self._matrix, self._known = matrix, known
        self._identity = {
            "version": _VERSION, "robustmf": version("robustmf"), "shape": matrix.shape, "n_entries": matrix.n_entries,
            "dtype": matrix.dtype.name, "checksum": matrix.checksum, **{name: _plain(value) for name, value in settings.items()},
        }  # fmt: skip
        if self._saved is None:
            self._writable()
            return
        theirs = self._saved.parameters
        other = [
            name
            for name in sorted(theirs.keys() | self._identity.keys())
            if theirs.get(name) != self._identity.get(name)
        ]
        if other:
            shown = ", ".join(
                f"{name} ({theirs.get(name)!r:.60} there, {self._identity.get(name)!r:.60} here)"
                for name in other
            )
            raise CheckpointError(
                f"{self.path}: is the checkpoint of another fit, with other {shown}; {_REMEDY}"
            )

    def basis(self, settings_loss: Loss) -> Basis | None:
        """What the start gave, where the folder knows it."""
        if self._saved is None:
            return None
        with self._reading():
            parts = dict(self._saved.state["basis"])
            theta = parts.pop("theta")
            return Basis(
                **parts,
                loss=settings_loss
                if theta == settings_loss.theta
                else settings_loss.at_scale(theta),
            )

    def keep_basis(self, basis: Basis) -> None:
        """The start has been found."""
        self._basis = {name: value for name, value in vars(basis).items() if name != "loss"} | {
            "theta": basis.loss.theta
        }

    def points(self) -> tuple[Factors, Factors]:
        """The factors that the folder was last written with."""
        assert self._saved is not None
        return self._pair(self._saved.state["solver"]["own"])

    def resume(self, solver: Any) -> tuple[Outcome, float, float] | None:
        """Put the solver where it stood; the outcome so far, objective and seconds."""
        if self._saved is None:
            return None
        with self._reading():
            state = self._saved.state
            own = solver.factors
            before = (
                own
                if state["solver"]["before"] == state["solver"]["own"]
                else self._pair(state["solver"]["before"])
            )
            solver.restore(state["solver"] | {"own": own, "before": before})
            best = state["outcome"]["best"]
            if best is not None:
                best = own if best == state["solver"]["own"] else self._pair(best)
            self._saved = None
            return (
                Outcome(**state["outcome"] | {"best": best}),
                state["objective"],
                state["seconds"],
            )

    def offer(
        self, solver: Any, outcome: Outcome, objective: float, seconds: float, must: bool
    ) -> None:
        """Write it down, if it is time to."""
        if not must and time.monotonic() - self._written_at < self.every:
            return
        try:
            self._write(solver.state(), outcome.parts(), objective, seconds)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise self._not_written(error) from error
        self._written_at = time.monotonic()

    def keep_ended(self, solver: Any, outcome: Outcome) -> None:
        """Write the end down, so that a fit which is started again is done at once; one that was broken off goes on instead."""
        if not outcome.stopped:
            self.offer(
                solver,
                outcome,
                outcome.history["objective"][-1],
                outcome.history["seconds"][-1],
                must=True,
            )

    def _write(
        self, solver: dict[str, Any], outcome: dict[str, Any], objective: float, seconds: float
    ) -> None:
        self._turn += 1
        names: dict[int, list[list[str]]] = {}

        def put(pair: Any, name: str) -> list[list[str]]:
            if id(pair[0]) not in names:
                names[id(pair[0])] = [
                    self._put(factors, f"{name}-{side}")
                    for factors, side in zip(pair, ("rows", "columns"), strict=True)
                ]
            return names[id(pair[0])]

        own, before = put(solver["own"], "own"), put(solver["before"], "before")
        best = None if outcome["best"] is None else put(outcome["best"], "best")
        state = {
            "blocks": self._known.blocks, "aside_seed": self._known.aside_seed, "basis": self._basis,
            "solver": solver | {"own": own, "before": before}, "outcome": outcome | {"best": best},
            "objective": objective, "seconds": seconds,
        }  # fmt: skip
        write(self.path / _MANIFEST, Saved(_KIND, self._identity, state))
        kept = {name for pair in names.values() for side in pair for name in side} | {_MANIFEST}
        for file in self.path.glob("*.rmf"):
            if file.name not in kept:
                file.unlink()

    def _put(self, factors: Factors, name: str) -> list[str]:
        files = []
        for k, block in enumerate(factors.each()):
            # a name of its own each time: files that the last manifest names are not touched
            file = f"{name}-{k}-{time.time_ns():x}.rmf"
            write(self.path / file, Saved(_BLOCK, {}, {"factors": block}))
            files.append(file)
        return files

    def _pair(self, names: list[list[str]]) -> tuple[Factors, Factors]:
        pair = []
        for side, files in enumerate(names):
            blocks = []
            with self._reading():
                arrays: Iterator[np.ndarray[Any, Any]] = (
                    read(self.path / file).state["factors"] for file in files
                )
                for array, size in zip(arrays, self._matrix.sides[side].sizes, strict=True):
                    if (
                        array.ndim != 2
                        or len(array) != size
                        or array.dtype != self._matrix.dtype
                        or not np.isfinite(array).all()
                    ):
                        raise CheckpointError(
                            f"{self.path}: its factors are not those of this fit; {_REMEDY}"
                        )
                    width = array.shape[1]
                    blocks.append(self._matrix.connection.place(array))
            factors = self._matrix.factors(side, blocks, width)
            factors.keep_copies(wait=True)
            pair.append(factors)
        return pair[0], pair[1]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except ModelFileError as error:
            raise CheckpointError(f"{error}; {_REMEDY}") from error
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            if isinstance(error, ConnectionError):
                raise
            raise CheckpointError(
                f"{self.path}: is not what this release writes ({error}); {_REMEDY}"
            ) from error

    def _writable(self) -> None:
        """Find out now, not in an hour."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".probe"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> CheckpointWriteError:
        return CheckpointWriteError(
            f"cannot write the checkpoint {self.path}: {error.strerror or error}; what was last written there, if anything, is intact: "
            "make room or give another path, and fit again to go on"
        )


def _plain(value: Any) -> Any:
    """A setting as a value that tells it from others."""
    if isinstance(value, Loss):
        return repr(value)
    if isinstance(value, (tuple, list)) and any(np.ndim(item) for item in value):
        return [hashlib.sha256(np.ascontiguousarray(item).tobytes()).hexdigest() for item in value]
    return value


def _is_ours(file: Path) -> bool:
    """A block's file, or what a process that was killed while it wrote one left behind."""
    return ".rmf" in file.suffixes
