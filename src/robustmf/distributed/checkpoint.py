"""The checkpoint of a fit on a cluster: a folder with a file per block of factors and a manifest.

All files have the format of model files (:mod:`robustmf.io.model_file`). The client writes them,
one block at a time; the manifest is written last, and the files of the previous manifest stay until
then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from robustmf.backends.dask.connection import Factors
from robustmf.backends.dask.matrix import Matrix
from robustmf.distributed.initialization import Estimates
from robustmf.exceptions import CheckpointError, CheckpointWriteError, ModelFileError
from robustmf.io.checkpoint import Checkpoint, plain_setting, require_same_fit
from robustmf.io.model_file import Saved, read, write
from robustmf.losses import Loss

_KIND = "cluster checkpoint"
_BLOCK_KIND = "factor block"
_VERSION = 4
_MANIFEST = "manifest.rmf"
_REMEDY = "the folder is not modified: delete it or give another path to start a new fit"

Point = tuple[Factors, Factors]

#: The names of the files of a point: for rows and columns, one per block.
Files = list[list[str]]


@dataclass(frozen=True)
class Layout:
    """How the entries are partitioned, and the seed that selects those that are held out."""

    n_blocks: int
    holdout_seed: int


class CheckpointFolder:
    """The folder of a checkpoint, with the progress of the iterations.

    It has the methods of :class:`~robustmf.io.checkpoint.LoopProgress`.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.path = checkpoint.path
        self._checkpoint = checkpoint
        self._saved: Saved | None = None
        self._written_at = time.monotonic()
        self._points: dict[str, Point] = {}
        self._matrix: Matrix | None = None
        self._layout: Layout | None = None
        self._identity: dict[str, Any] = {}
        self._estimates: dict[str, Any] = {}
        manifest = self.path / _MANIFEST
        name = os.fspath(self.path)
        if manifest.is_file():
            with self.reading():
                self._saved = read(manifest)
                if self._saved.kind != _KIND or self._saved.parameters.get("version") != _VERSION:
                    raise CheckpointError(
                        f"{manifest}: is no cluster checkpoint of this version; {_REMEDY}"
                    )
        elif self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"{name!r} is a file; the checkpoint on a cluster is a folder")
        elif checkpoint.must_exist:
            raise CheckpointError(
                f"resume={name!r} has no {_MANIFEST}; checkpoint= would start a new fit"
            )
        elif self.path.is_dir() and any(".rmf" not in one.suffixes for one in self.path.iterdir()):
            raise CheckpointError(
                f"{name!r} contains other files; the checkpoint on a cluster needs its own folder"
            )

    def layout(self, n_blocks: int, seed: int) -> Layout:
        """The layout of the fit to resume, or a new one with these values."""
        if self._saved is None:
            return Layout(n_blocks, seed)
        layout = Layout(**self._saved.state["layout"])
        if self._checkpoint.seeded and layout.holdout_seed != seed:
            raise CheckpointError(
                f"{self.path}: is the checkpoint of another fit, with another random_state; "
                f"{_REMEDY}"
            )
        return layout

    def open(self, matrix: Matrix, settings: dict[str, Any], layout: Layout) -> None:
        """Check that the folder holds a checkpoint of this fit, or that it can be written."""
        self._matrix = matrix
        self._layout = layout
        self._identity = {
            "version": _VERSION,
            "robustmf": version("robustmf"),
            "shape": matrix.shape,
            "n_entries": matrix.n_entries,
            "dtype": matrix.dtype.name,
            "checksum": matrix.checksum,
            **{name: plain_setting(value) for name, value in settings.items()},
        }
        if self._saved is not None:
            require_same_fit(self.path, self._saved.parameters, self._identity)
            return
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".probe"
            probe.touch()
            probe.unlink()

    def initial_point(self, loss: Loss) -> tuple[Estimates, Point] | None:
        """The estimates of the initialization and the last point, if the folder has them."""
        if self._saved is None:
            return None
        with self.reading():
            estimates = dict(self._saved.state["estimates"])
            theta = estimates.pop("theta")
            loss = loss if theta == loss.theta else loss.at_scale(theta)
            point = self._read_point(self._saved.state["loop"]["solver"]["point"])
            return Estimates(**estimates, loss=loss), point

    def keep_estimates(self, estimates: Estimates) -> None:
        """Set the estimates to write."""
        fields = {name: value for name, value in vars(estimates).items() if name != "loss"}
        self._estimates = fields | {"theta": estimates.loss.theta}

    def load(self) -> dict[str, Any] | None:
        """The saved state of the iterations, with factors on the cluster."""
        if self._saved is None:
            return None
        state = self._saved.state["loop"]
        solver = state["solver"]
        points = {name: self._read_point(solver[name]) for name in ("point", "previous")}
        best = state["outcome"]["best"]
        best = None if best is None else self._read_point(best)
        self._saved = None
        self._points = {}
        return state | {"solver": solver | points, "outcome": state["outcome"] | {"best": best}}

    def is_due(self) -> bool:
        """Whether the interval between two writes has passed."""
        return time.monotonic() - self._written_at >= self._checkpoint.every

    def save(self, state: dict[str, Any]) -> None:
        """Write the factors of the state, then the manifest, and remove older files."""
        assert self._layout is not None, "open() is called first"
        layout = asdict(self._layout)
        files: dict[int, Files] = {}

        def write_point(point: Point, name: str) -> Files:
            key = id(point[0])
            if key not in files:
                files[key] = [
                    self._write_factors(factors, f"{name}-{side}")
                    for factors, side in zip(point, ("rows", "columns"), strict=True)
                ]
            return files[key]

        with self._writing():
            solver = state["solver"]
            points = {name: write_point(solver[name], name) for name in ("point", "previous")}
            best = state["outcome"]["best"]
            best = None if best is None else write_point(best, "best")
            manifest = {
                "layout": layout,
                "estimates": self._estimates,
                "loop": state
                | {"solver": solver | points, "outcome": state["outcome"] | {"best": best}},
            }
            write(self.path / _MANIFEST, Saved(_KIND, self._identity, manifest))
            kept = {name for point in files.values() for side in point for name in side}
            for file in self.path.glob("*.rmf"):
                if file.name not in kept | {_MANIFEST}:
                    file.unlink()
        self._written_at = time.monotonic()

    def _write_factors(self, factors: Factors, name: str) -> list[str]:
        files = []
        for k, block in enumerate(factors.each()):
            # a new name each time: files of the last manifest must not change
            file = f"{name}-{k}-{time.time_ns():x}.rmf"
            write(self.path / file, Saved(_BLOCK_KIND, {}, {"factors": block}))
            files.append(file)
        return files

    def _read_point(self, files: Files) -> Point:
        """The factors in these files; the same objects as before if they have been read."""
        key = str(files)
        if key not in self._points:
            U, V = (self._read_factors(side, names) for side, names in enumerate(files))
            self._points[key] = (U, V)
        return self._points[key]

    def _read_factors(self, side: int, files: list[str]) -> Factors:
        matrix = self._matrix
        assert matrix is not None, "open() is called first"
        blocks = []
        ranks = set()
        for file, size in zip(files, matrix.sides[side].sizes, strict=True):
            array = read(self.path / file).state["factors"]
            if (
                array.ndim != 2
                or len(array) != size
                or array.dtype != matrix.dtype
                or not np.isfinite(array).all()
            ):
                raise CheckpointError(f"{self.path}: its factors do not match this fit; {_REMEDY}")
            blocks.append(matrix.connection.scatter(array))
            ranks.add(array.shape[1])
        (rank,) = ranks  # the same in all blocks
        factors = matrix.factors(side, blocks, rank)
        factors.replicate(wait=True)
        return factors

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context in which errors are attributed to the content of the folder."""
        try:
            yield
        except (CheckpointError, ConnectionError):
            raise
        except ModelFileError as error:
            raise CheckpointError(f"{error}; {_REMEDY}") from error
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise CheckpointError(
                f"{self.path}: has unexpected contents ({error}); {_REMEDY}"
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError:
            raise
        except OSError as error:
            raise CheckpointWriteError(
                f"cannot write the checkpoint {self.path}: {error.strerror or error}; the previous "
                "checkpoint, if any, is intact: free disk space or give another path, and fit "
                "again to resume"
            ) from error
