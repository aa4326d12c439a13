"""Factors that are too large for one machine: one Parquet file a block, written by the worker that has it, and a manifest, written last."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.cluster.blocks import Block
from robustmf.cluster.factors import Factors, gather_mended
from robustmf.cluster.identity import Ids, compact, listed
from robustmf.cluster.load import Matrix
from robustmf.exceptions import ModelFileError
from robustmf.lookup import kind
from robustmf.solvers.irls import BiasModel

Array = NDArray[np.floating[Any]]

MANIFEST = "manifest.json"
SIDES = ("rows", "columns")
_KIND, _VERSION = "robustmf shards", 1


@dataclass(frozen=True)
class Shard:
    """One block of one side: ids, factors, biases (zeros where the model has none), and how many entries of the fit each has."""

    ids: Ids
    factors: Array
    bias: Array
    counts: NDArray[np.int64]

    @cached_property
    def place(self) -> Mapping[Any, int]:
        """Where each id stands."""
        return {key: k for k, key in enumerate(listed(self.ids))}


def require_storable(ids: Ids) -> None:
    """Refuse ids that would not come back from a Parquet file as they were."""
    import pyarrow as pa  # noqa: PLC0415 - in the worker

    try:
        same = pa.array(ids).to_pylist() == listed(ids)
    except (pa.ArrowException, OverflowError):
        same = False
    if not same:
        raise TypeError(f"ids such as {listed(ids)[0]!r} cannot be written as Parquet shards; use text, numbers or dates, all of one type")


def write_shards(matrix: Matrix, pair: tuple[Factors, Factors], biases: BiasModel, folder: Path, facts: Mapping[str, Any]) -> None:
    """Files ``rows-00000.parquet``, …, ``columns-00000.parquet``, … with the columns id, entries, bias (where there are any), factor0, ….

    Where they are written again, each is replaced whole. ``facts`` go into the manifest, which is written last: without it a folder is
    not complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)

    def submitted() -> tuple[None, list[list[Any]]]:
        return None, [
            [
                matrix.connection.submit(_write, ids, block, factors, biases, str(folder / f"{name}-{k:05}.parquet"))
                for k, (ids, block, factors) in enumerate(zip(side.ids, side.blocks, of.blocks, strict=True))
            ]
            for name, side, of in zip(SIDES, matrix.sides, pair, strict=True)
        ]

    files = gather_mended(matrix.connection, submitted, pair)[1]
    manifest = {
        "kind": _KIND, "version": _VERSION, "robustmf": version("robustmf"), "shape": matrix.shape, "n_entries": matrix.n_entries,
        "dtype": matrix.dtype.name, "center": biases.center, "bias_unit": biases.unit, **facts,
        "kinds": [sorted({name for file in side for name in file.pop("kinds")}) for side in files],
        "files": dict(zip(SIDES, files, strict=True)),
    }  # fmt: skip
    temporary = folder / f"{MANIFEST}.tmp"
    temporary.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    temporary.replace(folder / MANIFEST)


def _write(ids: Ids, block: Block, factors: Array, biases: BiasModel, path: str) -> dict[str, Any]:
    import pyarrow as pa  # noqa: PLC0415 - in the worker
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    columns: dict[str, Any] = {"id": pa.array(ids), "entries": block.observed.rows.counts}
    if biases.center is not None:
        columns["bias"] = factors[:, -1] * factors.dtype.type(biases.unit)
        factors = factors[:, :-1]
    columns |= {f"factor{k}": np.ascontiguousarray(factors[:, k]) for k in range(factors.shape[1])}
    # a name of its own: a task that was given up may still be writing
    temporary = Path(f"{path}.{os.getpid()}.tmp")
    pq.write_table(pa.table(columns), temporary)
    facts = {
        "name": Path(path).name, "rows": len(ids), "bytes": temporary.stat().st_size, "sha256": _checksum(temporary),
        "kinds": sorted({kind(key).__name__ for key in listed(ids)}),
    }  # fmt: skip
    temporary.replace(path)
    return facts


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder that is complete."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if manifest["kind"] != _KIND or manifest["version"] != _VERSION:
            raise ModelFileError(f"{path}: is not the manifest of shards of this version; fit again with Triplets(…, shards=folder)")
        files = [one for name in SIDES for one in manifest["files"][name]]
    except FileNotFoundError:
        raise ModelFileError(
            f"{path}: is not there, so the folder holds no shards or not all of them; fit again with Triplets(…, shards=folder)"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path}: is damaged ({error}); fit again with Triplets(…, shards=folder)") from error
    for one in files:
        there = folder / one["name"]
        if not there.is_file() or there.stat().st_size != one["bytes"]:
            raise _damaged(there, "is missing" if not there.is_file() else "has not the size that it was written with")
    return manifest


def read_shard(folder: str, facts: Mapping[str, Any], dtype: str) -> Shard:
    """One file, as it was written."""
    import pyarrow as pa  # noqa: PLC0415 - in the worker
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    path = Path(folder) / facts["name"]
    try:
        if _checksum(path) != facts["sha256"]:
            raise _damaged(path, "is not as it was written (checksum)")
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    names: Sequence[str] = [name for name in table.column_names if name.startswith("factor")]
    factors = np.column_stack([table[name].to_numpy() for name in names]).astype(dtype, copy=False)
    bias = table["bias"].to_numpy() if "bias" in table.column_names else np.zeros(len(table), dtype)
    return Shard(compact(table["id"].to_pylist()), factors, bias, table["entries"].to_numpy().astype(np.int64))


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path}: {what}; fit again with Triplets(…, shards=folder)")
