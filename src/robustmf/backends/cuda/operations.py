"""The operations of the CUDA backend: Triton kernels on one set of entries in GPU memory."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
import triton
from torch import Tensor

from robustmf.backends.base import Capabilities
from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.backend import CUDABackend
from robustmf.backends.cuda.chunks import Chunks, Slice, cut
from robustmf.backends.cuda.dual import CUDADualPass
from robustmf.backends.cuda.kernels import dual, entries, parts
from robustmf.backends.cuda.kernels.generated import is_interpreted
from robustmf.backends.cuda.lanes import Lanes, interleaved
from robustmf.backends.cuda.layout import entry_tile, padded, row_layout
from robustmf.backends.cuda.loss_sums import loss_sums, row_losses
from robustmf.backends.cuda.normal import solve_rows, spectral_norms
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.backends.cuda.repair import repair_rows
from robustmf.backends.ridge import Ridge, Ridges
from robustmf.backends.sweeps import LocalSweeps
from robustmf.data.observed import Observed
from robustmf.kernels.team import Team
from robustmf.losses import Loss, Welsch

Array = Any


class CUDAOperations:
    """Passes over the entries of ``observed`` on its GPU.

    The contract is :class:`robustmf.backends.base.EntryOperations`. Rows are processed in chunks of
    bounded length; sums over the chunks of a row are added in a fixed order.

    Parameters
    ----------
    observed : DeviceObserved
        The entries.
    team : Team
        Threads for :meth:`host`.
    """

    capabilities: ClassVar[Capabilities] = CUDABackend.capabilities

    def __init__(self, observed: DeviceObserved, team: Team) -> None:
        self.observed: DeviceObserved = observed
        self.team = team
        rows = observed.rows
        self.pointers: Tensor = cast("Any", rows.pointers).tensor
        self.indices: Tensor = cast("Any", rows.indices).tensor
        self.values: Tensor = cast("Any", rows.values).tensor
        self.starts = self.pointers[:-1]
        self.counts = self.pointers.diff()
        self._transposed: CUDAOperations | None = None
        self._original: weakref.ref[CUDAOperations] | None = None
        self._slices: dict[int, list[Slice]] = {}
        self._chunks: Chunks | None = None
        self._lanes: Lanes | None = None
        self._order: Tensor | None = None

    def on(self, observed: Observed) -> CUDAOperations:
        """The same operations on other entries in GPU memory."""
        return CUDAOperations(cast("DeviceObserved", observed), self.team)

    def host(self) -> CPUOperations:
        """Operations of the CPU backend on the same entries, copied to the host."""
        return CPUOperations(self.observed.to_host(), self.team)

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

    def array(self, values: Any) -> Array:
        """``values`` as a C-contiguous array in GPU memory."""
        return self.observed.placed(values)

    @property
    def transposed(self) -> CUDAOperations:
        """The same operations with the roles of rows and columns exchanged."""
        original = None if self._original is None else self._original()
        if original is not None:
            return original
        if self._transposed is None:
            self._transposed = self.on(self.observed.transposed)
            # A weak reference: a cycle would keep gigabytes of GPU memory until the next garbage
            # collection.
            self._transposed._original = weakref.ref(self)
        return self._transposed

    @property
    def chunks(self) -> Chunks:
        """The rows cut into chunks."""
        if self._chunks is None:
            self._chunks = cut(self.pointers)
        return self._chunks

    @property
    def lanes(self) -> Lanes:
        """A copy of the entries in lane order, one chunk per lane."""
        if self._lanes is None:
            self._lanes = interleaved(self.chunks, self.indices, self.values)
        return self._lanes

    @property
    def wide_loads(self) -> bool:
        """Whether kernels may contain machine instructions, such as loads of 16 bytes."""
        return self.values.dtype == torch.float32 and not is_interpreted()

    def slices(self, max_chunks: int) -> list[Slice]:
        """The rows in slices of at most ``max_chunks`` chunks, or of one row."""
        # kept, because finding them synchronizes with the GPU
        if max_chunks not in self._slices:
            self._slices[max_chunks] = self.chunks.slices(max_chunks)
        return self._slices[max_chunks]

    def numbers(self, *numbers: float, dtype: torch.dtype | None = None) -> Tensor:
        """Parameters for a kernel in GPU memory, by default in the dtype of the entries."""
        # from pinned memory: otherwise the copy waits for all kernels before it, and the host too
        pinned = torch.tensor(
            numbers, dtype=dtype or self.values.dtype, pin_memory=self.values.is_cuda
        )
        return pinned.to(self.values.device, non_blocking=True)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """An uninitialized tensor, by default in the dtype of the entries."""
        return torch.empty(shape, dtype=dtype or self.values.dtype, device=self.values.device)

    def add_chunks(self, partial: Tensor) -> Tensor:
        """Sums over the chunks of each row, in their order; ``partial`` has one row per chunk."""
        chunks = self.chunks
        size = partial.shape[1]
        if len(chunks.split):
            block = min(triton.next_power_of_2(size), 1024)
            grid = (len(chunks.split), triton.cdiv(size, block))
            parts.add_into_first[grid](chunks.split, chunks.first, 0, partial, size, BLOCK=block)
        has_split_rows = len(chunks) > len(self.pointers) - 1
        return partial[chunks.first[:-1]] if has_split_rows else partial

    def residuals(self, U: Array, V: Array, shifts: Array | None = None) -> Array:
        """Residuals M − UVᵀ at the entries, minus a shift for each column if given."""
        chunks = self.chunks
        rank = U.shape[1]
        out = torch.empty_like(self.values)
        V = padded(V.tensor)
        entries.residuals[(len(chunks),)](
            chunks.rows,
            chunks.starts,
            chunks.ends,
            self.indices,
            self.values,
            self.values if shifts is None else shifts.tensor,
            U.tensor,
            V,
            out,
            SHIFTS=shifts is not None,
            RANK=rank,
            **row_layout(V),
            **entry_tile(rank),
        )
        return DeviceArray(out)

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
        return loss_sums(self, losses, U, V, sample_weights)

    def products(self, x: Array, U: Array, V: Array) -> tuple[Array, Array]:
        """XV and XᵀU for the sparse matrix X with entries x."""
        by_row = DeviceArray(self._product(x.tensor, V.tensor, None))
        by_column = DeviceArray(self.column_product(x.tensor, U.tensor))
        return by_row, by_column

    def column_product(self, x: Tensor, U: Tensor) -> Tensor:
        """XᵀU."""
        return self.transposed._product(x, U, self._column_order)

    @property
    def _column_order(self) -> Tensor:
        """Positions, in row order, of the entries in column order."""
        if self._order is None:
            order = cast("Any", self.observed.column_order).tensor
            self._order = order.int() if len(order) < 2**31 else order
        return self._order

    def _product(self, x: Tensor, V: Tensor, positions: Tensor | None) -> Tensor:
        """XV; if ``positions`` are given, the value of entry t is ``x[positions[t]]``."""
        chunks = self.chunks
        rank = V.shape[1]
        found = self.empty(len(chunks), rank)
        V = padded(V)
        entries.product_parts[(len(chunks),)](
            chunks.starts,
            chunks.ends,
            self.indices,
            self.indices if positions is None else positions,
            x,
            V,
            found,
            INDIRECT=positions is not None,
            RANK=rank,
            **row_layout(V),
            **entry_tile(rank),
        )
        return self.add_chunks(found)

    def sums(self, x: Array) -> tuple[Array, Array]:
        """Row sums and column sums of the entries x, in float64."""
        other = self.transposed
        by_row = self.add_chunks(self.sums_by_chunk(x.tensor, None)[:, None])
        by_column = other.add_chunks(other.sums_by_chunk(x.tensor, self._column_order)[:, None])
        return DeviceArray(by_row[:, 0]), DeviceArray(by_column[:, 0])

    def sums_by_chunk(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Sums of x over each chunk; if ``positions`` are given, of ``x[positions]``."""
        chunks = self.chunks
        found = self.empty(len(chunks), dtype=torch.float64)
        entries.sum_parts[(len(chunks),)](
            chunks.starts,
            chunks.ends,
            self.indices if positions is None else positions,
            x,
            found,
            INDIRECT=positions is not None,
            BLOCK=256,
            num_warps=2,
        )
        return found

    def curvatures(self, U: Array, V: Array) -> tuple[Array, Array]:
        """Squared spectral norms of the observed rows of V and U; see the contract."""
        by_row = DeviceArray(spectral_norms(self, V.tensor))
        by_column = DeviceArray(spectral_norms(self.transposed, U.tensor))
        return by_row, by_column

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
        solve_rows(self, loss, reg, U, V, sample_weights, shifts, clip, curvature, nonnegative)

    def lane_arguments(
        self, sample_weights: Array | None, shifts: Array | None, U: Tensor, V: Tensor
    ) -> tuple[Tensor, ...]:
        """The first arguments of every kernel that works in lane order."""
        lanes = self.lanes
        return (
            lanes.starts,
            lanes.widths,
            lanes.counts,
            lanes.rows,
            lanes.alone,
            lanes.origins,
            lanes.indices,
            lanes.values,
            self.values if sample_weights is None else sample_weights.tensor,
            self.values if shifts is None else shifts.tensor,
            U,
            V,
        )

    def explained_shares(self, U: Array, V: Array, theta: float) -> Array:
        """For each row the share of its entries that UVᵀ explains: the mean Welsch weight at θ."""
        lost = row_losses(self, Welsch(theta), U.tensor, V.tensor) / (theta * theta)
        return DeviceArray(1 - lost / torch.clamp(self.counts, min=1))

    def repair_rows(
        self,
        U: Array,
        V: Array,
        ridge: float,
        theta: float,
        rows: Array,
        n_subsets: Array,
        seed: int,
    ) -> Array:
        """Refit rows of U in place from random subsets of their entries; see the contract."""
        return DeviceArray(
            repair_rows(self, U.tensor, V.tensor, ridge, theta, rows.tensor, n_subsets.tensor, seed)
        )

    def dual_pass(self, rank: int) -> CUDADualPass:
        """Buffers for repeated steps on the dual of the MM surrogate at this rank."""
        return CUDADualPass(self, rank)

    def linearised_loss(
        self, e: Array, w: Array, U: Array, V: Array, dU: Array, dV: Array, x: Array
    ) -> tuple[float, float]:
        """Σ w|ρ| and Σ (w|ρ| − xρ), where ρ = e − dU Vᵀ − U dVᵀ at the entries."""
        chunks = self.chunks
        rank = U.shape[1]
        sums = self.empty(len(chunks), 2, dtype=torch.float64)
        V = padded(V.tensor)
        dV = padded(dV.tensor)
        dual.linearised_parts[(len(chunks),)](
            chunks.rows,
            chunks.starts,
            chunks.ends,
            self.indices,
            e.tensor,
            w.tensor,
            U.tensor,
            V,
            dU.tensor,
            dV,
            x.tensor,
            sums,
            RANK=rank,
            **row_layout(V),
            **entry_tile(rank),
        )
        loss, gap = sums.sum(0).tolist()
        return loss, gap
