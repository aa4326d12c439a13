"""A fit on a Dask cluster: load, initialize, iterate, and collect the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.connection import Connection, Factors
from robustmf.backends.dask.matrix import Matrix, load_matrix
from robustmf.backends.dask.shards import require_storable, write_shards
from robustmf.backends.dask.source import Triplets
from robustmf.backends.dask.sweeps import DaskSweeps, Terms
from robustmf.backends.registry import get_cluster_backend
from robustmf.data.factorization import Factorization
from robustmf.data.holdout import holdout_seed
from robustmf.distributed.checkpoint import CheckpointFolder, Layout
from robustmf.distributed.initialization import (
    SAMPLING,
    Estimates,
    Sample,
    initialize,
    sample_evenly,
)
from robustmf.distributed.noise import noise_facts
from robustmf.fitting import FitResult
from robustmf.initialization.initial_point import check_init
from robustmf.io.checkpoint import Checkpoint
from robustmf.solvers.base import Outcome, run, warn_of_limit
from robustmf.solvers.irls import IRLS
from robustmf.solvers.objective import Objective
from robustmf.solvers.record import file_record
from robustmf.solvers.registry import get_solver, solver_names
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]

#: Evenly spaced entries that are gathered on the client for the statistics of a fitted model; and
#: those per block if the factors are written as shards, for the median alone.
KEPT_ENTRIES = 200_000
KEPT_ENTRIES_PER_SHARD = 1000

#: Bytes of factors that are gathered on the client.
MAX_CLIENT_BYTES = 1 << 32


@dataclass(frozen=True)
class RemoteEntries:
    """What a model keeps of entries that stay on the cluster: ids, counts and a sample."""

    shape: tuple[int, int]
    n_entries: int
    row_ids: list[Any] | None
    column_ids: list[Any] | None
    counts: tuple[NDArray[np.int64], NDArray[np.int64]]
    indices: tuple[NDArray[np.int64], NDArray[np.int64]]
    values: Array

    @property
    def rows(self) -> RemoteEntries:
        """The object that has the values, as in :class:`~robustmf.data.observed.Observed`."""
        return self

    def to_keep(self, weights: None) -> dict[str, Any]:
        """The entries of a fitted model."""
        return {
            "row_counts": self.counts[0],
            "column_counts": self.counts[1],
            "rows": self.indices[0],
            "columns": self.indices[1],
            "values": self.values,
        }


def require_cluster(solver: str, n_init: int, certify: Any, device: str) -> None:
    """Raise, before anything is read, for parameters that a fit on a cluster does not support."""
    capabilities = get_cluster_backend().capabilities
    names = solver_names()
    solvers = [name for name in names if get_solver(name).is_possible(True, capabilities)]
    supported: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "solver": (solver, ("auto", *solvers)),
        "n_init": (n_init, () if capabilities.several_initializations else (1,)),
        "certify": (certify, () if capabilities.entry_operations else (False,)),
        "device": (device, ("cpu",)),
    }
    for name, (value, allowed) in supported.items():
        if allowed and value not in allowed:
            raise ValueError(
                f"{name} must be {' or '.join(map(repr, allowed))} with client=, "
                f"got {name}={value!r}"
            )


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
    """

    def __init__(
        self,
        client: Any,
        triplets: Triplets,
        checkpoint: Checkpoint | None,
        fraction: float | None,
        rng: np.random.Generator,
    ) -> None:
        self._folder = None if checkpoint is None else CheckpointFolder(checkpoint)
        advice = "fit again (a fit with checkpoint=path can be resumed)"
        if self._folder is not None:
            advice = f"resume with fit(…, resume={str(self._folder.path)!r})"
        connection = Connection(client, f"connect a new client, and {advice}")
        threads = connection.workers()
        if not threads:
            raise ValueError(
                "client has no workers; start some, e.g. with cluster.scale(4) and "
                "client.wait_for_workers(4)"
            )
        # an absolute path: workers may have another working directory
        self._shards = None if triplets.shards is None else Path(triplets.shards).resolve()
        self._rng = rng.spawn(1)[0]
        n_blocks = triplets.blocks or sum(threads.values())
        seed = holdout_seed(self._rng)
        self._layout = Layout(n_blocks, seed)
        if self._folder is not None:
            self._layout = self._folder.layout(n_blocks, seed)
        self.matrix = load_matrix(
            connection, triplets, self._layout.n_blocks, fraction, self._layout.holdout_seed
        )

    def fit(self, settings: Settings) -> tuple[FitResult, RemoteEntries]:
        """Initialize and iterate; the factors of the result are empty if written as shards."""
        matrix = self.matrix
        check_init(settings.init)
        self._require_storable(settings)
        estimates, (U, V) = self._initial_point(settings)
        terms = Terms(
            estimates.reg,
            settings.reg_by_count,
            BiasModel(estimates.center, estimates.bias_unit),
            settings.bounds,
        )
        sweeps = DaskSweeps(matrix, terms)
        irls = IRLS(sweeps, Objective(estimates.loss, estimates.reg), estimates.sigma)
        progress: Any = self._folder  # has the methods of LoopProgress
        record = file_record(progress)
        outcome = run(
            irls,
            U,  # type: ignore[arg-type]
            V,  # type: ignore[arg-type]
            settings.max_iter,
            settings.tol,
            settings.callbacks,
            validation=None if settings.validation_fraction is None else sweeps.last_holdout_error,
            patience=settings.patience,
            record=record,
        )
        if record is not None and not outcome.stopped:
            history = outcome.history
            objective, seconds = history["objective"][-1], history["seconds"][-1]
            record.save_if_due(irls, outcome, objective, seconds, force=True)
        warn_of_limit(outcome, settings.max_iter, settings.tol)
        point: Any = outcome.best or irls.augmented_factors
        if self._shards is None:
            entries = _remote_entries(matrix)
            A, B = map(np.asarray, point)
        else:
            entries = _remote_values(matrix)
            facts = _facts(settings, estimates, entries) | noise_facts(matrix, point, terms)
            write_shards(matrix, point, terms.biases, self._shards, facts)
            A, B = (np.empty((0, factors.shape[1]), matrix.dtype) for factors in point)
        return _as_fit(A, B, estimates, outcome, matrix.n_blocks), entries

    def _initial_point(self, settings: Settings) -> tuple[Estimates, tuple[Factors, Factors]]:
        """That of the checkpoint, or a new one."""
        folder = self._folder
        if folder is None:
            return initialize(settings, self.matrix, self._rng)
        folder.open(self.matrix, settings.identity(), self._layout)
        found = folder.initial_point(settings.loss) or initialize(settings, self.matrix, self._rng)
        folder.keep_estimates(found[0])
        return found

    def _require_storable(self, settings: Settings) -> None:
        """Raise if the factors fit neither into the client's memory nor into shards."""
        matrix = self.matrix
        if self._shards is not None:
            ids = [ids for side in matrix.sides for ids in side.ids]
            matrix.connection.gather(matrix.connection.map(require_storable, ids))
            return
        needed = sum(matrix.shape) * (settings.rank + 1) * matrix.dtype.itemsize
        if needed > MAX_CLIENT_BYTES:
            raise ValueError(
                f"factors of shape {matrix.shape} at rank {settings.rank} take "
                f"{needed / 1e9:.1f} GB, more than the {MAX_CLIENT_BYTES / 1e9:.1f} GB that are "
                "gathered on the client; use Triplets(…, shards=folder) to have them written by "
                "the workers"
            )


