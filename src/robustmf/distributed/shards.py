"""Factors as Parquet files, one per block, which the workers write, and a manifest.

The manifest has what predictions need besides the factors, the noise model among it. It is a model
file (:mod:`robustmf.io.model_file`), written last: a folder without it is not complete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.matrix import Block, Factors, Matrix
from robustmf.backends.dask.sweeps import Point
from robustmf.data.compressed import Coordinates
from robustmf.data.factorization import Factorization
from robustmf.data.ids import Ids, as_list, compact_ids, id_type
from robustmf.data.sampling import EntrySample, evenly_spaced
from robustmf.exceptions import ModelFileError
from robustmf.io.atomic import write_atomically
from robustmf.io.encoding import CONTENT_ERRORS
from robustmf.io.model_file import Saved, read, write
from robustmf.losses import make_loss
from robustmf.model import FittedModel
from robustmf.outliers.noise import OPTIONS as NOISE
from robustmf.outliers.noise import (
    NoiseDistribution,
    NoiseModel,
    Regressors,
    Totals,
    moment_sum,
)
from robustmf.outliers.scores import noise_model

Array = NDArray[np.floating[Any]]

MANIFEST = "shards.rmf"
SIDES = ("rows", "columns")
_KIND = "shards"
_SHARD_NAME = re.compile(r"(rows|columns)-\d{5}\.parquet")


@dataclass(frozen=True)
class Shard:
    """Some rows or columns; biases are zero for a model without them.

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


@dataclass(frozen=True)
class ShardFile:
    """A file of one block of one side, as it was written."""

    name: str
    rows: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        types = [type(value) for value in vars(self).values()]
        # in particular no path out of the folder
        if types != [str, int, int, str] or not _SHARD_NAME.fullmatch(self.name):
            raise ValueError(f"{self!r} is not a shard")


@dataclass(frozen=True)
class Manifest:
    """What the shards of a fit are, and what answers need besides them.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of the fitted matrix.
    loss : str
        Name of the loss.
    theta : float
        Its scale θ.
    id_types : (list of str, list of str)
        Names of the types of the ids of rows and columns.
    files : (list of ShardFile, list of ShardFile)
        The files of the blocks of rows and columns.
    model : FittedModel
        The model with one row and one column that have no entries. Its loss is not that of the fit,
        which may be user-defined: no answer evaluates it.
    noise : NoiseModel
        The noise of the fit, without rows and columns.
    """

    shape: tuple[int, int]
    loss: str
    theta: float
    id_types: tuple[list[str], list[str]]
    files: tuple[list[ShardFile], list[ShardFile]]
    model: FittedModel
    noise: NoiseModel

    def model_of(self, rows: Shard, columns: Shard) -> FittedModel:
        """The model of some rows and columns of the fit."""
        center = self.model.factors.center
        return replace(
            self.model,
            factors=Factorization(rows.factors, columns.factors, center, rows.bias, columns.bias),
            row_ids=as_list(rows.ids),
            column_ids=as_list(columns.ids),
            entries={"row_counts": rows.counts, "column_counts": columns.counts},
            _vocabularies={},
        )

    def noise_of(self, rows: Shard, columns: Shard) -> NoiseModel:
        """The noise of the fit for entries of some rows and columns."""
        counts = (rows.counts, columns.counts)
        return self.noise.for_rows_and_columns(rows.factors, columns.factors, counts)

    def to_saved(self) -> Saved:
        """The content of the file."""
        facts = {name: getattr(self, name) for name in ("shape", "loss", "theta", "id_types")}
        files = tuple([asdict(file) for file in of_side] for of_side in self.files)
        return Saved(
            _KIND, facts | {"files": files, "noise": asdict(self.noise)}, self.model.to_state()
        )

    @classmethod
    def from_saved(cls, saved: Saved) -> Manifest:
        """The inverse of :meth:`to_saved`; raises LookupError, TypeError or ValueError."""
        if saved.kind != _KIND:
            raise ModelFileError("it is not the manifest of shards")
        facts = saved.parameters
        types = {"shape": int, "id_types": list, "files": list}
        for name, kind in types.items():
            pair = facts[name]
            if not isinstance(pair, tuple) or list(map(type, pair)) != [kind] * len(SIDES):
                raise ValueError(f"{name}={pair!r}")
        files = tuple([ShardFile(**file) for file in of_side] for of_side in facts["files"])
        if not all(any(file.rows for file in of_side) for of_side in files):
            raise ValueError("it lists no rows or no columns")
        model = FittedModel.from_state(saved.state)
        read = {"files": files, "model": model, "noise": _checked_noise(facts["noise"], model)}
        return cls(**facts | read)


