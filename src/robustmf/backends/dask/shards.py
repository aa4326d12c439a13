"""Factors that are too large for one machine: one Parquet file a block, written by the worker that has it, and a manifest, written last."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.factors import Factors, gather_mended
from robustmf.backends.dask.load import Matrix
from robustmf.data.ids import Ids, as_list, compact_ids, id_type
from robustmf.exceptions import ModelFileError

Array = NDArray[np.floating[Any]]

MANIFEST = "manifest.json"
SIDES = ("rows", "columns")
_KIND, _VERSION = "robustmf shards", 1
_SHARD_NAME = re.compile(r"(rows|columns)-\d{5}\.parquet")

#: What answers are made from, and of each file what it is checked by; with the types that JSON has for them.
_NUMBER = (int, float)
_FACTS: Mapping[str, tuple[type, ...]] = {
    "shape": (list,), "rank": (int,), "dtype": (str,), "kinds": (list,), "files": (dict,), "center": (*_NUMBER, type(None)),
    "bias_unit": _NUMBER, "median": _NUMBER, "bounds": (list, type(None)), "reg": _NUMBER, "reg_by_count": (bool,), "law": (list,),
    "inflation": _NUMBER, "moments": (list,), "axes": (list,),
}  # fmt: skip
_FILE_FACTS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "rows": (int,),
    "bytes": (int,),
    "sha256": (str,),
}


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
        return {key: k for k, key in enumerate(as_list(self.ids))}


def require_storable(ids: Ids) -> None:
    """Refuse ids that would not come back from a Parquet file as they were."""
    import pyarrow as pa  # noqa: PLC0415 - in the worker

    try:
        same = pa.array(ids).to_pylist() == as_list(ids)
    except (pa.ArrowException, OverflowError):
        same = False
    if not same:
        raise TypeError(
            f"ids such as {as_list(ids)[0]!r} cannot be written as Parquet shards; use text, numbers or dates, all of one type"
        )


def write_shards(
    matrix: Matrix,
    pair: tuple[Factors, Factors],
    biases: BiasModel,
    folder: Path,
    facts: Mapping[str, Any],
) -> None:
    """Files ``rows-00000.parquet``, …, ``columns-00000.parquet``, … with the columns id, entries, bias (where there are any), factor0, ….

    Where they are written again, each is replaced whole, and those of an earlier fit with more blocks are removed in the end. ``facts``
    go into the manifest, which is written when all files are there: without it a folder is not complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)

    def submitted() -> tuple[None, list[list[Any]]]:
        return None, [
            [
                matrix.connection.submit(
                    _write, ids, block, factors, biases, str(folder / f"{name}-{k:05}.parquet")
                )
                for k, (ids, block, factors) in enumerate(
                    zip(side.ids, side.blocks, of.blocks, strict=True)
                )
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
    temporary = _temporary(folder / MANIFEST)
    temporary.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    temporary.replace(folder / MANIFEST)
    kept = {file["name"] for side in files for file in side}
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def _temporary(path: Path) -> Path:
    """A name of its own, on whatever machine: a task that was given up may still be writing."""
    return path.with_name(f"{path.name}.{uuid4().hex}.tmp")


def _write(ids: Ids, block: Block, factors: Array, biases: BiasModel, path: str) -> dict[str, Any]:
    import pyarrow as pa  # noqa: PLC0415 - in the worker
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    columns: dict[str, Any] = {"id": pa.array(ids), "entries": block.observed.rows.counts}
    if biases.center is not None:
        columns["bias"] = factors[:, -1] * factors.dtype.type(biases.unit)
        factors = factors[:, :-1]
    columns |= {f"factor{k}": np.ascontiguousarray(factors[:, k]) for k in range(factors.shape[1])}
    temporary = _temporary(Path(path))
    pq.write_table(pa.table(columns), temporary)
    facts = {
        "name": Path(path).name, "rows": len(ids), "bytes": temporary.stat().st_size, "sha256": _checksum(temporary),
        "kinds": sorted({id_type(key).__name__ for key in as_list(ids)}),
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
    except FileNotFoundError:
        raise _damaged(
            path, "is not there, so the folder holds no shards or not all of them"
        ) from None
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise _damaged(path, f"is damaged ({error})") from error
    if (
        not isinstance(manifest, dict)
        or manifest.get("kind") != _KIND
        or manifest.get("version") != _VERSION
    ):
        raise _damaged(path, "is not the manifest of shards of this version")
    for file in _checked_files(manifest, path):
        there = folder / file["name"]
        if not there.is_file() or there.stat().st_size != file["bytes"]:
            raise _damaged(
                there,
                "is missing"
                if not there.is_file()
                else "has not the size that it was written with",
            )
    return manifest


def _checked_files(manifest: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """The files that a manifest lists, once it has all that answers are made from."""

    def refuse(what: str) -> NoReturn:
        raise _damaged(path, f"is damaged ({what})")

    def require(facts: Any, wanted: Mapping[str, tuple[type, ...]], of: str) -> None:
        if not isinstance(facts, dict):
            refuse(f"{of} is {facts!r}")
        for name, types in wanted.items():
            if name not in facts:
                refuse(f"{of} has no {name!r}")
            if not isinstance(facts[name], types):
                refuse(f"{of} has {name}={facts[name]!r}")

    require(manifest, _FACTS, "it")
    for name in ("shape", "kinds", "moments", "axes", "bounds"):
        if manifest[name] is not None and len(manifest[name]) != len(SIDES):
            refuse(f"it has {name}={manifest[name]!r}")
    require(manifest["files"], dict.fromkeys(SIDES, (list,)), "'files'")
    files = [file for side in SIDES for file in manifest["files"][side]]
    for file in files:
        require(file, _FILE_FACTS, "a file")
        if not _SHARD_NAME.fullmatch(file["name"]):  # nor a path out of the folder
            refuse(f"{file['name']!r} is not the name of a shard")
    if not all(any(file["rows"] for file in manifest["files"][side]) for side in SIDES):
        refuse("it lists no rows or no columns")
    return files


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
    return Shard(
        compact_ids(table["id"].to_pylist()),
        factors,
        bias,
        table["entries"].to_numpy().astype(np.int64),
    )


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path}: {what}; fit again with Triplets(…, shards=folder)")
