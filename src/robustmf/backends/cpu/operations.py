"""The operations that solvers are made of, on the CPU: kernels bound to one set of entries and one team of threads.

Solvers see arrays and these methods only; another device offers the same methods (it twins operations, never models).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import Capabilities
from robustmf.backends.cpu.compiled_loss import value_address, weight_address, weight_parameters
from robustmf.data.observed import Observed
from robustmf.kernels import dual, entries, half_step, loss_sums, propagation, repair
from robustmf.kernels.team import Team, block_bounds
from robustmf.losses import L2, Loss, Smoothed

Array = NDArray[np.floating[Any]]

#: Blocks of rows a pass is cut into; more than any machine of this class has threads.
_BLOCKS = 64

#: Entries looked at in one go where an array over all of them is not needed: about as many as stay in a core's cache.
SLICE = 16_384

#: What a loss takes to evaluate by NumPy, in multiply–adds an entry.
_LOSS_WORK = 20

#: At least this many row blocks for passes that sum over columns, whatever that costs in memory.
_LEAST_PARTS = 4


def column_parts(n_entries: int, n_columns: int, rank: int) -> int:
    """Row blocks for passes with a column part each: as many as keep all the parts below half the size of the entries."""
    return min(max(n_entries // (2 * n_columns * rank), _LEAST_PARTS), _BLOCKS)


class CPUOperations:
    """Passes over the entries of ``observed``, run by ``team``.

    Factors are (m, r) and (n, r) arrays of the dtype of the entries; entry arrays are in row order. Sums that decide anything
    are float64.
    """

    def __init__(self, observed: Observed, team: Team) -> None:
        self.observed = observed
        self.team = team
        self._row_bounds = block_bounds(observed.rows.pointers, _BLOCKS)
        self._slice_bounds = block_bounds(observed.rows.pointers, -(-observed.n_entries // SLICE))
        self._column_bounds = block_bounds(np.arange(observed.shape[1] + 1), _BLOCKS)
        #: the loss that was summed last, and where its code is: tracing it anew would take as long as a thousand entries
        self._measured: tuple[
            Loss | None, np.dtype[Any] | None, tuple[int, NDArray[np.float64]] | None
        ] = (None, None, None)
        #: likewise the loss that weighed the entries last, and where the code of its weight is
        self._weighed: tuple[Loss | None, np.dtype[Any] | None, int | None] = (None, None, None)
        self._transposed: CPUOperations | None = None

    capabilities: ClassVar[Capabilities] = Capabilities()

    def on(self, observed: Observed) -> CPUOperations:
        """The same operations on other entries."""
        return CPUOperations(observed, self.team)

    def host(self) -> CPUOperations:
        """Operations of the CPU backend on the same entries: the object itself."""
        return self

    def array(self, values: Any) -> Array:
        """``values`` where the entries are, in C order."""
        return np.ascontiguousarray(values)

    def _precision(self, single: bool) -> np.dtype[Any]:
        """What a pass reckons in."""
        return np.dtype(np.float32) if single else self.observed.dtype

    def _part_bounds(self, rank: int) -> NDArray[np.int64]:
        """Row blocks of a pass that sums over columns."""
        parts = column_parts(self.observed.n_entries, self.observed.shape[1], rank)
        return block_bounds(self.observed.rows.pointers, parts)

    def residuals(self, U: Array, V: Array, shifts: Array | None = None) -> Array:
        """E = M − UVᵀ (less a shift for each column, where given) at the entries."""
        rows = self.observed.rows
        out = np.empty_like(rows.values)
        self._differences(rows.values, U, V, shifts, out)
        return out

    def _differences(
        self, values: Array, U: Array, V: Array, shifts: Array | None, out: Array
    ) -> None:
        rows, none = self.observed.rows, np.empty(0, out.dtype)
        self.team.run(
            entries.residuals, len(self._row_bounds) - 1, U.shape[1] * len(out),
            self._row_bounds, rows.pointers, rows.indices, values, U, V, none if shifts is None else shifts, out,
        )  # fmt: skip

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
            entries.row_products, len(self._row_bounds) - 1, V.shape[1] * len(x),
            self._row_bounds, rows.pointers, rows.indices, x, V, out,
        )  # fmt: skip
        return out

    def column_products(self, x: Array, U: Array) -> Array:
        """XᵀU for the sparse matrix X with entries x (in row order, as everywhere)."""
        return self.transposed.row_products(x[self.observed.column_order], U)

    def loss_sum(
        self, loss: Loss, U: Array, V: Array, sample_weights: Array | None = None
    ) -> float:
        """Σ s·φ(|e|) over the entries."""
        return self.loss_sums((loss,), U, V, sample_weights)[0]

    def loss_sums(
        self, losses: Sequence[Loss], U: Array, V: Array, sample_weights: Array | None = None, single: bool = False
    ) -> list[float]:  # fmt: skip
        """Σ s·φ(|e|) for each of the losses. Losses that differ in how far their tip is rounded take one pass together.

        ``single``: each residual in float32, whatever the entries are, and so each loss of ours; one's own may be a difference of large
        numbers. Sums are float64.
        """
        bases = [loss.base if isinstance(loss, Smoothed) else loss for loss in losses]
        if any(base != bases[0] for base in bases):
            return [self.loss_sum(loss, U, V, sample_weights) for loss in losses]
        measured = np.dtype(np.float32 if single and bases[0].stable_in_float32 else np.float64)
        if (bases[0], measured) != self._measured[:2]:
            self._measured = bases[0], measured, value_address(bases[0], measured)
        compiled = self._measured[2]
        if compiled is None:
            return self._numpy_loss_sums(losses, U, V, sample_weights)
        address, parameters = compiled
        rows, dtype, none = (
            self.observed.rows,
            self._precision(single),
            np.empty(0, self.observed.dtype),
        )
        tips = np.array([loss.epsilon for loss in losses])
        sums = np.empty((len(self._row_bounds) - 1, len(losses)))
        self.team.run(
            loss_sums.loss_sums, len(sums), (U.shape[1] + _LOSS_WORK * len(losses)) * len(rows.values),
            self._row_bounds, rows.pointers, rows.indices, rows.values, none if sample_weights is None else sample_weights, none,
            np.array([-np.inf, np.inf], rows.values.dtype), half_step.pad(V, dtype), half_step.padded_width(V.shape[1], dtype.itemsize), U,
            (tips * tips).astype(measured), address, parameters, sums,
        )  # fmt: skip
        # a rounded loss starts at 0
        lowered = bases[0].value(tips) if tips.any() else np.zeros(len(tips))
        total = (
            len(rows.values)
            if sample_weights is None
            else float(sample_weights.sum(dtype=np.float64))
        )
        return [float(x) for x in sums.sum(axis=0) - total * lowered]

    def _numpy_loss_sums(
        self, losses: Sequence[Loss], U: Array, V: Array, sample_weights: Array | None
    ) -> list[float]:
        """The same for a loss that cannot be compiled, a slice of entries at a time."""
        rows, bounds = self.observed.rows, self._slice_bounds
        none, sums = np.empty(0, rows.values.dtype), np.zeros((len(bounds) - 1, len(losses)))

        def add(first: int, last: int) -> None:
            for k in range(first, last):
                part = slice(int(rows.pointers[bounds[k]]), int(rows.pointers[bounds[k + 1]]))
                residual = np.empty(part.stop - part.start, rows.values.dtype)
                entries.residuals(
                    0,
                    1,
                    bounds[k : k + 2],
                    rows.pointers,
                    rows.indices,
                    rows.values,
                    U,
                    V,
                    none,
                    residual,
                )
                wide = residual.astype(np.float64, copy=False)
                for q, loss in enumerate(losses):
                    values = loss.value(wide)
                    sums[k, q] = (
                        values if sample_weights is None else values * sample_weights[part]
                    ).sum(dtype=np.float64)

        self.team.run(add, len(sums), (U.shape[1] + _LOSS_WORK * len(losses)) * len(rows.values))
        return [float(total) for total in sums.sum(axis=0)]

    def products(self, x: Array, U: Array, V: Array) -> tuple[Array, Array]:
        """XV and XᵀU for the sparse matrix X with entries x."""
        rows, rank = self.observed.rows, U.shape[1]
        bounds = self._part_bounds(rank)
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
        out = np.empty(parts.shape[1:], parts.dtype)
        self.team.run(
            entries.add_parts,
            len(self._column_bounds) - 1,
            parts.size,
            self._column_bounds,
            parts,
            out,
        )
        return out

    def sums(self, x: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Row sums and column sums of the entries x."""
        rows = self.observed.rows
        m, n = self.observed.shape
        bounds = self._part_bounds(1)
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
        """For each row the squared spectral norm of the rows of V it observes, for each column that of U; from above."""
        by_row = self._gram_norms(self.observed, V)
        return by_row, self._gram_norms(self.observed.transposed, U)

    def _gram_norms(self, observed: Observed, V: Array) -> NDArray[np.float64]:
        rows, rank = observed.rows, V.shape[1]
        bounds = block_bounds(rows.pointers, _BLOCKS)
        norms = np.empty(len(rows))
        # in slices, so that the Gram matrices never take more room than the entries
        for low, high in _slices(len(rows), max(10_000, observed.n_entries // rank**2)):
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
        reg: float | Array,
        U: Array,
        V: Array,
        sample_weights: Array | None = None,
        shifts: Array | None = None,
        clip: tuple[float, float] = (-np.inf, np.inf),
        curvature: float = np.inf,
        single: bool = False,
    ) -> None:
        """Solve for every row of U, in place, V held: min Σ s·w(e)·e² + reg‖U‖², with the loss's weights w at the present residuals.

        Parameters
        ----------
        reg : float or array of shape (m,)
            The ridge, one for all or one a row.
        sample_weights : array over the entries, optional
            s.
        shifts : array of shape (n,), optional
            What the prediction has beside UVᵀ, column by column: e = M − shift − UVᵀ.
        clip : pair of float
            Values are clipped to this range first.
        curvature : float
            A finite one, for a rounded loss, is a step towards Newton's: longer, the more entries of the row (with s > 0) lie at the
            tip, counted in ranks times this; it may raise the objective.
        single : bool
            Reckon in float32, whatever the entries are.

        A loss without a compilable formula has its weights computed by NumPy first, and knows no curvature.
        """
        rows, rank, dtype = self.observed.rows, U.shape[1], self._precision(single)
        base = loss.base if isinstance(loss, Smoothed) else loss
        if (base, dtype) != self._weighed[:2]:
            self._weighed = base, dtype, weight_address(base, dtype)
        address = self._weighed[2]
        none = np.empty(0, rows.values.dtype)
        if address is None:
            residual = self.residuals(U, V, none if shifts is None else shifts)
            weights = loss.weight(residual).astype(residual.dtype, copy=False)
            self.half_step(
                L2(),
                reg,
                U,
                V,
                weights if sample_weights is None else weights * sample_weights,
                shifts,
                clip,
                single=single,
            )
            return
        width = half_step.padded_width(rank, dtype.itemsize)
        reg_by_row = np.empty(len(U), dtype)
        reg_by_row[:] = reg
        self.team.run(
            half_step.half_step, len(self._row_bounds) - 1, rank**2 * len(rows.values),
            self._row_bounds, rows.pointers, rows.indices, rows.values, none if sample_weights is None else sample_weights,
            none if shifts is None else shifts, np.array(clip, rows.values.dtype), half_step.pad(V, dtype), width, U, reg_by_row,
            dtype.type(loss.epsilon * loss.epsilon), dtype.type(curvature), address, weight_parameters(loss),
            half_step.block_size(width, dtype.itemsize),
        )  # fmt: skip

    @property
    def transposed(self) -> CPUOperations:
        """The same operations with the roles of rows and columns swapped."""
        if self._transposed is None:
            other = CPUOperations(self.observed.transposed, self.team)
            other._transposed = self
            self._transposed = other
        return self._transposed

    def explained_shares(self, U: Array, V: Array, theta: float) -> NDArray[np.float64]:
        """For each row the share of its entries that the fit explains: the mean Welsch weight at scale θ."""
        rows = self.observed.rows
        out = np.empty(len(rows))
        self.team.run(
            repair.mean_weights, len(self._row_bounds) - 1, U.shape[1] * len(rows.values),
            self._row_bounds, rows.pointers, rows.indices, rows.values, U, V, 0.5 / (theta * theta), out,
        )  # fmt: skip
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
        """Refit the given rows of U, in place, from random subsets of their entries; which of them found something better."""
        by_row, by_column, rank = self.observed.rows, self.observed.columns, U.shape[1]
        bounds, rate = self.transposed._row_bounds, 0.5 / (theta * theta)
        inverses = np.empty((len(V), rank, rank))
        self.team.run(
            repair.normal_inverses, len(bounds) - 1, rank**2 * self.observed.n_entries,
            bounds, by_column.pointers, by_column.indices, by_column.values, V, U, ridge, rate, inverses,
        )  # fmt: skip
        changed = np.zeros(len(rows), bool)
        self.team.run(
            repair.repair_rows, len(rows), int((n_subsets * by_row.counts[rows]).sum()) * rank**2,
            by_row.pointers, by_row.indices, by_row.values, U, V, inverses, ridge, rate, rows, n_subsets, np.uint64(seed), changed,
        )  # fmt: skip
        return changed

    def propagate(
        self, U: Array, row_covariances: Array, V: Array, column_covariances: Array, positions: NDArray[np.int64],
        row_weights: Array, column_weights: Array, precision: float, s2: float, t2: float, share: float,
    ) -> NDArray[np.float64]:  # fmt: skip
        """One half-iteration of message passing for the rows; returns inlier mass, its energy, outlier mass, its energy."""
        rows = self.observed.rows
        sums = np.empty((len(self._row_bounds) - 1, 4))
        self.team.run(
            propagation.propagate_half, len(sums), 6 * U.shape[1] ** 2 * len(rows.values),
            self._row_bounds, rows.pointers, rows.indices, positions, rows.values, U, row_covariances, V, column_covariances,
            row_weights, column_weights, precision, s2, t2, share, sums,
        )  # fmt: skip
        return np.asarray(sums.sum(axis=0))

    def dual_pass(self, rank: int) -> DualPass:
        """Buffers and bounds for repeated steps on the dual at this rank."""
        return DualPass(self, rank)

    def linearised_loss(
        self, e: Array, w: Array, U: Array, V: Array, dU: Array, dV: Array, x: Array
    ) -> tuple[float, float]:
        """Σ w|ρ| and Σ (w|ρ| − xρ), where ρ = e − dU Vᵀ − U dVᵀ at the entries."""
        rows = self.observed.rows
        sums = np.empty((len(self._row_bounds) - 1, 2))
        self.team.run(
            dual.linearised_loss, len(sums), 2 * U.shape[1] * len(e),
            self._row_bounds, rows.pointers, rows.indices, e, w, U, V, dU, dV, x, sums,
        )  # fmt: skip
        return float(sums[:, 0].sum()), float(sums[:, 1].sum())


class DualPass:
    """One accelerated step on the dual as a pass over the entries, with its buffers kept between steps."""

    def __init__(self, operations: CPUOperations, rank: int) -> None:
        observed = operations.observed
        self._team, self._rows = operations.team, observed.rows
        self._bounds = operations._part_bounds(rank)
        self._side_bounds = (operations._row_bounds, operations._column_bounds)
        self._parts = np.empty((len(self._bounds) - 1, observed.shape[1], rank), observed.dtype)
        self._sums = np.empty((len(self._parts), 3))
        self._work = 4 * rank * observed.n_entries

    def step(
        self, e: Array, w: Array, curvatures: tuple[Array, Array], momentum: float, scale: float, factors: tuple[Array, Array],
        increments: tuple[Array, Array], x: Array, x_before: Array, x_new: Array, products: tuple[Array, Array],
    ) -> tuple[float, float, float]:  # fmt: skip
        """Write x_new and its products; return Σ c(x_new − z)², ⟨x_new, e⟩, Σ c(z − x_new)(x_new − x)."""
        number = e.dtype.type
        self._team.run(
            dual.dual_step, len(self._parts), self._work,
            self._bounds, self._rows.pointers, self._rows.indices, e, w, *curvatures, number(momentum), number(scale), *factors,
            *increments, x, x_before, x_new, products[0], self._parts, self._sums,
        )  # fmt: skip
        bounds = self._side_bounds[1]
        self._team.run(
            entries.add_parts, len(bounds) - 1, self._parts.size, bounds, self._parts, products[1]
        )
        moved, linear, turning = self._sums.sum(axis=0)
        return float(moved), float(linear), float(turning)

    def quadratics(
        self, side: int, inverse: Array, pull: Array, products: Array, products_at_z: Array
    ) -> tuple[float, float]:
        """½ Σ ‖products − pull‖²·inverse and Σ ‖products − products_at_z‖²·inverse over the rows (side 0) or columns (side 1)."""
        bounds = self._side_bounds[side]
        sums = np.empty((len(bounds) - 1, 2))
        self._team.run(
            dual.side_quadratics,
            len(sums),
            4 * pull.size,
            bounds,
            inverse,
            pull,
            products,
            products_at_z,
            sums,
        )
        return float(sums[:, 0].sum()), float(sums[:, 1].sum())

    def extrapolate(
        self,
        side: int,
        inverse: Array,
        pull: Array,
        products: Array,
        products_before: Array,
        momentum: float,
        at_z: Array,
        increments: Array,
    ) -> None:
        """Products and increments at z = x + momentum·(x − x_before), written to ``at_z`` and ``increments``."""
        bounds = self._side_bounds[side]
        self._team.run(
            dual.side_extrapolate, len(bounds) - 1, 4 * pull.size,
            bounds, inverse, pull, products, products_before, pull.dtype.type(momentum), at_z, increments,
        )  # fmt: skip


def _slices(total: int, size: int) -> list[tuple[int, int]]:
    return [(low, min(low + size, total)) for low in range(0, total, size)]
