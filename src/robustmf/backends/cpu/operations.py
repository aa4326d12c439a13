"""The operations of the CPU backend: Numba kernels on one set of entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import Capabilities
from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.compiled_loss import weight_address, weight_parameters
from robustmf.backends.cpu.dual import CPUDualPass
from robustmf.backends.cpu.loss_sums import LossSums
from robustmf.backends.ridge import Ridge, Ridges, as_ridge
from robustmf.backends.sweeps import LocalSweeps
from robustmf.data.observed import Observed
from robustmf.kernels import dual, entries, half_step, repair
from robustmf.kernels.team import Team, block_bounds
from robustmf.losses import L2, Loss, Smoothed

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class PassOptions:
    """Constants of the passes over the entries.

    Attributes
    ----------
    blocks : int
        Row blocks of a pass: more than the threads of any machine that this is written for.
    min_parts : int
        The least number of row blocks of a pass that sums over columns, whatever memory they take.
    min_grams : int
        The least number of rows whose Gram matrices are formed at once.
    """

    blocks: int = 64
    min_parts: int = 4
    min_grams: int = 10_000


OPTIONS = PassOptions()


def column_parts(n_entries: int, n_columns: int, rank: int) -> int:
    """Row blocks of a pass that sums over columns, each block with its own partial sums.

    As many as keep all partial sums together below half the size of the entries.
    """
    parts = n_entries // (2 * n_columns * rank)
    return min(max(parts, OPTIONS.min_parts), OPTIONS.blocks)


class CPUOperations:
    """Passes over the entries of ``observed``, run by ``team``.

    The contract is :class:`robustmf.backends.base.EntryOperations`. ``sampled_product``,
    ``row_products`` and ``column_products`` are additions for the baselines.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def __init__(self, observed: Observed, team: Team) -> None:
        self.observed = observed
        self.team = team
        self.row_bounds = block_bounds(observed.rows.pointers, OPTIONS.blocks)
        self.column_bounds = block_bounds(np.arange(observed.shape[1] + 1), OPTIONS.blocks)
        self._loss_sums = LossSums(observed, team, self.row_bounds)
        self._transposed: CPUOperations | None = None
        # The loss of the last half-step, its precision and the address of its compiled weight:
        # tracing it takes as long as a thousand entries.
        self._last_weight: tuple[Loss | None, np.dtype[Any] | None, int | None] = (None, None, None)

    def on(self, observed: Observed) -> CPUOperations:
        """The same operations on other entries."""
        return CPUOperations(observed, self.team)

    def host(self) -> CPUOperations:
        """Operations of the CPU backend on the same entries: the object itself."""
        return self

    def sweeps(
        self,
        reg: float | Ridges,
        biases: BiasModel,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
        nonnegative: bool = False,
    ) -> LocalSweeps:
        """Sweeps over these entries; see the contract."""
        return LocalSweeps(self, reg, biases, sample_weights, reg_by_count, nonnegative)

    @property
    def transposed(self) -> CPUOperations:
        """The same operations with the roles of rows and columns exchanged."""
        if self._transposed is None:
            other = CPUOperations(self.observed.transposed, self.team)
            other._transposed = self
            self._transposed = other
        return self._transposed

    def array(self, values: Any) -> Array:
        """``values`` as a C-contiguous array."""
        return self.observed.placed(values)

    def _precision(self, single: bool) -> np.dtype[Any]:
        """The dtype in which a pass computes."""
        return np.dtype(np.float32) if single else self.observed.dtype

    def part_bounds(self, rank: int) -> NDArray[np.int64]:
        """Row blocks of a pass that sums over columns."""
        parts = column_parts(self.observed.n_entries, self.observed.shape[1], rank)
        return block_bounds(self.observed.rows.pointers, parts)

    def residuals(self, U: Array, V: Array, shifts: Array | None = None) -> Array:
        """Residuals M − UVᵀ at the entries, minus a shift for each column if given."""
        rows = self.observed.rows
        out = np.empty_like(rows.values)
        self._differences(rows.values, U, V, shifts, out)
        return out

    def _differences(
        self, values: Array, U: Array, V: Array, shifts: Array | None, out: Array
    ) -> None:
        """Write values − UVᵀ − shifts at the entries; empty ``values`` are zeros."""
        rows = self.observed.rows
        none = np.empty(0, out.dtype)
        self.team.run(
            entries.residuals,
            len(self.row_bounds) - 1,
            U.shape[1] * len(out),
            self.row_bounds,
            rows.pointers,
            rows.indices,
            values,
            U,
            V,
            none if shifts is None else shifts,
            out,
        )

    def sampled_product(self, U: Array, V: Array) -> Array:
        """UVᵀ at the entries."""
        out = np.empty_like(self.observed.rows.values)
        self._differences(np.empty(0, out.dtype), -U, V, None, out)
        return out

    def row_products(self, x: Array, V: Array) -> Array:
        """XV for the sparse matrix X with entries x."""
        rows = self.observed.rows
        out = np.empty((len(rows), V.shape[1]), V.dtype)
        self.team.run(
            entries.row_products,
            len(self.row_bounds) - 1,
            V.shape[1] * len(x),
            self.row_bounds,
            rows.pointers,
            rows.indices,
            x,
            V,
            out,
        )
        return out

    def column_products(self, x: Array, U: Array) -> Array:
        """XᵀU for the sparse matrix X with entries x."""
        return self.transposed.row_products(x[self.observed.column_order], U)

    def loss_sum(
        self, loss: Loss, U: Array, V: Array, sample_weights: Array | None = None
    ) -> float:
        """Σ s·φ(|e|) over the entries."""
        return self.loss_sums((loss,), U, V, sample_weights)[0]

    def loss_sums(
        self,
        losses: Sequence[Loss],
        U: Array,
        V: Array,
        sample_weights: Array | None = None,
        single: bool = False,
    ) -> list[float]:
        """Σ s·φ(|e|) for each loss; see the contract."""
        return self._loss_sums(losses, U, V, sample_weights, single)

    def products(self, x: Array, U: Array, V: Array) -> tuple[Array, Array]:
        """XV and XᵀU for the sparse matrix X with entries x."""
        rows = self.observed.rows
        rank = U.shape[1]
        bounds = self.part_bounds(rank)
        parts = np.empty((len(bounds) - 1, *V.shape), V.dtype)
        row_products = np.empty_like(U)
        self.team.run(
            entries.entry_products,
            len(parts),
            2 * rank * len(x),
            bounds,
            rows.pointers,
            rows.indices,
            x,
            U,
            V,
            row_products,
            parts,
        )
        return row_products, self._add_parts(parts)

    def _add_parts(self, parts: Array) -> Array:
        """The sum over row blocks, in their order."""
        out = np.empty(parts.shape[1:], parts.dtype)
        self.team.run(
            entries.add_parts,
            len(self.column_bounds) - 1,
            parts.size,
            self.column_bounds,
            parts,
            out,
        )
        return out

    def sums(self, x: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Row sums and column sums of the entries x, in float64."""
        rows = self.observed.rows
        m, n = self.observed.shape
        bounds = self.part_bounds(1)
        row_sums = np.empty(m)
        parts = np.empty((len(bounds) - 1, n))
        self.team.run(
            entries.entry_sums,
            len(parts),
            2 * len(x),
            bounds,
            rows.pointers,
            rows.indices,
            x,
            row_sums,
            parts,
        )
        return row_sums, np.asarray(parts.sum(axis=0))

    def curvatures(self, U: Array, V: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Squared spectral norms of the observed rows of V and U; see the contract."""
        by_row = self._gram_norms(self.observed, V)
        return by_row, self._gram_norms(self.observed.transposed, U)

    def _gram_norms(self, observed: Observed, V: Array) -> NDArray[np.float64]:
        """For each row the squared spectral norm of the rows of V which it observes."""
        rows = observed.rows
        rank = V.shape[1]
        bounds = block_bounds(rows.pointers, OPTIONS.blocks)
        norms = np.empty(len(rows))
        # in slices, so that the Gram matrices never take more memory than the entries
        for low, high in _slices(len(rows), max(OPTIONS.min_grams, observed.n_entries // rank**2)):
            within = np.unique(np.clip(bounds, low, high)) - low
            grams = np.empty((high - low, rank, rank))
            pointers = rows.pointers[low : high + 1]
            self.team.run(
                entries.grams,
                len(within) - 1,
                rank**2 * int(pointers[-1] - pointers[0]) // 2,
                within,
                pointers,
                rows.indices,
                V,
                grams,
            )
            norms[low:high] = np.linalg.eigvalsh(grams)[:, -1]
        return norms

    def half_step(
        self,
        loss: Loss,
        reg: float | Array | Ridge,
        U: Array,
        V: Array,
        sample_weights: Array | None = None,
        shifts: Array | None = None,
        clip: tuple[float, float] = (-np.inf, np.inf),
        curvature: float = np.inf,
        single: bool = False,
        nonnegative: bool = False,
    ) -> None:
        """Update every row of U in place with V fixed; see the contract."""
        rows = self.observed.rows
        rank = U.shape[1]
        dtype = self._precision(single)
        base = loss.base if isinstance(loss, Smoothed) else loss
        if (base, dtype) != self._last_weight[:2]:
            self._last_weight = (base, dtype, weight_address(base, dtype))
        address = self._last_weight[2]
        none = np.empty(0, rows.values.dtype)
        if address is None:
            residual = self.residuals(U, V, none if shifts is None else shifts)
            weights = loss.weight(residual).astype(residual.dtype, copy=False)
            if sample_weights is not None:
                weights = weights * sample_weights
            self.half_step(
                L2(), reg, U, V, weights, shifts, clip, single=single, nonnegative=nonnegative
            )
            return
        width = half_step.padded_width(rank, dtype.itemsize)
        ridge = as_ridge(reg, rank)
        by_row = np.empty((len(U), 2), dtype)
        by_row[:, 0] = ridge.first
        by_row[:, 1] = ridge.second
        self.team.run(
            half_step.half_step,
            len(self.row_bounds) - 1,
            rank**2 * len(rows.values),
            self.row_bounds,
            rows.pointers,
            rows.indices,
            rows.values,
            none if sample_weights is None else sample_weights,
            none if shifts is None else shifts,
            np.array(clip, rows.values.dtype),
            half_step.pad(V, dtype),
            width,
            U,
            by_row,
            ridge.factors.astype(dtype),
            dtype.type(loss.epsilon * loss.epsilon),
            dtype.type(curvature) if isinstance(loss, Smoothed) or curvature < np.inf else None,
            address,
            weight_parameters(loss),
            half_step.block_size(width, dtype.itemsize),
            True if rank > half_step.BAND else None,
            True if nonnegative else None,
        )

    def explained_shares(self, U: Array, V: Array, theta: float) -> NDArray[np.float64]:
        """For each row the share of its entries that UVᵀ explains: the mean Welsch weight at θ."""
        rows = self.observed.rows
        out = np.empty(len(rows))
        self.team.run(
            repair.mean_weights,
            len(self.row_bounds) - 1,
            U.shape[1] * len(rows.values),
            self.row_bounds,
            rows.pointers,
            rows.indices,
            rows.values,
            U,
            V,
            0.5 / (theta * theta),
            out,
        )
        return out

    def repair_rows(
        self,
        U: Array,
        V: Array,
        ridge: float,
        theta: float,
        rows: NDArray[np.intp],
        n_subsets: NDArray[np.int64],
        seed: int,
    ) -> NDArray[np.bool_]:
        """Refit rows of U in place from random subsets of their entries; see the contract."""
        by_column = self.observed.columns
        rank = U.shape[1]
        bounds = self.transposed.row_bounds
        inverses = np.empty((len(V), rank, rank))
        self.team.run(
            repair.normal_inverses,
            len(bounds) - 1,
            rank**2 * self.observed.n_entries,
            bounds,
            by_column.pointers,
            by_column.indices,
            by_column.values,
            V,
            U,
            ridge,
            0.5 / (theta * theta),
            inverses,
        )
        return self.refit_rows(U, V, inverses, ridge, theta, rows, n_subsets, seed)

    def refit_rows(
        self,
        U: Array,
        V: Array,
        inverses: Array,
        ridge: float,
        theta: float,
        rows: NDArray[np.intp],
        n_subsets: NDArray[np.int64],
        seed: int,
    ) -> NDArray[np.bool_]:
        """:meth:`repair_rows` for given inverses of the normal matrices of the rows of V.

        They serve to remove the influence of a row of U on V. Zeros stand for rows of V on which
        the rows to refit had no influence.
        """
        by_row = self.observed.rows
        changed = np.zeros(len(rows), bool)
        self.team.run(
            repair.repair_rows,
            len(rows),
            int((n_subsets * by_row.counts[rows]).sum()) * U.shape[1] ** 2,
            by_row.pointers,
            by_row.indices,
            by_row.values,
            U,
            V,
            inverses,
            ridge,
            0.5 / (theta * theta),
            rows,
            n_subsets,
            np.uint64(seed),
            changed,
        )
        return changed

    def dual_pass(self, rank: int) -> CPUDualPass:
        """Buffers for repeated steps on the dual of the MM surrogate at this rank."""
        return CPUDualPass(self, rank)

    def linearised_loss(
        self, e: Array, w: Array, U: Array, V: Array, dU: Array, dV: Array, x: Array
    ) -> tuple[float, float]:
        """Σ w|ρ| and Σ (w|ρ| − xρ), where ρ = e − dU Vᵀ − U dVᵀ at the entries."""
        rows = self.observed.rows
        sums = np.empty((len(self.row_bounds) - 1, 2))
        self.team.run(
            dual.linearised_loss,
            len(sums),
            2 * U.shape[1] * len(e),
            self.row_bounds,
            rows.pointers,
            rows.indices,
            e,
            w,
            U,
            V,
            dU,
            dV,
            x,
            sums,
        )
        return float(sums[:, 0].sum()), float(sums[:, 1].sum())


def _slices(total: int, size: int) -> list[tuple[int, int]]:
    """Consecutive ranges of at most ``size`` that cover 0 … ``total``."""
    return [(low, min(low + size, total)) for low in range(0, total, size)]
