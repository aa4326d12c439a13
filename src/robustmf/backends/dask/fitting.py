"""A whole fit on a cluster: load, start, sweep, and bring the result home."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.checkpoint import Folder, Known
from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.factors import Factors, gather_mended
from robustmf.backends.dask.fold import folded
from robustmf.backends.dask.given import given_start
from robustmf.backends.dask.load import Matrix, load
from robustmf.backends.dask.noise import noise_facts
from robustmf.backends.dask.shards import require_storable, write_shards
from robustmf.backends.dask.source import Triplets
from robustmf.backends.dask.start import (
    SHARE,
    Basis,
    basis_of,
    names_of,
    numbers_in,
    sample_rows,
    sampled_share,
    seeded,
    spread_entries,
    start_on,
)
from robustmf.backends.dask.sweeps import ClusterIRLS
from robustmf.backends.dask.tasks import Terms
from robustmf.data.holdout import holdout_seed
from robustmf.fitting import Fit
from robustmf.initialization.initial_point import check_init
from robustmf.io.checkpoint import Checkpoint
from robustmf.solvers.base import Outcome, run, warn_of_limit
from robustmf.solvers.objective import Objective
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]

_log = logging.getLogger(__name__)

#: Entries that come to the client, evenly spread, for the statistics that a fitted model keeps.
_KEPT = 200_000

#: Bytes of factors that come to the client.
CLIENT_BYTES = 1 << 32


@dataclass(frozen=True)
class Seen:
    """What a model keeps of entries that stayed on the cluster: sizes, ids, how many entries each row and column has, and some of them."""

    shape: tuple[int, int]
    n_entries: int
    row_ids: list[Any] | None
    column_ids: list[Any] | None
    counts: tuple[NDArray[np.int64], NDArray[np.int64]]
    places: tuple[NDArray[np.int64], NDArray[np.int64]]
    values: Array

    @property
    def rows(self) -> Seen:
        """Where an :class:`~robustmf.data.observed.Observed` has its values."""
        return self

    def to_keep(self, weights: None) -> dict[str, Any]:
        """The part that a fitted model keeps as ``entries_``."""
        return {
            "row_counts": self.counts[0], "column_counts": self.counts[1], "rows": self.places[0], "columns": self.places[1],
            "values": self.values,
        }  # fmt: skip


def require_cluster(solver: str, n_init: int, certify: bool, device: str) -> None:
    """Refuse what a fit on a cluster does not offer, before anything is read."""
    offered = {"solver": ("auto", "irls"), "n_init": (1,), "certify": (False,), "device": ("cpu",)}
    for (name, allowed), value in zip(
        offered.items(), (solver, n_init, certify, device), strict=True
    ):
        if value not in allowed:
            raise ValueError(
                f"{name} must be {' or '.join(map(repr, allowed))} with client=, got {name}={value!r}"
            )


class Job:
    """A fit on a cluster: its data are loaded at once, cut and some of them set aside as in the fit that is to be gone on with, if any."""

    def __init__(
        self, client: Any, triplets: Triplets, checkpoint: Checkpoint | None, fraction: float | None, rng: np.random.Generator
    ) -> None:  # fmt: skip
        folder = (
            None
            if checkpoint is None
            else Folder(checkpoint.path, checkpoint.every, checkpoint.must_exist, checkpoint.seeded)
        )
        going_on = (
            "fit again (with checkpoint=path it could go on)"
            if folder is None
            else f"fit(…, resume={str(folder.path)!r}) goes on"
        )
        connection = Connection(client, f"connect a new client, and {going_on}")
        threads = connection.workers()
        if not threads:
            raise ValueError(
                "client has no workers; start some, e.g. with cluster.scale(4) and client.wait_for_workers(4)"
            )
        # workers may have another working directory
        self._shards = None if triplets.shards is None else Path(triplets.shards).resolve()
        self._folder, self._stream = folder, rng.spawn(1)[0]
        seed = holdout_seed(self._stream)
        if folder is not None:
            folder.require_seed(seed)
        known = folder.known if folder is not None else None
        self._known = known or Known(triplets.blocks or sum(threads.values()), seed)
        self.matrix = load(
            connection, triplets, self._known.blocks, fraction, self._known.aside_seed
        )

    def fit(self, settings: Settings) -> tuple[Fit, Seen]:
        """Start and iterate; the result, its factors here or written as shards, and what it keeps of the entries."""
        matrix, folder = self.matrix, self._folder
        check_init(settings.init)
        _require_room(matrix, settings, self._shards)
        if self._shards is not None:
            connection = matrix.connection
            connection.gather(
                [
                    connection.submit(require_storable, ids)
                    for side in matrix.sides
                    for ids in side.ids
                ]
            )
        basis = None
        if folder is not None:
            folder.begin(matrix, settings.deciding(), self._known)
            basis = folder.basis(settings.loss)
        if folder is None or basis is None:
            basis, (U, V) = _started(settings, matrix, self._stream)
        else:
            U, V = folder.points()
        if folder is not None:
            folder.keep_basis(basis)
        terms = Terms(
            basis.reg,
            settings.reg_by_count,
            BiasModel(basis.center, basis.bias_unit),
            settings.bounds,
        )
        irls = ClusterIRLS(matrix, Objective(basis.loss, basis.reg), basis.sigma, terms)
        validation = None if settings.validation_fraction is None else irls.validation_error
        solver: Any = irls  # its factors are where the blocks are
        outcome = run(
            solver, cast("Any", U), cast("Any", V), settings.max_iter, settings.tol, settings.callbacks,
            validation=validation, patience=settings.patience, record=folder,
        )  # fmt: skip
        if folder is not None:
            folder.keep_ended(irls, outcome)
        warn_of_limit(outcome, settings.max_iter, settings.tol)
        pair: Any = outcome.best or irls.factors
        if self._shards is None:
            arrays, seen = [np.asarray(one) for one in pair], _seen(matrix)
        else:
            seen = _unseen(matrix)
            write_shards(
                matrix,
                pair,
                terms.biases,
                self._shards,
                _facts(settings, basis, seen) | noise_facts(matrix, pair, terms),
            )
            arrays = [np.empty((0, pair[0].shape[1]), matrix.dtype)] * 2
        return _as_fit(arrays, basis, outcome, len(matrix.sides[0].blocks)), seen


def _as_fit(arrays: list[Array], basis: Basis, outcome: Outcome, blocks: int) -> Fit:
    unit = arrays[0].dtype.type(basis.bias_unit)
    bias = basis.center is not None
    (U, b), (V, c) = (
        (A[:, :-1].copy(), A[:, -1] * unit) if bias else (A, np.zeros(len(A), A.dtype))
        for A in arrays
    )
    if outcome.best is not None:
        outcome.best = (U, V)
    return Fit(
        U, V, bias, basis.center or 0.0, b, c, basis.bias_unit, basis.loss, basis.reg, outcome, float("nan"),
        "irls", f"on a cluster, {blocks} blocks a side",
    )  # fmt: skip


def _require_room(matrix: Matrix, settings: Settings, shards: Path | None) -> None:
    needed = sum(matrix.shape) * (settings.rank + 1) * matrix.dtype.itemsize
    if needed > CLIENT_BYTES and shards is None:
        raise ValueError(
            f"factors of shape {matrix.shape} at rank {settings.rank} take {needed / 1e9:.1f} GB, more than the "
            f"{CLIENT_BYTES / 1e9:.1f} GB that come to the client; give Triplets(…, shards=folder) to have them written by the workers"
        )


def _started(
    settings: Settings, matrix: Matrix, stream: np.random.Generator
) -> tuple[Basis, tuple[Factors, Factors]]:
    """Factors for all blocks, and what else the iterations begin with."""
    if isinstance(settings.init, str):
        basis, known = _found(settings, matrix, stream)
    else:
        basis, known = given_start(settings, matrix)
    width = settings.rank + (basis.center is not None)
    pair = [matrix.factors(side, blocks, width) for side, blocks in enumerate(known)]
    matrix.connection.wait([*known[0], *known[1]])
    for factors in pair:
        factors.keep_copies()
    _log.info("start found: noise %.4g", basis.sigma)
    return basis, (pair[0], pair[1])


def _found(
    settings: Settings, matrix: Matrix, stream: np.random.Generator
) -> tuple[Basis, list[list[Any]]]:
    """The start of one machine on some of the rows, the others folded in."""
    connection, submit = matrix.connection, matrix.connection.submit
    share = sampled_share(matrix.n_entries, len(matrix.sides[0].blocks))
    samples = [submit(sample_rows, block, share) for block in matrix.sides[0].blocks]
    asked = [[submit(numbers_in, sample, side) for sample in samples] for side in (0, 1)]
    names = [
        [
            submit(names_of, ids, first, asked[side])
            for ids, first in zip(of.ids, of.firsts, strict=True)
        ]
        for side, of in enumerate(matrix.sides)
    ]
    started = submit(
        start_on,
        samples,
        names,
        matrix.n_entries,
        replace(settings, callbacks=(), solver="irls"),
        stream,
    )
    basis = connection.gather(submit(basis_of, started))
    known = [
        [
            submit(seeded, started, side, first, size)
            for first, size in zip(of.firsts, of.sizes, strict=True)
        ]
        for side, of in enumerate(matrix.sides)
    ]
    for side in (0, 1):
        known[side] = _folded_in(matrix, side, known, basis, settings.reg_by_count)
    return basis, known


def _folded_in(
    matrix: Matrix, side: int, known: list[list[Any]], basis: Basis, reg_by_count: bool
) -> list[Any]:
    submit = matrix.connection.submit
    return [
        submit(folded, block, own, section, basis, reg_by_count)
        for block, own, section in zip(
            matrix.sides[side].blocks,
            known[side],
            matrix.sections(side, known[1 - side]),
            strict=True,
        )
    ]


def _seen(matrix: Matrix) -> Seen:
    """What a model keeps of the entries."""
    submit = matrix.connection.submit
    rows, columns = matrix.sides
    quota = max(_KEPT // len(rows.blocks), 1)
    futures = [
        [submit(spread_entries, block, quota, _client_share(matrix)) for block in rows.blocks],
        *([submit(_counts, block) for block in of.blocks] for of in (rows, columns)),
    ]
    samples, *counts = gather_mended(matrix.connection, lambda: (None, futures), [])[1]
    ordered = []
    for side, parts in enumerate(counts):
        every = np.concatenate(parts)
        out = np.empty_like(every)
        out[matrix.order(side)] = every
        ordered.append(out)
    places = [
        matrix.order(side)[np.concatenate([getattr(one, name) for one in samples])]
        for side, name in enumerate(("rows", "columns"))
    ]
    values = np.concatenate([one.values for one in samples])
    return Seen(
        matrix.shape,
        matrix.n_entries,
        *matrix.ids,
        (ordered[0], ordered[1]),
        (places[0].astype(np.int64), places[1].astype(np.int64)),
        values,
    )


def _facts(settings: Settings, basis: Basis, seen: Seen) -> dict[str, Any]:
    """What answers need beside factors."""
    return {
        "rank": settings.rank, "loss": basis.loss.name, "theta": basis.loss.theta, "reg": basis.reg, "reg_by_count": settings.reg_by_count,
        "median": float(np.median(seen.values)), "bounds": None if settings.bounds == (-np.inf, np.inf) else settings.bounds,
    }  # fmt: skip


def _client_share(matrix: Matrix) -> float:
    return SHARE if len(matrix.sides[0].blocks) > 1 else 1.0


def _unseen(matrix: Matrix) -> Seen:
    """Of a model without factors, the same for no rows and columns."""
    none: Any = np.empty(0, np.int64)
    submit, share = matrix.connection.submit, _client_share(matrix)
    samples = matrix.connection.gather(
        [submit(spread_entries, block, 1000, share) for block in matrix.sides[0].blocks]
    )
    values = np.concatenate([one.values for one in samples])
    return Seen(matrix.shape, matrix.n_entries, None, None, (none, none), (none, none), values)


def _counts(block: Block) -> NDArray[np.int64]:
    return block.observed.rows.counts