def _checked_noise(plain: dict[str, Any], model: FittedModel) -> NoiseModel:
    """The noise from ``asdict``; raises unless it is that of the model."""
    distribution = NoiseDistribution(**plain["distribution"])
    numbers = [plain["inflation"], *vars(distribution).values()]
    sides = {name: Regressors(**plain[name]) for name in ("of_rows", "of_columns")}
    width = model.n_outputs
    settings = (model.constant_regressor, model.reg, model.reg_by_count)
    if not all(isinstance(number, float) for number in numbers) or not all(
        (side.constant, side.reg, side.reg_by_count) == settings
        and (side.moments.shape, side.axes.shape) == ((width,), (width, width))
        for side in sides.values()
    ):
        raise ValueError(f"noise={plain!r:.60}")
    return NoiseModel(**plain | sides | {"distribution": distribution})


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


def write_shards(
    matrix: Matrix, point: Point, model: FittedModel, sample: Coordinates, folder: Path
) -> None:
    """Write the files ``rows-00000.parquet``, …, ``columns-00000.parquet``, … and the manifest.

    Their columns are id, entries, bias (with biases) and factor0, …. Existing files are replaced
    atomically; those of an earlier fit with more blocks are removed at the end.

    Parameters
    ----------
    matrix : Matrix
    point : (Factors, Factors)
        The augmented factors.
    model : FittedModel
        The result of the fit, without rows and columns.
    sample : Coordinates
        Some entries, with global indices.
    folder : Path
    """
    biases = BiasModel(model.factors.center, model.bias_unit)
    noise = _estimated_noise(matrix, point, model, sample)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    files = []
    types = []
    for name, side, factors in zip(SIDES, matrix.sides, point, strict=True):
        paths = [str(folder / f"{name}-{k:05}.parquet") for k in range(matrix.n_blocks)]
        of_blocks = (side.ids, side.blocks, paths)
        written = factors.map(_write, *of_blocks, constants=(biases,))
        files.append([file for file, _ in written])
        types.append(sorted({name for _, names in written for name in names}))
    manifest = Manifest(
        matrix.shape,
        model.loss.name,
        model.loss.theta,
        (types[0], types[1]),
        (files[0], files[1]),
        _without_entries(model),
        noise,
    )
    write(folder / MANIFEST, manifest.to_saved())
    names = {file.name for of_side in files for file in of_side}
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in names:
            path.unlink()


def _without_entries(model: FittedModel) -> FittedModel:
    """The model with one row and one column that have no entries; see :class:`Manifest`."""
    A = np.zeros((1, model.n_outputs), model.factors.row_factors.dtype)
    none = np.zeros(1, np.int64)
    sides = dict.fromkeys(("row_counts", "column_counts", "rows", "columns"), none)
    return replace(
        model,
        loss=make_loss("l2"),
        factors=Factorization.from_augmented(A, A, model.factors.center, model.bias_unit),
        entries=sides | {"values": A[:, 0]},
    )


