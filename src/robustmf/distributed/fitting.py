"""A fit on a Dask cluster: load, initialize, iterate, and collect the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import Capabilities
from robustmf.backends.biases import BiasModel
from robustmf.backends.dask import DaskBackend
from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.loading import load_matrix
from robustmf.backends.dask.matrix import Block, Factors, Matrix
from robustmf.backends.dask.source import Triplets
from robustmf.backends.dask.sweeps import DaskSweeps, Terms
from robustmf.backends.ridge import Ridges
from robustmf.data.compressed import Coordinates
from robustmf.data.holdout import holdout_seed
from robustmf.data.ids import SIDE_NAMES
from robustmf.data.sampling import EntrySample
from robustmf.distributed.checkpoint import in_folder, open_manifest, saved_layout
from robustmf.distributed.initialization import (
    SAMPLING,
    RemoteFactorization,
    concatenate,
    entries_at,
    even_positions,
    initialize,
)
from robustmf.distributed.shards import require_storable, write_shards
from robustmf.exceptions import CheckpointError
from robustmf.fit_state import FitResult
from robustmf.fitting import check, fit_data
from robustmf.initialization.state import Initialization
from robustmf.io.checkpoint import Checkpoint, Progress
from robustmf.model import FittedModel
from robustmf.solvers.registry import SolverChoice
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RemoteEntries:
    """What a model keeps of entries that stay on the cluster: ids, counts and a sample."""

    shape: tuple[int, int]
    n_entries: int
    row_ids: list[Any] | None
    column_ids: list[Any] | None
    kept: dict[str, NDArray[Any]]

    @property
    def rows(self) -> RemoteEntries:
        """The object that has the values, as in :class:`~robustmf.data.observed.Observed`."""
        return self

    @property
    def values(self) -> Array:
        """The values of the sample."""
        return self.kept["values"]

    def sampled(self, at_most: int, weights: None) -> EntrySample | None:
        """Entries of the sample; None where the factors, and it, are in shards."""
        return EntrySample.from_kept(self.kept, at_most) if "rows" in self.kept else None

    def to_keep(self, weights: None) -> dict[str, NDArray[Any]]:
        """The entries of a fitted model."""
        return self.kept


@dataclass
class ClusterData:
    """Entries on a cluster, with the members of :class:`robustmf.fitting.Data`.

    It is its own ``operations``, of which a cluster offers sweeps, and its own ``holdout``: the
    error on held-out entries is measured during sweeps, for predictions within ``bounds``.
    """

    observed: Matrix
    bounds: tuple[float, float]
    has_holdout: bool = False
    sample_weights: ClassVar[None] = None
    capabilities: ClassVar[Capabilities] = DaskBackend.capabilities

    @property
    def operations(self) -> ClusterData:
        """The object itself."""
        return self

    @property
    def holdout(self) -> ClusterData | None:
        """The object itself if entries are held out."""
        return self if self.has_holdout else None

    def sweeps(
        self,
        reg: float | Ridges,
        biases: BiasModel,
        sample_weights: None = None,
        reg_by_count: bool = False,
        nonnegative: bool = False,
    ) -> DaskSweeps:
        """Sweeps over the blocks, which have the weights of their entries."""
        if isinstance(reg, tuple):
            # The multipliers of rows belong to the sample that the rules were learned from.
            reg = (reg[0].common, reg[1].common)
        self._sweeps = DaskSweeps(self.observed, Terms(reg, reg_by_count, biases, self.bounds))
        return self._sweeps

    def error(self, U: Any, V: Any, bounds: tuple[float, float]) -> float:
        """The error on the held-out entries at the last point of the sweeps."""
        return self._sweeps.holdout_error

    def initialize(
        self, settings: Settings, rng: np.random.Generator, choice: SolverChoice
    ) -> Initialization:
        """See :func:`robustmf.distributed.initialization.initialize`."""
        return initialize(settings, self.observed, rng, choice)

    def restored(self, parts: dict[str, Any], rank: int) -> RemoteFactorization:
        """A factorization from a file; its factors must be those of this fit."""
        found = RemoteFactorization(**parts)
        width = rank + (found.center is not None)
        for side, factors in enumerate((found.row_factors, found.column_factors)):
            is_own = isinstance(factors, Factors) and factors.side == side
            if not is_own or factors.shape[1] != width:
                raise CheckpointError("its arrays are not those of this fit")
        return found


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
        self._rng = rng
        self._stream = rng.spawn(1)[0]
        seed = holdout_seed(self._stream)
        self.matrix = load_matrix(connection, triplets, n_blocks, fraction, seed)

    @cached_property
    def sample(self) -> Coordinates:
        """Evenly spaced entries, on the client, with global indices."""
        matrix = self.matrix
        limits = (
            max(SAMPLING.kept_entries // matrix.n_blocks, 1),
            SAMPLING.client_share(matrix.n_blocks),
        )
        tasks = matrix.connection.map(_sample_evenly, matrix.sides[0].blocks, constants=limits)
        sample: Coordinates = concatenate(matrix.connection.gather(tasks))
        return sample

    def fit(self, settings: Settings) -> tuple[FitResult, RemoteEntries]:
        """Initialize and iterate; the result has no factors if they are to be written as shards."""
        matrix = self.matrix
        self._require_storable(settings)
        data: Any = ClusterData(matrix, settings.bounds, settings.validation_fraction is not None)
        spec, _ = check(settings, data, None)
        choice = SolverChoice(spec, f"on a cluster, {matrix.n_blocks} blocks per side")
        progress = Progress()
        if self._manifest is not None:
            progress = open_manifest(self._manifest, settings.identity(), matrix, self._rng)
        result = fit_data(settings, data, [self._stream], choice, progress)
        remote: Any = result.factorization
        size = (matrix.shape, matrix.n_entries)
        if self._shards is None:
            entries = RemoteEntries(*size, *matrix.ids, _kept(matrix, self.sample))
            return replace(result, factorization=remote.to_host()), entries
        self._point = remote.augmented(result.bias_unit)
        entries = RemoteEntries(*size, None, None, {"values": self.sample.values})
        return replace(result, factorization=remote.without_rows()), entries

    def write_shards(self, model: FittedModel) -> None:
        """Write the factors, which the given result of the fit does not have, if so requested."""
        if self._shards is not None:
            write_shards(self.matrix, self._point, model, self._shards)

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
    counts = [connection.map(getattr, of.blocks, constants=("counts",)) for of in matrix.sides]
    kept: dict[str, NDArray[Any]] = {"values": sample.values}
    for side, (name, parts) in enumerate(zip(SIDE_NAMES, connection.gather(counts), strict=True)):
        order = matrix.order(side)
        kept[f"{name}_counts"] = np.concatenate(parts)[np.argsort(order)]
        kept[f"{name}s"] = order[getattr(sample, f"{name}s")].astype(np.int64)
    return kept


def _sample_evenly(block: Block, max_entries: int, max_share: float) -> Coordinates:
    """Evenly spaced entries of the block."""
    return entries_at(block, even_positions(block.observed.n_entries, max_entries, max_share))
