"""Factors as Parquet files, one per block, which the workers write, and a manifest.

The manifest has what predictions need besides the factors, the noise model among it. It is written
last: a folder without it is not complete.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.matrix import Block, Matrix
from robustmf.backends.dask.sweeps import Point, Terms
from robustmf.data.compressed import Coordinates
from robustmf.data.ids import Ids, as_list, compact_ids, id_type
from robustmf.distributed.initialization import SAMPLING, concatenate, even_positions
from robustmf.exceptions import ModelFileError
from robustmf.fit_state import FitResult
from robustmf.io.atomic import write_atomically
from robustmf.model import UNBOUNDED
from robustmf.outliers.noise import OPTIONS as NOISE
from robustmf.outliers.noise import (
    PRIOR,
    NoiseDistribution,
    NoiseModel,
    Regressors,
    moment_sum,
)
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]

MANIFEST = "manifest.json"
SIDES = ("rows", "columns")
_HEADER = {"kind": "robustmf shards", "version": 2}
_SHARD_NAME = re.compile(r"(rows|columns)-\d{5}\.parquet")

#: The required fields of a manifest, and of each file in it, by their types in JSON.
_NUMBER = (int, float)
_FIELDS: Mapping[tuple[type, ...], tuple[str, ...]] = {
    _NUMBER: ("bias_unit", "median", "reg", "inflation"),
    (*_NUMBER, type(None)): ("center",),
    (int,): ("rank",),
    (str,): ("dtype",),
    (bool,): ("reg_by_count",),
    (list,): ("shape", "id_types", "noise", "moments", "axes"),
    (list, type(None)): ("bounds",),
    (dict,): ("files",),
}
_FILE_FIELDS: Mapping[tuple[type, ...], tuple[str, ...]] = {
    (str,): ("name", "sha256"),
    (int,): ("rows", "bytes"),
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


# --- Writing ---


def require_storable(ids: Ids) -> None:
    """Raise for ids that would change when written to and read from a Parquet file."""
    try:
        same = pa.array(ids).to_pylist() == as_list(ids)
    except (pa.ArrowException, OverflowError):
        same = False
    if not same:
        raise TypeError(
            f"ids such as {as_list(ids)[0]!r} cannot be written as Parquet shards; use text, "
            "numbers or dates, all of one type"
        )


def write_shards(matrix: Matrix, result: FitResult, settings: Settings, folder: Path) -> Array:
    """Write the files ``rows-00000.parquet``, …, ``columns-00000.parquet``, … and the manifest.

    Their columns are id, entries, bias (with biases) and factor0, …. Existing files are replaced
    atomically; those of an earlier fit with more blocks are removed at the end. Returns a sample of
    the values.
    """
    connection = matrix.connection
    point: Any = result.factorization.augmented(result.bias_unit)
    biases = BiasModel(result.factorization.center, result.bias_unit)
    terms = Terms(result.reg, settings.reg_by_count, biases, settings.bounds)
    noise, values = _noise_facts(matrix, point, terms)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)

    def submit() -> tuple[None, list[list[Any]]]:
        tasks = []
        for name, side, factors in zip(SIDES, matrix.sides, point, strict=True):
            paths = [str(folder / f"{name}-{k:05}.parquet") for k in range(matrix.n_blocks)]
            of_blocks = (side.ids, side.blocks, factors.blocks, paths)
            tasks.append(connection.map(_write, *of_blocks, constants=(biases,)))
        return None, tasks

    files = connection.gather_with_recovery(submit, point)[1]
    id_types = [sorted({name for one in side for name in one.pop("id_types")}) for side in files]
    manifest = {
        **_HEADER,
        "robustmf": version("robustmf"),
        "shape": matrix.shape,
        "n_entries": matrix.n_entries,
        "dtype": matrix.dtype.name,
        "center": biases.center,
        "bias_unit": biases.unit,
        "rank": settings.rank,
        "loss": result.loss.name,
        "theta": result.loss.theta,
        "reg": result.reg,
        "reg_by_count": settings.reg_by_count,
        "median": float(np.median(values)),
        "bounds": None if settings.bounds == UNBOUNDED else settings.bounds,
        **noise,
        "id_types": id_types,
        "files": dict(zip(SIDES, files, strict=True)),
    }
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    written = {file["name"] for side in files for file in side}
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in written:
            path.unlink()
    return values


def _write(ids: Ids, block: Block, factors: Array, path: str, biases: BiasModel) -> dict[str, Any]:
    """Write one file; returns its fields in the manifest, and the types of its ids."""
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


# --- The noise model, from sums over blocks and a sample of entries ---


@dataclass(frozen=True)
class SampledEntries:
    """Entries with their residuals, and factors and counts of their rows and columns.

    ``values`` are those of another sample.
    """

    U: Array
    V: Array
    residual: Array
    row_counts: NDArray[np.int64]
    column_counts: NDArray[np.int64]
    values: Array


@dataclass(frozen=True)
class SampledNoise(NoiseModel):
    """A noise model with one row of factors per sampled entry.

    ``rows_by_count`` and ``columns_by_count`` are the numbers of all rows and columns of the fit
    with each number of entries.
    """

    rows_by_count: Mapping[int, int] = field(default_factory=dict)
    columns_by_count: Mapping[int, int] = field(default_factory=dict)

    def degrees_of_freedom(self, clean: float) -> float:
        """The effective degrees of freedom of the complete fit."""
        sides = ((self.of_columns, self.rows_by_count), (self.of_rows, self.columns_by_count))
        return sum(
            n * regressors.degrees_of_freedom(np.array([clean * count]))
            for regressors, histogram in sides
            for count, n in sorted(histogram.items())
        )

    @property
    def n_entries(self) -> int:
        """The number of fitted entries."""
        return sum(count * n for count, n in self.rows_by_count.items())


def _noise_facts(matrix: Matrix, point: Point, terms: Terms) -> tuple[dict[str, Any], Array]:
    """The noise model as plain values for :func:`noise_of`, and a sample of the values."""
    connection = matrix.connection
    row_blocks, column_blocks = (side.blocks for side in matrix.sides)
    max_entries = max(NOISE.sample // matrix.n_blocks, 1)

    def submit() -> tuple[None, Any]:
        sums = [
            connection.map(_sums, side.blocks, factors.blocks, constants=(terms,))
            for side, factors in zip(matrix.sides, point, strict=True)
        ]
        counts = connection.map(getattr, column_blocks, constants=("counts",))
        sections = (matrix.sections(0, others) for others in (point[1].blocks, counts))
        own = (row_blocks, point[0].blocks)
        constants = (terms, max_entries, SAMPLING.client_share(matrix.n_blocks))
        return None, [sums, connection.map(_sample, *own, *sections, constants=constants)]

    sums, samples = connection.gather_with_recovery(submit, point)[1]
    settings = (matrix.n_entries, _constant(terms), terms.reg, terms.reg_by_count)
    rows, columns = (
        Regressors.from_moment(sum(moment for moment, _ in of_side), *settings) for of_side in sums
    )
    none: Counter[int] = Counter()
    by_row, by_column = (sum((one for _, one in of_side), none) for of_side in sums)
    sample: SampledEntries = concatenate(samples)
    every = np.arange(len(sample.residual))
    counts = (sample.row_counts, sample.column_counts)
    prior = SampledNoise(
        PRIOR,
        sample.U,
        sample.V,
        rows,
        columns,
        *counts,
        rows_by_count=by_row,
        columns_by_count=by_column,
    )
    noise = prior.calibrated(sample.residual, every, every)
    distribution = noise.distribution
    return {
        "noise": [distribution.scale, distribution.freedom, distribution.share],
        "inflation": noise.inflation,
        "moments": [side.moments.tolist() for side in (rows, columns)],
        "axes": [side.axes.tolist() for side in (rows, columns)],
    }, sample.values


def noise_of(facts: Mapping[str, Any], rows: Any, columns: Any) -> NoiseModel:
    """The noise model for entries, given the factors and counts of their rows and columns."""
    constant = facts["bias_unit"] if facts["center"] is not None else 0.0
    settings = (constant, facts["reg"], facts["reg_by_count"])
    of_rows, of_columns = (
        Regressors(np.array(moments), np.array(axes), *settings)
        for moments, axes in zip(facts["moments"], facts["axes"], strict=True)
    )
    return NoiseModel(
        NoiseDistribution(*facts["noise"]),
        rows.factors,
        columns.factors,
        of_rows,
        of_columns,
        rows.counts,
        columns.counts,
        facts["inflation"],
    )


def _constant(terms: Terms) -> float:
    return 0.0 if terms.biases.center is None else terms.biases.unit


def _without_bias(own: Array, terms: Terms) -> Array:
    return own if terms.biases.center is None else own[:, :-1]


def _sums(block: Block, own: Array, terms: Terms) -> tuple[NDArray[np.float64], Counter[int]]:
    moment = moment_sum(_without_bias(own, terms), block.counts, _constant(terms))
    return moment, Counter(block.counts.tolist())


def _sample(
    block: Block,
    own: Array,
    sections: Sequence[Array],
    counts: Sequence[NDArray[np.int64]],
    terms: Terms,
    max_entries: int,
    max_share: float,
) -> SampledEntries:
    rows = block.observed.rows
    n_entries = len(rows.values)
    positions = even_positions(n_entries, max_entries, SAMPLING.max_share)
    found = Coordinates.of(rows, None, positions)
    U = own[found.rows]
    V = np.concatenate(sections)[found.columns]
    left, right = terms.biases.predictors(U, V)
    predicted = np.clip(np.einsum("tq,tq->t", left, right), *terms.bounds)
    return SampledEntries(
        _without_bias(U, terms),
        _without_bias(V, terms),
        found.values - predicted,
        block.counts[found.rows],
        np.concatenate(counts)[found.columns],
        rows.values[even_positions(n_entries, SAMPLING.values_per_block, max_share)],
    )


# --- Reading ---


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
    if not isinstance(manifest, dict) or not _HEADER.items() <= manifest.items():
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

    def require(found: Any, required: Mapping[tuple[type, ...], Sequence[str]], owner: str) -> None:
        if not isinstance(found, dict):
            refuse(f"{owner} is {found!r}")
        for types, names in required.items():
            for name in names:
                if name not in found:
                    refuse(f"{owner} has no {name!r}")
                if not isinstance(found[name], types):
                    refuse(f"{owner} has {name}={found[name]!r}")

    require(manifest, _FIELDS, "it")
    for name in ("shape", "id_types", "moments", "axes", "bounds"):
        if manifest[name] is not None and len(manifest[name]) != len(SIDES):
            refuse(f"it has {name}={manifest[name]!r}")
    require(manifest["files"], {(list,): SIDES}, "'files'")
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
    path = Path(folder) / file["name"]
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            raise _damaged(path, "has another checksum than when it was written")
        table = pq.read_table(pa.BufferReader(content))
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    names = [name for name in table.column_names if name.startswith("factor")]
    factors = np.column_stack([table[name].to_numpy() for name in names]).astype(dtype, copy=False)
    bias = table["bias"].to_numpy() if "bias" in table.column_names else np.zeros(len(table), dtype)
    counts = table["entries"].to_numpy().astype(np.int64)
    return Shard(compact_ids(table["id"].to_pylist()), factors, bias, counts)


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path}: {what}; fit again with Triplets(…, shards=folder)")
