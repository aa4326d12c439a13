"""Factors as Parquet files, one per block, which the workers write, and a manifest.

The manifest is written last: a folder without it is not complete.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.factors import Factors
from robustmf.backends.dask.matrix import Matrix
from robustmf.data.ids import Ids, as_list, compact_ids, id_type
from robustmf.exceptions import ModelFileError
from robustmf.io.atomic import write_atomically

Array = NDArray[np.floating[Any]]

MANIFEST = "manifest.json"
SIDES = ("rows", "columns")
_KIND = "robustmf shards"
_VERSION = 2
_SHARD_NAME = re.compile(r"(rows|columns)-\d{5}\.parquet")

#: The required fields of a manifest, and of each file in it, with their types in JSON.
_NUMBER = (int, float)
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "shape": (list,),
    "rank": (int,),
    "dtype": (str,),
    "id_types": (list,),
    "files": (dict,),
    "center": (*_NUMBER, type(None)),
    "bias_unit": _NUMBER,
    "median": _NUMBER,
    "bounds": (list, type(None)),
    "reg": _NUMBER,
    "reg_by_count": (bool,),
    "noise": (list,),
    "inflation": _NUMBER,
    "moments": (list,),
    "axes": (list,),
}
_FILE_FIELDS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "rows": (int,),
    "bytes": (int,),
    "sha256": (str,),
}


@dataclass(frozen=True)
class Shard:
    """One block of one side; biases are zero for a model without them.

    ``counts`` are the numbers of fitted entries of each row or column.
    """

    ids: Ids
    factors: Array
    bias: Array
    counts: NDArray[np.int64]

    @cached_property
    def index_of(self) -> Mapping[Any, int]:
        """The index of each id."""
        return {key: k for k, key in enumerate(as_list(self.ids))}


def require_storable(ids: Ids) -> None:
    """Raise for ids that would change when written to and read from a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415 - imported in the worker

    try:
        same = pa.array(ids).to_pylist() == as_list(ids)
    except (pa.ArrowException, OverflowError):
        same = False
    if not same:
        raise TypeError(
            f"ids such as {as_list(ids)[0]!r} cannot be written as Parquet shards; use text, "
            "numbers or dates, all of one type"
        )


def write_shards(
    matrix: Matrix,
    point: tuple[Factors, Factors],
    biases: BiasModel,
    folder: Path,
    facts: Mapping[str, Any],
) -> None:
    """Write the files ``rows-00000.parquet``, …, ``columns-00000.parquet``, … and the manifest.

    Their columns are id, entries, bias (with biases) and factor0, …. Existing files are replaced
    atomically; those of an earlier fit with more blocks are removed at the end. ``facts`` are
    further fields of the manifest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)

    def submit() -> tuple[None, list[list[Any]]]:
        return None, [
            [
                matrix.connection.submit(
                    _write, *block, biases, str(folder / f"{name}-{k:05}.parquet")
                )
                for k, block in enumerate(zip(side.ids, side.blocks, factors.blocks, strict=True))
            ]
            for name, side, factors in zip(SIDES, matrix.sides, point, strict=True)
        ]

    files = matrix.connection.gather_with_recovery(submit, point)[1]
    manifest = {
        "kind": _KIND,
        "version": _VERSION,
        "robustmf": version("robustmf"),
        "shape": matrix.shape,
        "n_entries": matrix.n_entries,
        "dtype": matrix.dtype.name,
        "center": biases.center,
        "bias_unit": biases.unit,
        **facts,
        "id_types": [
            sorted({name for one in side for name in one.pop("id_types")}) for side in files
        ],
        "files": dict(zip(SIDES, files, strict=True)),
    }
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    written = {file["name"] for side in files for file in side}
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in written:
            path.unlink()


def _write(ids: Ids, block: Block, factors: Array, biases: BiasModel, path: str) -> dict[str, Any]:
    """Write one file; returns its fields in the manifest, and the types of its ids."""
    import pyarrow as pa  # noqa: PLC0415 - imported in the worker
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    columns: dict[str, Any] = {"id": pa.array(ids), "entries": block.counts}
    if biases.center is not None:
        columns["bias"] = factors[:, -1] * factors.dtype.type(biases.unit)
        factors = factors[:, :-1]
    columns |= {f"factor{k}": np.ascontiguousarray(factors[:, k]) for k in range(factors.shape[1])}
    stream = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), stream)
    content = stream.getvalue()
    write_atomically(path, content)
    return {
        "name": Path(path).name,
        "rows": len(ids),
        "bytes": content.size,
        "sha256": hashlib.sha256(content).hexdigest(),
        "id_types": sorted({id_type(key).__name__ for key in as_list(ids)}),
    }


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a complete folder."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _damaged(path, "does not exist: the folder has no shards, or not all") from None
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise _damaged(path, f"is damaged ({error})") from error
    expected = {"kind": _KIND, "version": _VERSION}
    if not isinstance(manifest, dict) or not expected.items() <= manifest.items():
        raise _damaged(path, "is not the manifest of shards of this version")
    for file in _checked_files(manifest, path):
        shard = folder / file["name"]
        if not shard.is_file():
            raise _damaged(shard, "is missing")
        if shard.stat().st_size != file["bytes"]:
            raise _damaged(shard, "has another size than when it was written")
    return manifest


def _checked_files(manifest: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """The files of a manifest that has all required fields."""

    def refuse(what: str) -> NoReturn:
        raise _damaged(path, f"is damaged ({what})")

    def require(fields: Any, required: Mapping[str, tuple[type, ...]], owner: str) -> None:
        if not isinstance(fields, dict):
            refuse(f"{owner} is {fields!r}")
        for name, types in required.items():
            if name not in fields:
                refuse(f"{owner} has no {name!r}")
            if not isinstance(fields[name], types):
                refuse(f"{owner} has {name}={fields[name]!r}")

    require(manifest, _FIELDS, "it")
    for name in ("shape", "id_types", "moments", "axes", "bounds"):
        if manifest[name] is not None and len(manifest[name]) != len(SIDES):
            refuse(f"it has {name}={manifest[name]!r}")
    require(manifest["files"], dict.fromkeys(SIDES, (list,)), "'files'")
    files = [file for side in SIDES for file in manifest["files"][side]]
    for file in files:
        require(file, _FILE_FIELDS, "a file")
        if not _SHARD_NAME.fullmatch(file["name"]):  # in particular no path out of the folder
            refuse(f"{file['name']!r} is not the name of a shard")
    if not all(any(file["rows"] for file in manifest["files"][side]) for side in SIDES):
        refuse("it lists no rows or no columns")
    return files


def read_shard(folder: str, file: Mapping[str, Any], dtype: str) -> Shard:
    """Read one file of the manifest, and verify its checksum."""
    import pyarrow as pa  # noqa: PLC0415 - imported in the worker
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    path = Path(folder) / file["name"]
    try:
        if _checksum(path) != file["sha256"]:
            raise _damaged(path, "has another checksum than when it was written")
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    names = [name for name in table.column_names if name.startswith("factor")]
    factors = np.column_stack([table[name].to_numpy() for name in names]).astype(dtype, copy=False)
    bias = table["bias"].to_numpy() if "bias" in table.column_names else np.zeros(len(table), dtype)
    counts = table["entries"].to_numpy().astype(np.int64)
    return Shard(compact_ids(table["id"].to_pylist()), factors, bias, counts)


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path}: {what}; fit again with Triplets(…, shards=folder)")
