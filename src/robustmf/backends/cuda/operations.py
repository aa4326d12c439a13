"""The operations that solvers are made of, on the card: Triton kernels bound to one set of entries.

The contract is :class:`robustmf.backends.base.EntryOperations`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import torch
import triton
from torch import Tensor

from robustmf.backends.base import Capabilities
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.cuda.array import DeviceArray, tensor_like
from robustmf.backends.cuda.backend import CUDABackend
from robustmf.backends.cuda.chunks import Chunks, Slice, cut
from robustmf.backends.cuda.dual import DeviceDualPass
from robustmf.backends.cuda.kernels import dual, entries, parts
from robustmf.backends.cuda.kernels.written import interpreted
from robustmf.backends.cuda.lanes import Lanes, side_by_side
from robustmf.backends.cuda.layout import entry_tile, padded, rows_of
from robustmf.backends.cuda.loss_sums import loss_sums, row_losses
from robustmf.backends.cuda.normal import solve_rows, spectral_norms
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.backends.cuda.repair import repair_rows
from robustmf.data.observed import Observed
from robustmf.kernels.team import Team
from robustmf.losses import Loss, Welsch

Array = Any


class CUDAOperations(CPUOperations):
    """Passes over the entries of ``observed`` on its card. ``team`` serves what stays on the host: small starts."""

    capabilities: ClassVar[Capabilities] = CUDABackend.capabilities

    def __init__(self, observed: DeviceObserved, team: Team) -> None:
        self.observed: DeviceObserved = observed
        self.team = team
        rows = observed.rows
        self._pointers, self.indices, self.values = (
            cast("Any", array).tensor for array in (rows.pointers, rows.indices, rows.values)
        )
        self._other: CUDAOperations | None = None
        self._original: weakref.ref[CUDAOperations] | None = None
        self.starts, self.counts = self._pointers[:-1], self._pointers.diff()
        self._slices: dict[int, list[Slice]] = {}

    def on(self, observed: Observed) -> CUDAOperations:
        """The same operations on other entries."""
        return CUDAOperations(cast("DeviceObserved", observed), self.team)

    def host(self) -> CPUOperations:
        """The same entries in the memory of the host, and operations there."""
        return CPUOperations(self.observed.to_host(), self.team)

    def array(self, values: Any) -> Array:
        """``values`` on the card."""
        return DeviceArray(tensor_like(values, self.values).contiguous())

    @property
    def transposed(self) -> CUDAOperations:
        """The same operations with the roles of rows and columns swapped."""
        original = None if self._original is None else self._original()
        if original is not None:
            return original
        if self._other is None:
            self._other = self.on(self.observed.transposed)
            # weak: a cycle would keep gigabytes on the card until Python looks for cycles
            self._other._original = weakref.ref(self)
        return self._other

    @cached_property
    def chunks(self) -> Chunks:
        """The rows cut into chunks."""
        return cut(self._pointers)

    def slices(self, most: int) -> list[Slice]:
        """The rows in slices of at most ``most`` chunks (or one row); known after the first question, as it waits for the card."""
        if most not in self._slices:
            self._slices[most] = self.chunks.slices(most)
        return self._slices[most]

    def numbers(self, *numbers: float, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers for a kernel to read, in the precision of the entries unless given."""
        # from pinned memory: else the copy would wait for the kernels before it, and the host with it
        pinned = torch.tensor(
            numbers, dtype=dtype or self.values.dtype, pin_memory=self.values.is_cuda
        )
        return pinned.to(self.values.device, non_blocking=True)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Room on the card, in the precision of the entries unless given."""
        return torch.empty(shape, dtype=dtype or self.values.dtype, device=self.values.device)

    def add_chunks(self, found: Tensor) -> Tensor:
        """Rows' sums of what is known chunk by chunk."""
        chunks, size = self.chunks, found.shape[1]
        if len(chunks.split):
            block = min(triton.next_power_of_2(size), 1024)
            grid = (len(chunks.split), triton.cdiv(size, block))
            parts.add_into_first[grid](chunks.split, chunks.first, 0, found, size, BLOCK=block)
        return found[chunks.first[:-1]] if len(chunks) > len(self._pointers) - 1 else found

    def residuals(self, U: Array, V: Array, shifts: Array | None = None) -> Array:
        """E = M − UVᵀ (less a shift for each column, where given) at the entries."""
        chunks, rank, out = self.chunks, U.shape[1], torch.empty_like(self.values)
        V = padded(V.tensor)
        entries.residuals[(len(chunks),)](
            chunks.rows, chunks.starts, chunks.ends, self.indices, self.values, self.values if shifts is None else shifts.tensor,
            U.tensor, V, out, SHIFTS=shifts is not None, RANK=rank, **rows_of(V), **entry_tile(rank),
        )  # fmt: skip
        return DeviceArray(out)

    def loss_sums(
        self, losses: Sequence[Loss], U: Array, V: Array, sample_weights: Array | None = None, single: bool = False
    ) -> list[float]:  # fmt: skip
        """Σ s·φ(|e|) for each of the losses, without an array over all entries (for formulas that can be traced)."""
        return loss_sums(self, losses, U, V, sample_weights)

    def products(self, x: Array, U: Array, V: Array) -> tuple[Array, Array]:
        """XV and XᵀU for the sparse matrix X with entries x."""
        return DeviceArray(self._product(x.tensor, V.tensor, None)), DeviceArray(
            self.column_product(x.tensor, U.tensor)
        )

    def column_product(self, x: Tensor, U: Tensor) -> Tensor:
        """XᵀU."""
        return self.transposed._product(x, U, self._places)

    @cached_property
    def _places(self) -> Tensor:
        order = cast("Any", self.observed.column_order).tensor
        return order.int() if len(order) < 2**31 else order

    def _product(self, x: Tensor, V: Tensor, places: Tensor | None) -> Tensor:
        chunks, rank = self.chunks, V.shape[1]
        found = self.empty(len(chunks), rank)
        V = padded(V)
        entries.product_parts[(len(chunks),)](
            chunks.starts, chunks.ends, self.indices, self.indices if places is None else places, x, V, found,
            PLACES=places is not None, RANK=rank, **rows_of(V), **entry_tile(rank),
        )  # fmt: skip
        return self.add_chunks(found)

    def sums(self, x: Array) -> tuple[Array, Array]:
        """Row sums and column sums of the entries x."""
        by_row = self.add_chunks(self.sums_by_chunk(x.tensor, None)[:, None])
        other = self.transposed
        by_column = other.add_chunks(other.sums_by_chunk(x.tensor, self._places)[:, None])
        return DeviceArray(by_row[:, 0]), DeviceArray(by_column[:, 0])

    def sums_by_chunk(self, x: Tensor, places: Tensor | None) -> Tensor:
        """Sums of the entries x, chunk by chunk; with ``places`` the entry t finds its x there."""
        chunks = self.chunks
        found = self.empty(len(chunks), dtype=torch.float64)
        entries.sum_parts[(len(chunks),)](
            chunks.starts, chunks.ends, self.indices if places is None else places, x, found, PLACES=places is not None,
            BLOCK=256, num_warps=2,
        )  # fmt: skip
        return found

    def curvatures(self, U: Array, V: Array) -> tuple[Array, Array]:
        """For each row the squared spectral norm of the rows of V it observes, for each column that of U; from above."""
        return DeviceArray(spectral_norms(self, V.tensor)), DeviceArray(
            spectral_norms(self.transposed, U.tensor)
        )

    def half_step(
        self, loss: Loss, reg: float | Array, U: Array, V: Array, sample_weights: Array | None = None, shifts: Array | None = None,
        clip: tuple[float, float] = (-np.inf, np.inf), curvature: float = np.inf, single: bool = False,
    ) -> None:  # fmt: skip
        """Solve for every row of U, in place, V held; see the contract. There is no quicker version in ``single`` precision."""
        solve_rows(self, loss, reg, U, V, sample_weights, shifts, clip, curvature)

    @cached_property
    def lanes(self) -> Lanes:
        """The entries once more, a chunk a lane."""
        return side_by_side(self.chunks, self.indices, self.values)

    @property
    def wide(self) -> bool:
        """Whether kernels may have machine instructions, which read 16 bytes at a time."""
        return self.values.dtype == torch.float32 and not interpreted()

    def lane_entries(
        self, sample_weights: Array | None, shifts: Array | None, U: Tensor, V: Tensor
    ) -> tuple[Tensor, ...]:
        """What every pass by lanes begins its arguments with."""
        lanes = self.lanes
        return (
            lanes.starts, lanes.widths, lanes.counts, lanes.rows, lanes.alone, lanes.origins, lanes.indices, lanes.values,
            self.values if sample_weights is None else sample_weights.tensor, self.values if shifts is None else shifts.tensor, U, V,
        )  # fmt: skip

    def explained_shares(self, U: Array, V: Array, theta: float) -> Array:
        """For each row the share of its entries that the fit explains: the mean Welsch weight at scale θ."""
        lost = row_losses(self, Welsch(theta), U.tensor, V.tensor) / (theta * theta)
        return DeviceArray(1 - lost / torch.clamp(self.counts, min=1))

    def repair_rows(
        self, U: Array, V: Array, ridge: float, theta: float, rows: Array, n_subsets: Array, seed: int
    ) -> Array:  # fmt: skip
        """Refit the given rows of U, in place, from random subsets of their entries; which of them found something better."""
        return DeviceArray(
            repair_rows(self, U.tensor, V.tensor, ridge, theta, rows.tensor, n_subsets.tensor, seed)
        )

    def propagate(self, *arguments: Any) -> Any:
        """Message passing has no twin here: problems small enough for it have their start on the host."""
        raise NotImplementedError("message passing runs on the CPU; see EntryOperations.host")

    def dual_pass(self, rank: int) -> Any:
        """Buffers for repeated steps on the dual at this rank."""
        return DeviceDualPass(self, rank)

    def linearised_loss(
        self, e: Array, w: Array, U: Array, V: Array, dU: Array, dV: Array, x: Array
    ) -> tuple[float, float]:
        """Σ w|ρ| and Σ (w|ρ| − xρ), where ρ = e − dU Vᵀ − U dVᵀ at the entries."""
        chunks, rank = self.chunks, U.shape[1]
        sums = self.empty(len(chunks), 2, dtype=torch.float64)
        V, dV = padded(V.tensor), padded(dV.tensor)
        dual.linearised_parts[(len(chunks),)](
            chunks.rows, chunks.starts, chunks.ends, self.indices, e.tensor, w.tensor, U.tensor, V, dU.tensor, dV, x.tensor, sums,
            RANK=rank, **rows_of(V), **entry_tile(rank),
        )  # fmt: skip
        loss, gap = sums.sum(0).tolist()
        return loss, gap
