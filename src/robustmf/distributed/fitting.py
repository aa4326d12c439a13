"""A fit on a Dask cluster: load, initialize, iterate, and collect the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.loading import load_matrix
from robustmf.backends.dask.matrix import Block, Factors, Matrix
from robustmf.backends.dask.source import Triplets
from robustmf.backends.dask.sweeps import DaskOperations
from robustmf.data.compressed import Coordinates
from robustmf.data.holdout import holdout_seed
from robustmf.data.ids import SIDE_NAMES
from robustmf.data.sampling import EntrySample, evenly_spaced
from robustmf.data.table_form import TableForm
from robustmf.distributed.checkpoint import in_folder, open_manifest, saved_layout
from robustmf.distributed.initialization import SAMPLING, RemoteFactorization, initialize
from robustmf.distributed.shards import require_storable, write_shards
from robustmf.exceptions import CheckpointError
from robustmf.fit_result import FitResult
from robustmf.fitting import Data, check, fit_data
from robustmf.initialization.state import Initialization
from robustmf.io.checkpoint import Checkpoint, Progress
from robustmf.model import FittedModel
from robustmf.solvers.registry import SolverChoice
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RemoteEntries:
    """What a model keeps of entries that stay on the cluster: ids, counts and a sample.

    ``rows`` is the sample, of which only the values are used; ``form`` is that of a table with the
    columns of the data, if these were named.
    """

    shape: tuple[int, int]
    n_entries: int
    rows: Coordinates
    row_ids: list[Any] | None
    column_ids: list[Any] | None
    kept: dict[str, NDArray[Any]]
    form: TableForm | None

    def sampled(self, at_most: int, weights: None, reliability: None) -> EntrySample | None:
        """Entries of the sample; None where the factors, and it, are in shards."""
        return EntrySample.from_kept(self.kept, at_most) if "rows" in self.kept else None

    def to_keep(self, weights: None) -> dict[str, NDArray[Any]]:
        """The entries of a fitted model."""
        return self.kept


@dataclass(frozen=True)
class ClusterData(Data):
    """Entries on a cluster; their ``operations`` are also the held-out entries."""

    operations: Any

    def initialize(
        self, settings: Settings, rng: np.random.Generator, choice: SolverChoice
    ) -> Initialization:
        """See :func:`robustmf.distributed.initialization.initialize`."""
        return initialize(settings, self.operations.observed, rng, choice)

    def restored(self, parts: dict[str, Any], rank: int | None) -> Any:
        """A factorization from a file; its factors must be those of this fit."""
        found = RemoteFactorization(**parts)
        for side, factors in enumerate((found.row_factors, found.column_factors)):
            is_own = isinstance(factors, Factors) and factors.side == side
            if not is_own or found.rank != rank:
                raise CheckpointError("its arrays are not those of this fit")
        return found

    def require_weights(self, weights: Array) -> None:
        """Refuse weights from a file: an initialization of a sample has none of all entries."""
        raise CheckpointError("its weights of entries are not those of this fit")


class ClusterFit:
    """A fit on a cluster; its data are loaded when it is created.

    Parameters
    ----------
    client : dask.distributed.Client
    triplets : Triplets
    checkpoint : Checkpoint or None
        If it exists, entries are partitioned and held out as in the fit to resume.
    fraction : float or None
        The share of the entries to hold out.
    rng : Generator

    Attributes
    ----------
    matrix : Matrix
        The loaded data.
    sample : Coordinates
        Evenly spaced entries, on the client.
    """

    def __init__(
        self,
        client: Any,
        triplets: Triplets,
        checkpoint: Checkpoint | None,
        fraction: float | None,
        rng: np.random.Generator,
    ) -> None:
        self._manifest = None if checkpoint is None else in_folder(checkpoint)
        advice = "fit again (a fit with checkpoint=path can be resumed)"
        if checkpoint is not None:
            advice = f"resume with fit(…, resume={str(checkpoint.path)!r})"
        connection = Connection(client, f"connect a new client, and {advice}")
        threads = connection.workers()
        if not threads:
            raise ValueError(
                "client has no workers; start some, e.g. with cluster.scale(4) and "
                "client.wait_for_workers(4)"
            )
        # an absolute path: workers may have another working directory
        self._shards = None if triplets.shards is None else Path(triplets.shards).resolve()
        n_blocks = triplets.blocks or sum(threads.values())
        if self._manifest is not None:
            n_blocks, rng = saved_layout(self._manifest, n_blocks, rng)
        self._form = triplets.form
        self._rng = rng
        self._stream = rng.spawn(1)[0]
        with connection.guarded():
            seed = holdout_seed(self._stream)
            self.matrix = load_matrix(connection, triplets, n_blocks, fraction, seed)

    @cached_property
    def sample(self) -> Coordinates:
        """Evenly spaced entries, on the client, with global indices."""
        matrix = self.matrix
        share = SAMPLING.max_share if matrix.n_blocks > 1 else 1.0
        constants = (max(SAMPLING.kept_entries // matrix.n_blocks, 1), share)
        with matrix.connection.guarded():
            blocks = matrix.sides[0].blocks
            tasks = matrix.connection.map(_sample_evenly, blocks, constants=constants)
            return Coordinates.concatenate(matrix.connection.gather(tasks))

    def fit(self, settings: Settings) -> tuple[FitResult, RemoteEntries]:
        """Initialize and iterate; the result has no factors if they are to be written as shards."""
        with self.matrix.connection.guarded():
            return self._fit(settings)

    def _fit(self, settings: Settings) -> tuple[FitResult, RemoteEntries]:
        matrix = self.matrix
        self._require_storable(settings)
        operations: Any = DaskOperations(matrix)
        spec, _ = check(settings, operations, None)
        choice = SolverChoice(spec, f"on a cluster, {matrix.n_blocks} blocks per side")
        progress = Progress()
        if self._manifest is not None:
            progress = open_manifest(self._manifest, settings.identity(), matrix, self._rng)
        holdout = None if settings.validation_fraction is None else operations
        data = ClusterData(operations, None, holdout)
        result = fit_data(settings, data, [self._stream], choice, progress)
        remote: Any = result.factorization
        found = (matrix.shape, matrix.n_entries, self.sample)
        if self._shards is None:
            kept = _kept(matrix, self.sample)
            entries = RemoteEntries(*found, *matrix.ids, kept, self._form)
            return replace(result, factorization=remote.to_host()), entries
        self._point = remote.augmented(result.bias_unit)
        entries = RemoteEntries(*found, None, None, {"values": self.sample.values}, None)
        return replace(result, factorization=remote.without_rows()), entries

    def write_shards(self, model: FittedModel) -> None:
        """Write the factors, which the given result of the fit does not have, if so requested."""
        if self._shards is not None:
            with self.matrix.connection.guarded():
                write_shards(self.matrix, self._point, model, self.sample, self._shards)

    def _require_storable(self, settings: Settings) -> None:
        """Raise if the factors fit neither into the client's memory nor into shards."""
        matrix = self.matrix
        if self._shards is not None:
            ids = [ids for side in matrix.sides for ids in side.ids]
            matrix.connection.gather(matrix.connection.map(require_storable, ids))
            return
        needed = sum(matrix.shape) * (settings.rank + 1) * matrix.dtype.itemsize
        limit = SAMPLING.max_client_bytes
        if needed > limit:
            raise ValueError(
                f"factors of shape {matrix.shape} at rank {settings.rank} take "
                f"{needed / 1e9:.1f} GB, more than the {limit / 1e9:.1f} GB that are "
                "gathered on the client; use Triplets(…, shards=folder) to have them written by "
                "the workers"
            )


def _kept(matrix: Matrix, sample: Coordinates) -> dict[str, NDArray[Any]]:
    """A sample of the entries, and the numbers of entries of all rows and columns."""
    connection = matrix.connection
    kept: dict[str, NDArray[Any]] = {"values": sample.values}
    for side, name in enumerate(SIDE_NAMES):
        order = matrix.order(side)
        blocks = matrix.sides[side].blocks
        counts = connection.gather(connection.map(getattr, blocks, constants=("counts",)))
        kept[f"{name}_counts"] = np.concatenate(counts)[np.argsort(order)]
        kept[f"{name}s"] = order[getattr(sample, f"{name}s")].astype(np.int64)
    return kept


def _sample_evenly(block: Block, max_entries: int, max_share: float) -> Coordinates:
    """Evenly spaced entries of the block, at most this number and this share of them."""
    n_entries = block.observed.n_entries
    return block.entries_at(evenly_spaced(n_entries, min(max_entries, int(max_share * n_entries))))
