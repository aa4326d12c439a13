"""The checkpoint of a fit on a cluster: a folder with a manifest and a file per block of factors.

The manifest is a checkpoint as on one machine (:mod:`robustmf.io.checkpoint`), with the names of
files in place of factors. The client writes them, one block at a time, and the manifest last; files
of the previous manifest stay until then.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from robustmf.backends.dask.matrix import Factors, Matrix
from robustmf.backends.dask.source import LOADING
from robustmf.exceptions import CheckpointError, CheckpointWriteError
from robustmf.io.checkpoint import (
    Checkpoint,
    Progress,
    map_values,
    reading_content,
)
from robustmf.io.fit_identity import generator_of
from robustmf.io.model_file import Saved, read, write

MANIFEST = "manifest.rmf"
_BLOCK_KIND = "factor block"

#: What stands for factors in the manifest: the side, and a random number. Files add the block.
_NAME = re.compile(r"factors-[01]-[0-9a-f]{16}")


def in_folder(checkpoint: Checkpoint) -> Checkpoint:
    """The manifest in the folder that a checkpoint names; raises if it cannot be such a folder."""
    folder = checkpoint.path
    name = os.fspath(folder)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{name!r} is a file; the checkpoint on a cluster is a folder")
    if not (folder / MANIFEST).is_file():
        if checkpoint.must_exist:
            raise CheckpointError(
                f"resume={name!r} has no {MANIFEST}; checkpoint= would start a new fit"
            )
        if folder.is_dir() and any(".rmf" not in one.suffixes for one in folder.iterdir()):
            raise CheckpointError(
                f"{name!r} contains other files; the checkpoint on a cluster needs its own folder"
            )
    return replace(checkpoint, path=folder / MANIFEST)


def saved_layout(
    manifest: Checkpoint, n_blocks: int, rng: np.random.Generator
) -> tuple[int, np.random.Generator]:
    """The number of blocks and the random numbers of the fit to resume, or these."""
    saved = manifest.saved()
    if saved is None:
        return n_blocks, rng
    with reading_content(manifest.path):
        n_blocks = saved.parameters["n_blocks"]
        if not isinstance(n_blocks, int) or not 1 <= n_blocks <= LOADING.max_blocks:
            raise ValueError(f"{n_blocks!r} blocks")
        return n_blocks, rng if manifest.seeded else generator_of(saved.state["seed"])


def open_manifest(
    manifest: Checkpoint, settings: dict[str, Any], matrix: Matrix, rng: np.random.Generator
) -> Progress:
    """Read the manifest, or create it."""
    data = {
        "shape": matrix.shape,
        "n_entries": matrix.n_entries,
        "dtype": matrix.dtype.name,
        "n_blocks": matrix.n_blocks,
        "checksum": matrix.checksum,
    }
    try:
        manifest.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointWriteError(
            f"cannot write the checkpoint {manifest.path}: {error}"
        ) from error
    return manifest.open_with(settings, data, rng, BlockStorage(manifest, matrix))[0]


class BlockStorage:
    """Factors are stored as one file per block; the manifest has the common part of their names."""

    def __init__(self, manifest: Checkpoint, matrix: Matrix) -> None:
        self._folder = manifest.path.parent
        self._matrix = matrix
        # weak: the workers shall not keep factors that the fit no longer needs
        self._stored: WeakValueDictionary[str, Factors] = WeakValueDictionary()

    def to_file(self, value: Any) -> Any:
        """The value; of factors, the name under which their blocks are written."""
        if not isinstance(value, Factors):
            return value
        # names are unique: files of the last manifest do not change
        name = f"factors-{value.side}-{value.name}"
        if name not in self._stored:
            for k, block in enumerate(value.each()):
                write(self._folder / f"{name}-{k}.rmf", Saved(_BLOCK_KIND, {}, {"factors": block}))
            self._stored[name] = value
        return name

    def from_file(self, value: Any) -> Any:
        """The inverse of :meth:`to_file`; the same name gives the same object."""
        if not _is_name(value):
            return value
        factors = self._stored.get(value)
        if factors is None:
            factors = self._stored[value] = self._read(value)
        return factors

    def _read(self, name: str) -> Factors:
        matrix = self._matrix
        side = int(name.split("-")[1])
        blocks = []
        widths = set()
        for k, size in enumerate(matrix.sides[side].sizes):
            block = read(self._folder / f"{name}-{k}.rmf").state["factors"]
            if block.ndim != 2 or len(block) != size or block.dtype != matrix.dtype:
                raise ValueError("factors of another matrix")
            if not np.isfinite(block).all():
                raise ValueError("factors that are not finite")
            blocks.append(matrix.connection.client.scatter(block, hash=False))
            widths.add(block.shape[1])
        (width,) = widths  # the same in all blocks
        factors = Factors(matrix, side, blocks, width).replicated()
        factors.name = name.rpartition("-")[-1]
        matrix.connection.wait(factors.copies)  # no task could recompute the blocks
        return factors

    def clean_up(self, state: dict[str, Any]) -> None:
        """Remove the files of factors that the manifest does not name."""
        kept: set[str] = set()
        parts = (state["prepared"], state["loops"], *state["ended"])
        map_values(parts, lambda value: kept.add(value) if _is_name(value) else None)
        for name in set(self._stored) - kept:
            self._stored.pop(name, None)
        for file in self._folder.glob("factors-*.rmf"):
            if file.stem.rpartition("-")[0] not in kept:
                file.unlink()


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