def _as_fit(A: Array, B: Array, estimates: Estimates, outcome: Outcome, n_blocks: int) -> FitResult:
    found = Factorization.from_augmented(A, B, estimates.center, estimates.bias_unit)
    if outcome.best is not None:
        outcome.best = (found.row_factors, found.column_factors)
    return FitResult(
        found,
        estimates.bias_unit,
        estimates.loss,
        estimates.reg,
        outcome,
        float("nan"),
        "irls",
        f"on a cluster, {n_blocks} blocks per side",
    )


def _facts(settings: Settings, estimates: Estimates, entries: RemoteEntries) -> dict[str, Any]:
    """What predictions need besides the factors."""
    return {
        "rank": settings.rank,
        "loss": estimates.loss.name,
        "theta": estimates.loss.theta,
        "reg": estimates.reg,
        "reg_by_count": settings.reg_by_count,
        "median": float(np.median(entries.values)),
        "bounds": None if settings.bounds == (-np.inf, np.inf) else settings.bounds,
    }


def _samples(matrix: Matrix, max_entries: int) -> list[Any]:
    share = SAMPLING.max_share if matrix.n_blocks > 1 else 1.0
    blocks = matrix.sides[0].blocks
    return [matrix.connection.submit(sample_evenly, one, max_entries, share) for one in blocks]


def _remote_entries(matrix: Matrix) -> RemoteEntries:
    """Ids, counts and a sample of the entries."""
    connection = matrix.connection
    counts = [connection.attributes(side.blocks, "counts") for side in matrix.sides]
    samples: list[Sample]
    samples, *parts = connection.gather(
        [_samples(matrix, max(KEPT_ENTRIES // matrix.n_blocks, 1)), *counts]
    )
    row_counts, column_counts = (matrix.in_order(side, part) for side, part in enumerate(parts))
    rows = matrix.order(0)[np.concatenate([one.rows for one in samples])].astype(np.int64)
    columns = matrix.order(1)[np.concatenate([one.columns for one in samples])].astype(np.int64)
    values = np.concatenate([one.values for one in samples])
    return RemoteEntries(
        matrix.shape,
        matrix.n_entries,
        *matrix.ids,
        (row_counts, column_counts),
        (rows, columns),
        values,
    )


def _remote_values(matrix: Matrix) -> RemoteEntries:
    """Values alone, for a model whose factors are written as shards."""
    samples = matrix.connection.gather(_samples(matrix, KEPT_ENTRIES_PER_SHARD))
    values = np.concatenate([one.values for one in samples])
    none: Any = np.empty(0, np.int64)
    return RemoteEntries(
        matrix.shape, matrix.n_entries, None, None, (none, none), (none, none), values
    )