def _write(
    factors: Array, ids: Ids, block: Block, path: str, biases: BiasModel
) -> tuple[ShardFile, set[str]]:
    """Write one file; returns it, and the names of the types of its ids."""
    columns: dict[str, Any] = {"id": pa.array(ids), "entries": block.counts}
    if biases.center is not None:
        columns["bias"] = factors[:, -1] * factors.dtype.type(biases.unit)
        factors = factors[:, :-1]
    columns |= {f"factor{k}": np.ascontiguousarray(factors[:, k]) for k in range(factors.shape[1])}
    stream = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), stream)
    content = stream.getvalue()
    write_atomically(path, content)
    checksum = hashlib.sha256(content).hexdigest()
    file = ShardFile(Path(path).name, len(ids), content.size, checksum)
    return file, {id_type(key).__name__ for key in as_list(ids)}


# --- The noise model, from sums over blocks and a sample of entries ---


def _estimated_noise(
    matrix: Matrix, point: Point, model: FittedModel, sample: Coordinates
) -> NoiseModel:
    """The noise of the fit, without rows and columns.

    It is estimated as on one machine, by a model with a row and a column for each entry of the
    sample.
    """
    sample = sample.at(evenly_spaced(len(sample.values), NOISE.sample))
    of_rows, of_columns = (
        _sums_and_rows(matrix, factors, indices, model)
        for factors, indices in zip(point, (sample.rows, sample.columns), strict=True)
    )
    moments, counts, (A, B), of_entries = zip(of_rows, of_columns, strict=True)
    every = np.arange(len(sample.values))
    factors = Factorization.from_augmented(A, B, model.factors.center, model.bias_unit)
    entries = EntrySample(every, every, sample.values, *of_entries)
    totals = Totals(moments, counts, matrix.n_entries)
    noise = noise_model(replace(model, factors=factors), entries, totals)
    none = np.empty(0, np.int64)
    return noise.for_rows_and_columns(noise.U[:0], noise.V[:0], (none, none))


def _sums_and_rows(
    matrix: Matrix, factors: Factors, indices: NDArray[Any], model: FittedModel
) -> tuple[Any, ...]:
    """The sum of the moments of a side and the distribution of its counts.

    Then the factors and the counts of the rows with these global indices.
    """
    side = matrix.sides[factors.side]
    order = np.argsort(indices, kind="stable")
    parts = np.split(indices[order], np.searchsorted(indices[order], side.offsets[1:]))
    positions = [part - offset for part, offset in zip(parts, side.offsets, strict=True)]
    of_blocks = factors.map(_sum_and_rows, side.blocks, positions, constants=(model,))
    moments, counts, rows, of_entries = zip(*of_blocks, strict=True)
    values, numbers = map(np.concatenate, zip(*counts, strict=True))
    in_order = np.argsort(order)
    found = (np.concatenate(arrays)[in_order] for arrays in (rows, of_entries))
    return sum(moments), (values, numbers), *found


def _sum_and_rows(
    own: Array, block: Block, positions: NDArray[Any], model: FittedModel
) -> tuple[Any, ...]:
    counts = block.counts
    moment = moment_sum(own[:, : model.factors.rank], counts, model.constant_regressor)
    return moment, np.unique(counts, return_counts=True), own[positions], counts[positions]


# --- Reading ---


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a complete folder."""
    path = folder / MANIFEST
    try:
        manifest = Manifest.from_saved(read(path))
    except FileNotFoundError:
        raise _damaged(path, "does not exist: the folder has no shards, or not all") from None
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error
    except CONTENT_ERRORS as error:
        raise _damaged(path, f"is damaged ({error})") from error
    for file in (file for of_side in manifest.files for file in of_side):
        shard = folder / file.name
        if not shard.is_file():
            raise _damaged(shard, "is missing")
        if shard.stat().st_size != file.bytes:
            raise _damaged(shard, "has another size than when it was written")
    return manifest


def read_shard(folder: str, file: ShardFile, dtype: np.dtype[Any]) -> Shard:
    """Read one file of the manifest, and verify its checksum."""
    path = Path(folder) / file.name
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != file.sha256:
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
